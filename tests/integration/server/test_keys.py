"""Idempotency keys are the caller's, and one key has one verdict, accepted or refused; on both stores."""

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pytest

from stateward.access import Role
from stateward.engine import Request
from stateward.engine.accept.groups import GroupVerdict
from stateward.engine.accept.idempotency import RefusedBefore
from stateward.engine.errors import NoneAllowed
from stateward.plugin.runtime import CompositeParts, DomainRuntime
from stateward.server.routes.composite_actions import CompositeActions
from stateward.store.filters import Selector
from stateward.store.records import Key, Object
from tests.integration.engine.pump_kinds import PUMP as PUMPS
from tests.integration.engine.pump_kinds import STATION
from tests.integration.server.full_server import open_full_server
from tests.integration.server.server_harness import NS, Answer, ServerHarness
from tests.integration.server.test_full_server import made
from tests.waiting import until

PUMP = f"/ns/{NS}/objects/p1/actions/pump"


def key(text: str) -> dict[str, Any]:
    return {"headers": {"Idempotency-Key": text}}


def verdict(answer: Answer) -> tuple[int, str]:
    """Return what a caller can tell two verdicts apart by."""
    told = answer.json()
    return answer.status_code, told.get("code") or told["operation"]["id"]


async def test_the_same_key_and_body_of_another_token_is_another_request(site: ServerHarness) -> None:
    await site.built()
    first = await site.post(f"{PUMP}?wait=30", **key("monday"))
    assert first.status_code == 200, first.text
    site.texts["twin"], _ = await site.tokens.issue("ada", Role.ADMIN, ["*"])
    for who in ("operator", "twin"):
        other = await site.post(f"{PUMP}?wait=30", who=who, **key("monday"))
        assert other.status_code == 200, other.text
        assert other.json()["operation"]["id"] != first.json()["operation"]["id"]
        again = await site.post(PUMP, who=who, **key("monday"))
        assert verdict(again)[1] == other.json()["operation"]["id"]
    assert verdict(await site.post(PUMP, **key("monday")))[1] == first.json()["operation"]["id"]


async def test_a_key_that_is_used_for_something_else_is_told_as_the_caller_gave_it(site: ServerHarness) -> None:
    await site.built()
    await site.post(f"{PUMP}?wait=30", **key("monday"))
    answer = await site.post(PUMP, {"args": {"fast": True}}, **key("monday"))
    assert verdict(answer) == (409, "key_reused")
    assert "'monday'" in answer.json()["detail"]


async def test_a_refusal_is_the_verdict_of_its_key_whatever_happens_afterwards(site: ServerHarness) -> None:
    await site.built()
    site.plant.hold()
    begun = await site.post(PUMP)
    await until(lambda: site.plant.begun["pump"] == 1)
    refused = await site.post(PUMP, **key("tuesday"))
    assert refused.status_code == 409
    site.plant.release()
    await site.ended(begun)
    again = await site.post(PUMP, **key("tuesday"))
    assert verdict(again) == verdict(refused)
    assert again.json()["detail"] == refused.json()["detail"]
    assert (again.json()["state"], again.json()["retry"]) == (refused.json()["state"], False)
    assert verdict(await site.post(PUMP, {"args": {"x": 1}}, **key("tuesday"))) == (409, "key_reused")
    assert (await site.post(PUMP, who="operator", **key("tuesday"))).status_code == 202


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (f"/ns/{NS}/objects/nobody/actions/pump", None, 404, "not_found"),
        (f"/ns/{NS}/objects", {"id": "p1", "kind": "test.pump"}, 409, "exists"),
        (f"/ns/{NS}/objects/p1/actions/nonsense", None, 404, "unknown_name"),
    ],
)
async def test_every_sort_of_refusal_is_repeated_as_it_was(
    site: ServerHarness, path: str, body: Any, status: int, code: str
) -> None:
    await site.built()
    first = await site.post(path, body, **key("wednesday"))
    again = await site.post(path, body, **key("wednesday"))
    assert verdict(first) == verdict(again) == (status, code)
    assert first.json()["detail"] == again.json()["detail"]


