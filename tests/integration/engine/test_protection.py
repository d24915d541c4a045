"""Deletion protection in the engine: who asks for a removal is refused; everything else goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Unpack

import pytest
from msgspec.structs import replace

from stateward.engine import Ending, Engine, Handler, Job, Kind, Request, Rules, UnitOfWork
from stateward.engine.errors import NotFound, Occupied, Protected
from stateward.engine.protection import protection_kind
from stateward.engine.requests import RequestOptions
from stateward.errors import BadInput
from stateward.lifecycle import (
    BACK,
    CLOCK,
    CONTROLLER,
    FORCE,
    GONE,
    MINUTE,
    NEW,
    STABLE,
    TRANSITIONAL,
    USER,
    State,
    declare,
    failure,
    request,
    step,
    success,
    timeout,
)
from stateward.store import open_store
from stateward.store.filters import Page, Selector
from stateward.store.port import Store
from stateward.store.records import Key, Object, Status
from tests.integration.engine.conftest import Site
from tests.integration.engine.pump_kinds import PUMP, STATION, Plant
from tests.integration.postgres_helpers import looking_at, until_somebody_waits


async def refusal(site: Site, name: str = "p1", **how: Unpack[RequestOptions]) -> Protected:
    with pytest.raises(Protected) as caught:
        await site.engine.act("ns", name, "scrap", **how)
    return caught.value


async def test_a_protected_object_is_not_removed_even_with_force(site: Site) -> None:
    await site.built("p1")
    await site.engine.protect("ns", "p1", "holds the audit data", who="ann")
    error = await refusal(site)
    assert (error.holder, error.reason) == ("p1", "holds the audit data")
    assert str(error) == (
        "'scrap' would remove 'p1', or parts of it, and object 'p1' is protected (holds the audit data);"
        " `stateward unprotect p1 -n ns` lifts the protection"
    )
    await refusal(site, facts={FORCE})
    assert (await site.engine.get("ns", "p1")).protected == "holds the audit data"
    await site.ended(await site.engine.act("ns", "p1", "pump"))
    await site.engine.protect("ns", "p1", None)
    await site.ended(await site.engine.act("ns", "p1", "scrap"))
    assert await site.state("p1") == "scrapped"


async def test_the_journal_says_who_protected_an_object_and_who_lifted_it(site: Site) -> None:
    await site.built("p1", labels={"team": "web"})
    await site.engine.protect("ns", "p1", who="ann")
    await site.engine.protect("ns", "p1", who="ann")
    shown = await site.engine.get("ns", "p1")
    assert (shown.protected, shown.labels) == ("yes", {"team": "web"})
    await site.engine.protect("ns", "p1", None, who="bob")
    assert (await site.engine.get("ns", "p1")).labels == {"team": "web"}
    entries = [(one.event, one.who, one.reason) for one in await site.engine.history("ns", "p1")]
    assert entries[-2:] == [("protect", "ann", "yes"), ("unprotect", "bob", None)]


async def test_what_is_below_a_protected_object_is_protected(site: Site) -> None:
    await site.engine.create("ns", "s1", STATION.kind, "found")
    await site.engine.create("ns", "s2", STATION.kind, "found", parent="s1")
    await site.built("p1", parent="s2")
    await site.built("p2")
    await site.engine.protect("ns", "s1")
    assert (await refusal(site)).holder == "s1"
    await site.ended(await site.engine.act("ns", "p2", "scrap"))


async def test_a_protected_namespace_protects_all_of_its_objects(site: Site) -> None:
    await site.built("p1")
    assert await site.engine.protect_namespace("ns", "freeze before the release", who="ann") == (
        "freeze before the release"
    )
    error = await refusal(site)
    assert error.holder is None
    assert "stateward unprotect --namespace-flag -n ns" in str(error)
    await site.built("p2")
    assert await site.engine.protect_namespace("ns", None) == ""
    await site.ended(await site.engine.act("ns", "p1", "scrap"))
    entries = await site.engine.history("(system)", "protection-ns")
    assert [(one.event, one.who) for one in entries] == [("protect", "ann"), ("unprotect", "")]


async def test_a_flag_ends_with_its_object(site: Site) -> None:
    await site.built("p1")
    await site.ended(await site.engine.act("ns", "p1", "scrap"))
    await site.engine.protect("ns", "p1")
    with pytest.raises(Protected):
        await site.engine.act("ns", "p1", "forget")
    await site.engine.protect("ns", "p1", None)
    await site.engine.act("ns", "p1", "forget")
    with pytest.raises(NotFound):
        await site.engine.protect("ns", "p1")
    await site.built("p1")
    assert (await site.engine.get("ns", "p1")).protected == ""


async def test_an_object_that_is_being_removed_cannot_be_protected(site: Site) -> None:
    await site.built("p1")
    site.plant.hold()
    pumping = await site.engine.act("ns", "p1", "pump")
    await site.engine.protect("ns", "p1", "a removal has not begun")
    await site.engine.protect("ns", "p1", None)
    site.plant.release()
    await site.ended(pumping)
    site.plant.hold()
    removal = await site.engine.act("ns", "p1", "scrap")
    with pytest.raises(Occupied, match=removal.op.id):
        await site.engine.protect("ns", "p1", "too late")
    assert (await site.engine.get("ns", "p1")).protected == ""
    site.plant.release()
    await site.ended(removal)


async def test_a_group_skips_protected_members_and_is_refused_if_all_are(site: Site) -> None:
    for name in ("p1", "p2"):
        await site.built(name)
    await site.engine.protect("ns", "p1")
    scrap = site.engine.request("ns", "", "scrap")
    pumps = Selector("ns", PUMP.kind)
    verdict = await site.engine.group(None, pumps, scrap)
    assert [one.object.id for one in verdict.begun] == ["p2"]
    assert isinstance(verdict.skipped["p1"], Protected)
    await site.ended(verdict.begun[0])
    with pytest.raises(Protected):
        await site.engine.group(None, Selector("ns", ids=("p1",)), scrap)
    assert [type(one) for one in await site.engine.plan([site.engine.request("ns", "p1", "scrap")])] == [Protected]


async def test_a_reason_is_a_short_text(site: Site) -> None:
    await site.built("p1")
    for unfit in ("x" * 251, "two\nlines"):
        with pytest.raises(BadInput):
            await site.engine.protect("ns", "p1", unfit)
        with pytest.raises(BadInput):
            await site.engine.protect_namespace("ns", unfit)
    assert await site.engine.store.reader.object(Key("(system)", "protection-ns")) is None


@pytest.mark.parametrize("flag", ["parent", "namespace"])
async def test_no_removal_is_accepted_after_protection_was_confirmed(postgres_dsn: str, flag: str) -> None:
    """A removal has read the flags, and is not committed yet, when another process protects the object."""
    plant = Plant()
    reached, gate = asyncio.Event(), asyncio.Event()

    async def wait_at_gate(_uow: UnitOfWork, asked: Request, _found: Object) -> None:
        if asked.action == "scrap":
            reached.set()
            await gate.wait()

    kinds = [replace(plant.pump(), guard=wait_at_gate), plant.station(), protection_kind()]
    async with (
        Engine(open_store(postgres_dsn, migrate=True), kinds) as remover,
        Engine(open_store(postgres_dsn), kinds, works=False) as protector,
        looking_at(postgres_dsn) as connection,
    ):
        await remover.create("ns", "s1", STATION.kind, "found")
        await remover.wait("ns", (await remover.create("ns", "p1", PUMP.kind, "build", parent="s1")).op.id, 30)
        order: list[str] = []
        removing = asyncio.create_task(remover.act("ns", "p1", "scrap"))
        removing.add_done_callback(lambda _: order.append("removal accepted"))
        await reached.wait()
        protect = protector.protect("ns", "s1") if flag == "parent" else protector.protect_namespace("ns")
        protecting = asyncio.ensure_future(finish(protect))
        protecting.add_done_callback(lambda _: order.append("protected"))
        waiting = asyncio.create_task(until_somebody_waits(connection))
        await asyncio.wait({protecting, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        gate.set()
        await removing
        await protecting
        assert order == ["removal accepted", "protected"]


async def finish(work: Awaitable[object]) -> None:
    await work


class Crate(State):
    FULL = "full", STABLE
    EMPTYING = "emptying", TRANSITIONAL


CRATE_ROWS = (
    step(   NEW,            "pack",  USER,                              Crate.FULL),
    request(Crate.FULL,     "empty", USER | CONTROLLER, Crate.EMPTYING, GONE, BACK, 1 * MINUTE),
    success(Crate.EMPTYING, "gone",  CONTROLLER,                        GONE),
    failure(Crate.EMPTYING, "left",  CONTROLLER,                        Crate.FULL),
    timeout(Crate.EMPTYING,                                             Crate.FULL),
)  # fmt: skip
CRATE = declare("test.crate", Crate, CRATE_ROWS, USER | CONTROLLER | CLOCK)


async def packed(engine: Engine) -> list[str]:
    """Make three crates inside of each other, and return their names, the outermost first."""
    await engine.create("ns", "c0", CRATE.kind, "pack")
    await engine.create("ns", "c1", CRATE.kind, "pack", parent="c0")
    await engine.create("ns", "c2", CRATE.kind, "pack", parent="c1")
    return ["c0", "c1", "c2"]


def crates(gate: asyncio.Event) -> Kind:
    """Return the kind of crates, which are emptied with what is in them once the gate is open."""
    inside = {"c0": ["c1"], "c1": ["c2"]}

    async def empty(job: Job) -> Ending:
        await gate.wait()
        denied = await job.spawn("inner", [Request(job.ns, one, "empty", "") for one in inside.get(job.object, ())])
        failed = [one for one in await job.children("inner") if one.status is not Status.SUCCEEDED]
        return Ending("left" if denied or failed else "gone", CONTROLLER)

    return Kind(CRATE, {"empty": Handler(empty)}, rules=Rules(removes_below=("empty",)))


async def test_an_object_is_not_removed_that_takes_a_protected_one_along(new_store: Callable[[], Store]) -> None:
    gate = asyncio.Event()
    gate.set()
    async with Engine(new_store(), [crates(gate)]) as engine:
        *outer, inmost = await packed(engine)
        await engine.protect("ns", inmost, "holds the audit data")
        for name in outer:
            with pytest.raises(Protected, match=inmost):
                await engine.act("ns", name, "empty")
        await engine.protect("ns", inmost, None)
        await engine.run("ns", outer[0], "empty")
        assert await engine.store.reader.list_objects(Selector("ns"), Page(None, 10)) == []


async def test_what_is_protected_while_a_removal_begins_stays_however_deep(
    new_store: Callable[[], Store],
) -> None:
    gate = asyncio.Event()
    async with Engine(new_store(), [crates(gate)]) as engine:
        names = await packed(engine)
        accepted = await engine.act("ns", names[0], "empty")
        await engine.protect("ns", names[-1])
        gate.set()
        assert (await engine.wait("ns", accepted.op.id, 30)).status is Status.FAILED
        assert [(await engine.get("ns", name)).state for name in names] == ["full"] * 3
