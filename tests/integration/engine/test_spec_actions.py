"""Which requests may carry a spec: creations, and the actions that the kind declares."""

import pytest
from msgspec.structs import replace

from stateward.engine import Engine, Job, KindBuilder, Object, Request, Selector, UnitOfWork, to_json
from stateward.errors import BadInput, UnknownName
from stateward.lifecycle import CLOCK, USER
from stateward.store import open_store
from tests.integration.engine.conftest import Site

STOLEN = {"size": 99}
REASON = "spec: must be left out: 'pump' does not change the spec of test.pump; these actions take one: build, tune"


@pytest.mark.parametrize("actor", [USER, CLOCK])
async def test_an_action_that_is_not_declared_for_it_takes_no_spec_from_any_actor(site: Site, actor: str) -> None:
    await site.built("p1", spec={"size": 1})
    with pytest.raises(BadInput) as caught:
        await site.engine.act("ns", "p1", "pump", actor=actor, spec=STOLEN)
    assert (str(caught.value), caught.value.field, caught.value.state) == (REASON, "spec", "idle")
    found = await site.engine.get("ns", "p1")
    assert (found.state, found.spec) == ("idle", {"size": 1})


async def test_no_way_to_submit_a_request_bypasses_the_check(site: Site) -> None:
    await site.built("p1", spec={"size": 1})
    request = site.engine.request("ns", "p1", "pump", spec=STOLEN)
    (planned,) = await site.engine.plan([request])
    with pytest.raises(BadInput, match="these actions take one"):
        await site.engine.submit_sequence([request])
    with pytest.raises(BadInput) as group:
        await site.engine.group(None, Selector("ns", ids=("p1",)), replace(request, object=""))
    assert [str(planned), str(group.value)] == [REASON, REASON]
    assert (await site.engine.get("ns", "p1")).spec == {"size": 1}


async def test_a_declared_action_takes_a_spec(site: Site) -> None:
    await site.built("p1", spec={"size": 1})
    await site.ended(await site.engine.act("ns", "p1", "tune", spec={"size": 2}))
    assert (await site.engine.get("ns", "p1")).spec == {"size": 2}


async def test_children_carry_no_spec_either_and_a_guard_may_still_return_one() -> None:
    async def guard(_uow: UnitOfWork, request: Request, found: Object) -> Request | None:
        return replace(request, spec=to_json({"size": 7})) if request.action == "light" else None

    lamp = KindBuilder("test.lamp", guard=guard)

    @lamp.creates(to="off")
    async def make(_job: Job) -> None: ...

    @lamp.acts("off")
    async def light(_job: Job) -> None: ...

    @lamp.acts("off")
    async def lead(job: Job) -> dict[str, str]:
        return await job.spawn("others", [Request(job.ns, "b", "light", "", spec=to_json(STOLEN))])

    async with Engine(open_store(":memory:"), [lamp.build()]) as engine:
        for name in ("a", "b"):
            await engine.run("ns", name, "make", kind="test.lamp", spec={"size": 1})
        denied = (await engine.run("ns", "a", "lead")).result
        assert "'light' does not change the spec of test.lamp; these actions take one: make" in denied["b"]
        await engine.run("ns", "b", "light")
        assert (await engine.get("ns", "b")).spec == {"size": 7}


def test_a_kind_declares_only_actions_that_it_has() -> None:
    lamp = KindBuilder("test.lamp", spec_actions=("lihgt",))

    @lamp.creates(to="on")
    async def light(_job: Job) -> None: ...

    @lamp.deletes()
    async def remove(_job: Job) -> None: ...

    with pytest.raises(UnknownName, match="light"):
        lamp.build()