async def test_a_request_that_is_sent_twice_at_once_has_one_verdict(site: ServerHarness) -> None:
    await site.built()
    verdicts = []
    for number in range(40):
        site.plant.hold()
        begun = await site.post(PUMP)

        async def let_go() -> None:
            site.plant.release()

        first, _, second, third = await asyncio.gather(
            site.post(PUMP, **key(f"round-{number}")),
            let_go(),
            site.post(PUMP, **key(f"round-{number}")),
            site.post(PUMP, **key(f"round-{number}")),
        )
        assert verdict(first) == verdict(second) == verdict(third), number
        late = await site.post(PUMP, **key(f"round-{number}"))
        assert verdict(late) == verdict(first)
        verdicts.append(first.status_code)
        for answer in (begun, first):
            if answer.status_code == 202:
                await site.ended(answer)
    assert set(verdicts) <= {202, 409}


async def test_a_key_of_before_counts_for_the_request_that_it_was_used_for_and_for_no_other(
    site: ServerHarness,
) -> None:
    await site.built()
    before = await site.engine.act(NS, "p1", "pump", actor="admin", who="ada", key="thursday")
    await site.engine.wait_record(NS, before.op.id, 60)
    again = await site.post(PUMP, **key("thursday"))
    assert verdict(again) == (202, before.op.id), "the same request of the same name, repeated after the upgrade"
    other = await site.post(f"{PUMP}?wait=30", who="operator", **key("thursday"))
    assert other.json()["operation"]["id"] != before.op.id


class Stations(DomainRuntime):
    composite_parts: ClassVar[CompositeParts] = {(STATION.kind, "pump"): PUMPS.kind}


async def test_a_whole_whose_parts_refuse_says_why_each_does_with_a_key_as_without(site: ServerHarness) -> None:
    wholes, engine = CompositeActions([Stations([])]), site.engine
    await engine.create(NS, "s1", STATION.kind, "found")
    site.plant.hold()
    await engine.create(NS, "p1", PUMPS.kind, "build", parent="s1")
    for given in (None, "monday"):
        with pytest.raises(NoneAllowed) as caught:
            await wholes.submit(engine, engine.request(NS, "s1", "pump", key=given))
        assert list(caught.value.skipped) == ["p1"]
    with pytest.raises(RefusedBefore) as repeated:
        await wholes.submit(engine, engine.request(NS, "s1", "pump", key="monday"))
    assert (repeated.value.code, str(repeated.value)) == (NoneAllowed.code, str(caught.value))
    site.plant.release()


async def station_with_pump(site: ServerHarness, station: str, pump: str) -> None:
    await site.engine.create(NS, station, STATION.kind, "found", labels={"team": "shop"})
    built = await site.engine.create(NS, pump, PUMPS.kind, "build", parent=station)
    await site.engine.wait(NS, built.op.id, 30)


@pytest.mark.parametrize("kind", [STATION.kind, None])
async def test_a_bulk_action_repeated_under_its_key_acts_on_no_composite_that_was_created_since(
    site: ServerHarness, kind: str | None
) -> None:
    wholes, engine = CompositeActions([Stations([])]), site.engine
    await station_with_pump(site, "s1", "p1")
    shop = Selector(NS, kind, labels=(("team", "shop"),))
    loose = await engine.create(NS, "loose", PUMPS.kind, "build", labels={"team": "shop"})
    await engine.wait(NS, loose.op.id, 30)
    first = await wholes.submit_group(engine, None, shop, engine.request(NS, "", "pump", key="ann monday"))
    acted_on = {"s1"} if kind else {"s1", "loose"}
    assert ({one.object.id for one in first.begun}, first.again) == (acted_on, False)
    for one in first.begun:
        await engine.wait(NS, one.op.id, 30)
    await station_with_pump(site, "s2", "p2")
    later = await engine.create(NS, "later", PUMPS.kind, "build", labels={"team": "shop"})
    await engine.wait(NS, later.op.id, 30)
    again = await wholes.submit_group(engine, None, shop, engine.request(NS, "", "pump", key="ann monday"))
    assert again.again
    assert {one.op.id for one in again.begun} <= {one.op.id for one in first.begun}
    for name in ("s2", "later"):
        done = await engine.store.reader.operations_of(Key(NS, name), 10)
        assert [one.action for one in done] in ([], ["build"]), name
    assert site.plant.done["pump"] == len(acted_on)


