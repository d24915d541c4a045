"""Two servers that create the same object at the same time: one of them does, in every order of their statements."""

from collections.abc import Awaitable, Callable

from stateward.engine import Engine, Handler, Job, Kind, Request
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import BACK, MINUTE, NEW, STABLE, TRANSITIONAL, USER, State, action, declare
from stateward.store.filters import Selector
from stateward.store.records import Object
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
        action(NEW, "make", USER, Lamp.MAKING, Lamp.OFF, Lamp.OFF, MINUTE),
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
