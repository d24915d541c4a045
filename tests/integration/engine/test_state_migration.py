"""State migration: stored states of an older lifecycle are migrated by a checked mapping, or refused."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.engine import Engine, Handler, Job, Kind
from stateward.engine.kinds import Kinds
from stateward.engine.maintenance import state_migration
from stateward.engine.maintenance.state_migration import UnknownStates, WorkersRunning, migrate_states
from stateward.errors import BadInput
from stateward.lifecycle import BACK, MINUTE, NEW, STABLE, TRANSITIONAL, USER, State, action, declare
from stateward.store.changes import Changes
from stateward.store.port import Store, Tx
from stateward.store.records import Key, Status, WorkerRecord

NewStore = Callable[[], Store]


class Before(State):
    MAKING = "making", TRANSITIONAL
    OFF = "off", STABLE
    DIMMED = "dimmed", STABLE
    GLOWING = "glowing", TRANSITIONAL


class Now(State):
    MAKING = "making", TRANSITIONAL
    DARK = "dark", STABLE
    SHINING = "shining", TRANSITIONAL


B, N = Before, Now

BEFORE = declare("test.lamp", Before, (
    #      from      action   by    through    to        on error  within
    action(NEW,      "make",  USER, B.MAKING,  B.OFF,    B.OFF,    MINUTE),
    action(B.OFF,    "dim",   USER, B.MAKING,  B.DIMMED, B.OFF,    MINUTE),
    action(B.OFF,    "glow",  USER, B.GLOWING, B.OFF,    BACK,     MINUTE),
    action(B.DIMMED, "glow",  USER, B.GLOWING, B.OFF,    BACK,     MINUTE),
), USER)  # fmt: skip

NOW = declare("test.lamp", Now, (
    action(NEW,      "make",  USER, N.MAKING,  N.DARK,   N.DARK,   MINUTE),
    action(N.DARK,   "glow",  USER, N.SHINING, N.DARK,   BACK,     MINUTE),
), USER)  # fmt: skip

WHOLE = {"test.lamp": {"off": "dark", "dimmed": "dark", "glowing": "shining"}}


async def nothing(_: Job) -> None: ...


def before() -> Kind:
    return Kind(BEFORE, {"make": Handler(nothing), "dim": Handler(nothing), "glow": Handler(nothing)})


def now() -> Kind:
    return Kind(NOW, {"make": Handler(nothing), "glow": Handler(nothing)})


@pytest.fixture
async def left_behind(new_store: NewStore) -> NewStore:
    """Leave lamps behind as the former version did: one off, one dimmed, one whose glowing was accepted."""
    async with Engine(new_store(), [before()]) as engine:
        for name in ("a", "b", "c"):
            await engine.wait("ns", (await engine.create("ns", name, "test.lamp", "make")).op.id, 30)
        await engine.wait("ns", (await engine.act("ns", "b", "dim")).op.id, 30)
    async with Engine(new_store(), [before()], works=False) as engine:
        await engine.act("ns", "c", "glow")
    return new_store


async def test_a_database_with_states_that_are_gone_is_refused_and_tells_which(left_behind: NewStore) -> None:
    with pytest.raises(UnknownStates) as raised:
        async with Engine(left_behind(), [now()]):
            pass
    assert raised.value.counts == {f"test.lamp:{state}": 1 for state in ("off", "dimmed", "glowing")}
    assert "--map test.lamp:dimmed=NEW" in str(raised.value)


async def test_mapped_objects_go_on_and_so_does_the_operation_that_was_under_way(left_behind: NewStore) -> None:
    store = left_behind()
    await store.open()
    done = await migrate_states(store, Kinds([now()]), WHOLE, "ann")
    await store.close()
    assert done == {("test.lamp", state): 1 for state in ("off", "dimmed", "glowing")}
    async with Engine(left_behind(), [now()]) as engine:
        (glow,) = [one for one in await engine.store.reader.operations_of((await engine.get("ns", "c")).key, 9)
                   if one.action == "glow"]  # fmt: skip
        assert (await engine.wait("ns", glow.id, 30)).status is Status.SUCCEEDED
        assert [(await engine.get("ns", name)).state for name in ("a", "b", "c")] == ["dark"] * 3
        (line,) = [one for one in await engine.history("ns", "b") if one.event == "recast"]
        assert (line.source, line.target, line.who) == ("dimmed", "dark", "ann")


@pytest.mark.parametrize(
    ("mapped", "error"),
    [
        ({"off": "dark", "dimmed": "dark"}, UnknownStates),
        ({"off": "dark", "glowing": "shining"}, UnknownStates),
        ({"off": "dark", "dimmed": "dark", "glowing": "dark"}, BadInput),
        ({"off": "shining", "dimmed": "dark", "glowing": "shining"}, BadInput),
        ({"off": "bright", "dimmed": "dark", "glowing": "shining"}, BadInput),
        ({"off": "dark", "dimmed": "dark", "glowing": "shining", "dark": "shining"}, BadInput),
    ],
)
async def test_a_mapping_that_would_strand_anything_is_refused_and_changes_nothing(
    left_behind: NewStore, mapped: dict[str, str], error: type[Exception]
) -> None:
    store = left_behind()
    await store.open()
    with pytest.raises(error):
        await migrate_states(store, Kinds([now()]), {"test.lamp": mapped})
    await store.close()
    async with Engine(left_behind(), [before()], works=False) as engine:
        assert [(await engine.get("ns", name)).state for name in ("a", "b", "c")] == ["off", "dimmed", "glowing"]


async def test_nothing_is_mapped_under_a_worker_that_is_still_at_work(new_store: NewStore) -> None:
    async with Engine(new_store(), [before()], lease_s=30.0):
        store = new_store()
        await store.open()
        with pytest.raises(WorkersRunning):
            await migrate_states(store, Kinds([now()]), WHOLE)
        await store.close()


async def start_old_worker(tx: Tx) -> None:
    await tx.heartbeat(WorkerRecord("old/1", 60.0, 0.0, "host", 1))


async def begin_work_on_a(tx: Tx) -> None:
    key = Key("ns", "a")
    found = (await tx.objects([key]))[key]
    await tx.apply(Changes(objects=[replace(found, op="begun", version=found.version + 1)]))


@pytest.mark.parametrize(("meanwhile", "error"), [(start_old_worker, WorkersRunning), (begin_work_on_a, BadInput)])
async def test_what_changes_between_the_check_and_the_migration_is_checked_again(
    left_behind: NewStore,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[Tx], Awaitable[None]],
    error: type[Exception],
) -> None:
    store, write = left_behind(), state_migration._write
    await store.open()

    async def write_late(tx: Tx, *args: Any) -> Any:
        await meanwhile(tx)
        return await write(tx, *args)

    monkeypatch.setattr(state_migration, "_write", write_late)
    with pytest.raises(error):
        await migrate_states(store, Kinds([now()]), WHOLE)
    found = await store.reader.object(Key("ns", "a"))
    assert found is not None
    assert found.state == "off"
    await store.close()