async def test_a_bulk_action_that_was_cut_off_acts_on_the_composites_that_it_chose_when_it_is_repeated(
    site: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    wholes, engine = CompositeActions([Stations([])]), site.engine
    await station_with_pump(site, "s1", "p1")
    await station_with_pump(site, "s2", "p2")
    shop = Selector(NS, STATION.kind, states=("quiet",))
    group = engine.group

    async def die_before_the_second(whole: Request | None, *others: Any, **how: Any) -> GroupVerdict:
        if whole is not None and whole.object == "s2":
            raise ConnectionResetError
        return await group(whole, *others, **how)

    monkeypatch.setattr(engine, "group", die_before_the_second)
    with pytest.raises(ConnectionResetError):
        await wholes.submit_group(engine, None, shop, engine.request(NS, "", "pump", key="ann monday"))
    monkeypatch.undo()
    await station_with_pump(site, "s3", "p3")
    again = await wholes.submit_group(engine, None, shop, engine.request(NS, "", "pump", key="ann monday"))
    assert {one.object.id: one.again for one in again.begun} == {"s1": True, "s2": False}


async def test_a_bulk_action_that_all_composites_refused_stays_refused_under_its_key(site: ServerHarness) -> None:
    wholes, engine = CompositeActions([Stations([])]), site.engine
    await engine.create(NS, "s1", STATION.kind, "found")
    shop = Selector(NS, STATION.kind)
    with pytest.raises(NoneAllowed) as first:
        await wholes.submit_group(engine, None, shop, engine.request(NS, "", "pump", key="ann monday"))
    await station_with_pump(site, "s2", "p2")
    with pytest.raises(RefusedBefore) as again:
        await wholes.submit_group(engine, None, shop, engine.request(NS, "", "pump", key="ann monday"))
    assert str(again.value) == str(first.value)


class EmptyStations(Stations):
    def acts_without_parts(self, request: Request, found: Object) -> bool:
        return True


async def test_a_composite_without_parts_that_can_act_alone_does_so_with_a_key_as_without(site: ServerHarness) -> None:
    wholes, engine = CompositeActions([EmptyStations([])]), site.engine
    for number, given in enumerate((None, "ann monday")):
        await engine.create(NS, f"s{number}", STATION.kind, "found")
        begun = await wholes.submit(engine, engine.request(NS, f"s{number}", "pump", key=given))
        assert begun.operation is not None
    again = await wholes.submit(engine, engine.request(NS, "s1", "pump", key="ann monday"))
    assert (again.op.id, again.again) == (begun.op.id, True)


async def test_a_group_that_was_refused_under_a_key_stays_refused_under_it(tmp_path: Path) -> None:
    async with open_full_server(tmp_path) as full_server:
        await made(full_server)
        resume = f"/ns/{NS}/objects/m1/actions/resume"
        refused = await full_server.post(resume, **key("friday"))
        assert refused.status_code == 409, refused.text
        suspended = await full_server.post(f"/ns/{NS}/objects/m1/actions/suspend?wait=60", **key("saturday"))
        assert suspended.status_code == 200, suspended.text
        again = await full_server.post(resume, **key("friday"))
        assert (verdict(again), again.json()["detail"]) == (verdict(refused), refused.json()["detail"])
        assert (await full_server.post(f"{resume}?wait=60", **key("sunday"))).status_code == 200
