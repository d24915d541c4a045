"""Rules of the engine in every order of two actions on two servers: limits, groups, and steps side by side."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from msgspec import Struct
from msgspec.json import decode

from stateward.engine import Engine, Handler, Job, Kind, Permanent, Request
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.lifecycle import (
    BACK,
    CLOCK,
    CONTROLLER,
    GONE,
    MINUTE,
    NEW,
    STABLE,
    TRANSITIONAL,
    USER,
    State,
    action,
    declare,
    failure,
    request,
    step,
    success,
    timeout,
)
from stateward.store.filters import JournalFilter, Page, Selector
from stateward.store.records import Key, Object
from stateward.testing import InterleavingRun, interleave_everywhere

NS = "n"


class Part(State):
    MAKING = "making", TRANSITIONAL
    UP = "up", STABLE
    ENDING = "ending", TRANSITIONAL
    DOWN = "down", STABLE


ROWS = [
    step(NEW, "add", USER, Part.UP),
    step(Part.UP, "remove", USER, GONE),
    action(NEW, "make", USER, Part.MAKING, Part.UP, Part.DOWN, MINUTE),
    action(Part.UP, "end", USER, Part.ENDING, Part.DOWN, BACK, MINUTE),
]
PART = declare("part", Part, ROWS, by=USER)
WHOLE = declare("whole", Part, ROWS, by=USER)


async def succeed(job: Job) -> None:
    """Do nothing."""


HANDLERS = {"make": Handler(succeed), "end": Handler(succeed)}


class Opened(Struct):
    """Servers on one store."""

    engines: list[Engine]


def servers(kinds: Callable[[], Iterable[Kind]], *wholes: str) -> Callable[[InterleavingRun], Awaitable[Opened]]:
    async def setup(run: InterleavingRun) -> Opened:
        opened = Opened([await run.start(kinds) for _ in range(2)])
        for name in wholes:
            await opened.engines[0].run(NS, name, "make", kind="whole")
        return opened

    return setup


def make_part(number: int, name: str, parent: str | None = None) -> Callable[[Opened], Awaitable[None]]:
    async def make(opened: Opened) -> None:
        await opened.engines[number].create(NS, name, "part", "make", parent=parent)

    return make


async def parts(opened: Opened) -> list[Object]:
    return await opened.engines[0].store.reader.list_objects(Selector(NS, "part"), Page(None, 100))


# --- a limit ---------------------------------------------------------------------------------------------------------


async def one_part_only(uow: UnitOfWork, request: Request, found: Object) -> None:
    if request.action == "make" and await uow.select(Selector(found.ns, "part")):
        raise BadInput("id", found.id, "the only part")


def limit_of_one(request: Request, found: Object | None) -> list[Key]:
    del found
    return [Key(request.ns, "limit of parts")]


async def at_most_one_part(opened: Opened) -> None:
    assert len(await parts(opened)) <= 1


def test_limit_that_is_counted_under_a_locked_key_holds() -> None:
    def kinds() -> list[Kind]:
        return [Kind(PART, HANDLERS, guard=one_part_only, lock_set=limit_of_one)]

    interleave_everywhere(make_part(0, "a"), make_part(1, "b"), [at_most_one_part], setup=servers(kinds))


# --- a group ---------------------------------------------------------------------------------------------------------


async def lock_whole(uow: UnitOfWork, request: Request, found: Object) -> None:
    del found
    if request.creates is not None and request.creates.parent is not None:
        key = Key(request.ns, request.creates.parent)
        await uow.load([key])
        if uow.objects[key].state != Part.UP:
            raise BadInput("parent", key.id, "a whole that is up")


async def end_whole(opened: Opened) -> None:
    engine = opened.engines[0]
    whole, each = engine.request(NS, "whole", "end"), engine.request(NS, "", "end")
    await engine.group(whole, Selector(NS, "part", "whole"), each)


async def no_part_outlives_its_whole(opened: Opened) -> None:
    whole = await opened.engines[0].record(NS, "whole")
    left = [one.id for one in await parts(opened) if one.state != Part.DOWN]
    assert whole.state != Part.DOWN or not left, left


def test_action_on_a_whole_reaches_the_parts_that_were_added_meanwhile() -> None:
    def kinds() -> list[Kind]:
        return [Kind(PART, HANDLERS, guard=lock_whole), Kind(WHOLE, HANDLERS)]

    async def setup(run: InterleavingRun) -> Opened:
        opened = await servers(kinds, "whole")(run)
        await opened.engines[0].create(NS, "first", "part", "add", parent="whole")
        return opened

    async def add_part(opened: Opened) -> None:
        await opened.engines[1].create(NS, "second", "part", "add", parent="whole")

    interleave_everywhere(end_whole, add_part, [no_part_outlives_its_whole], setup=setup)


# --- protection ------------------------------------------------------------------------------------------------------


async def remove_part(opened: Opened) -> None:
    await opened.engines[0].act(NS, "first", "remove")


async def protect_whole(opened: Opened) -> None:
    await opened.engines[1].protect(NS, "whole", "in use")


async def nothing_is_removed_after_its_protection(opened: Opened) -> None:
    lines = await opened.engines[0].store.reader.journal(0, 1000, JournalFilter())
    protected = [line.seq for line in lines if line.object == "whole" and "protect" in line.event]
    removed = [line.seq for line in lines if line.object == "first" and line.target == GONE.word]
    assert not protected or not removed or removed[0] < protected[0]


def test_nothing_is_removed_once_what_it_belongs_to_is_protected() -> None:
    async def setup(run: InterleavingRun) -> Opened:
        opened = await servers(lambda: [Kind(PART, HANDLERS), Kind(WHOLE, HANDLERS)], "whole")(run)
        await opened.engines[0].create(NS, "first", "part", "add", parent="whole")
        return opened

    interleave_everywhere(remove_part, protect_whole, [nothing_is_removed_after_its_protection], setup=setup)


# --- steps side by side ----------------------------------------------------------------------------------------------

STEPS = ("one", "two", "three")


async def run_steps(job: Job) -> None:
    async with asyncio.TaskGroup() as group:
        for name in STEPS:
            group.create_task(job.once(name, partial(asyncio.sleep, 0, name)))


async def make_first(opened: Opened) -> None:
    await opened.engines[0].run(NS, "a", "make", kind="part")


async def all_steps_are_stored(opened: Opened) -> None:
    found = await opened.engines[0].store.reader.operations_of(Key(NS, "a"), 1)
    assert set(STEPS) <= set(decode(found[0].steps))


def test_steps_side_by_side_are_all_stored() -> None:
    def kinds() -> list[Kind]:
        return [Kind(PART, {"make": Handler(run_steps), "end": Handler(succeed)})]

    interleave_everywhere(make_first, make_part(1, "b"), [all_steps_are_stored], setup=servers(kinds))


class Stage(State):
    FETCHING = "fetching", TRANSITIONAL
    BUILDING = "building", TRANSITIONAL
    READY = "ready", STABLE
    FAILED = "failed", STABLE


STAGES = declare(
    "part",
    Stage,
    [
        request(NEW, "make", USER, Stage.FETCHING, Stage.READY, Stage.FAILED, MINUTE),
        step(Stage.FETCHING, "fetched", CONTROLLER, Stage.BUILDING, within=MINUTE),
        success(Stage.BUILDING, "built", CONTROLLER, Stage.READY),
        failure(Stage.FETCHING | Stage.BUILDING, "spoilt", CONTROLLER, Stage.FAILED),
        timeout(Stage.FETCHING | Stage.BUILDING, Stage.FAILED),
    ],
    by=USER | CONTROLLER | CLOCK,
)


def test_step_next_to_a_phase_is_undone() -> None:
    undone: list[str] = []

    async def undo(name: str) -> None:
        undone.append(name)

    async def run(job: Job) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(job.once("create", partial(asyncio.sleep, 0, "machine"), undo=undo))
            await job.phase("fetched", CONTROLLER)
        raise Permanent("no")

    async def setup(start: InterleavingRun) -> Opened:
        undone.clear()
        return await servers(lambda: [Kind(STAGES, {"make": Handler(run)})])(start)

    async def make(opened: Opened) -> None:
        made = await opened.engines[0].create(NS, "a", "part", "make")
        await opened.engines[0].wait(NS, made.op.id)

    def step_is_undone(_: Opened) -> None:
        assert undone.count("machine") >= 1

    interleave_everywhere(make, make_part(1, "b"), [step_is_undone], setup=setup, most=12)
