"""Two servers that create the same object at the same time: one of them does, in every order of their statements."""

import asyncio
from collections.abc import Awaitable, Callable

from stateward.engine import Engine, Handler, Job, Kind, Request
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import BACK, MINUTE, NEW, STABLE, TRANSITIONAL, USER, State, action, declare
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, Status
from stateward.testing import InterleavingRun, interleave_everywhere


class Lamp(State):
    MAKING = "making", TRANSITIONAL
    OFF = "off", STABLE
    LIGHTING = "lighting", TRANSITIONAL
    ON = "on", STABLE


LAMP = declare(
    "lamp",
    Lamp,
    [
        action(NEW, "make", USER, Lamp.MAKING, Lamp.OFF, Lamp.OFF, 5 * MINUTE),
        action(Lamp.OFF, "light", USER, Lamp.LIGHTING, Lamp.ON, BACK, MINUTE),
    ],
    by=USER,
)


async def guard(uow: UnitOfWork, request: Request, found: Object) -> None:
    """Load all lamps, as a guard does that counts them and changes some."""
    del request
    selected = await uow.tx.select(Selector(found.ns, "lamp"))
    await uow.load((), [one for one in selected if one.key not in uow.objects])


async def succeed(job: Job) -> None:
    """Do nothing."""


async def two_servers(run: InterleavingRun) -> list[Engine]:
    lamp = Kind(LAMP, {"make": Handler(succeed), "light": Handler(succeed)}, guard=guard)
    return [await run.start(lambda: lamp) for _ in range(2)]


def make(number: int) -> Callable[[list[Engine]], Awaitable[None]]:
    async def make_lamp(servers: list[Engine]) -> None:
        await servers[number].run("n", "hall", "make", kind="lamp")

    return make_lamp


def test_object_is_created_once_whatever_its_guard_reads() -> None:
    report = interleave_everywhere(make(0), make(1), setup=two_servers)
    assert report.refused > 0


def test_operation_accepted_while_its_server_stops_is_done_by_another() -> None:
    async def hang(job: Job) -> None:
        await asyncio.Event().wait()

    async def hanging_and_working(run: InterleavingRun) -> list[Engine]:
        kinds = [Kind(LAMP, dict.fromkeys(("make", "light"), Handler(one))) for one in (hang, succeed)]
        return [await run.start(lambda kind=kind: kind) for kind in kinds]  # type: ignore[misc]

    async def accept(servers: list[Engine]) -> None:
        await servers[0].create("n", "hall", "lamp", "make")

    async def stop(servers: list[Engine]) -> None:
        await servers[0].stop_worker()

    async def is_made(servers: list[Engine]) -> None:
        made = await servers[1].store.reader.operations_of(Key("n", "hall"), 10)
        assert all(one.status is Status.SUCCEEDED for one in made), made

    assert interleave_everywhere(accept, stop, [is_made], setup=hanging_and_working, ways=["pause"]).points > 1
