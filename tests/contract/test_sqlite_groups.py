"""Group commit: functions are committed together, readers do not wait, and a failed function harms no other."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stateward.store import Changes, Selector, Tx
from stateward.store.errors import Unavailable
from stateward.store.sqlite import SqliteStore
from stateward.store.sqlite.transactions import AnyTxFunction, TxOutcome
from tests.contract.samples import NS, an_entry, an_object, key
from tests.contract.store_calls import TopicRecorder, ask, write


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """Give a store on a file."""
    store = SqliteStore(tmp_path / "stateward.db")
    await store.open()
    yield store
    await store.close()


class Gate:
    """A function that holds the writer until it is let go."""

    def __init__(self, store: SqliteStore) -> None:
        self._entered = threading.Event()
        self._open = threading.Event()
        self.task = asyncio.ensure_future(store.transact(self._hold))

    async def reached(self) -> None:
        """Return when the writer is held."""
        await asyncio.to_thread(self._entered.wait)

    def let_go(self) -> None:
        """Let the writer go on."""
        self._open.set()

    async def _hold(self, tx: Tx) -> None:
        await tx.apply(Changes(objects=[an_object("held")]))
        self._entered.set()
        self._open.wait()


def adding(name: str, failure: Exception | None = None) -> Callable[[Tx], Any]:
    """Make a function that adds an object, and perhaps fails after that."""

    async def function(tx: Tx) -> str:
        await tx.apply(Changes(objects=[an_object(name)], journal=[an_entry(name)]))
        if failure is not None:
            raise failure
        return name

    return function


async def states(store: SqliteStore) -> int:
    """Return how many objects there are."""
    return sum((await store.reader.count_states(Selector(NS))).values())


async def test_programs_that_wait_are_committed_together(store: SqliteStore) -> None:
    transactions = store._writer.writer_connection.transactions
    sizes: list[int] = []
    run = transactions.run

    def counting(functions: Sequence[AnyTxFunction]) -> list[TxOutcome]:
        sizes.append(len(functions))
        return run(functions)

    transactions.run = counting  # type: ignore[method-assign]
    gate = Gate(store)
    await gate.reached()
    waiting = [asyncio.ensure_future(store.transact(adding(f"o{number}"))) for number in range(50)]
    await asyncio.sleep(0)
    gate.let_go()
    assert await asyncio.gather(*waiting) == [f"o{number}" for number in range(50)]
    await gate.task
    assert sizes == [1, 50]


async def test_each_of_a_group_gets_its_own_end(store: SqliteStore) -> None:
    gate = Gate(store)
    await gate.reached()
    failures = {number: ValueError(number) for number in range(0, 30, 4)}
    waiting = [asyncio.ensure_future(store.transact(adding(f"o{n}", failures.get(n)))) for n in range(30)]
    await asyncio.sleep(0)
    gate.let_go()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert ends == [failures.get(number, f"o{number}") for number in range(30)]
    assert await states(store) == 30 - len(failures) + 1
    assert await store.reader.last_journal_seq() >= 22


async def test_readers_do_not_wait_for_the_writer_and_see_nothing_unfinished(store: SqliteStore) -> None:
    await write(store, objects=[an_object("before")])
    gate = Gate(store)
    await gate.reached()
    assert await store.reader.object(key("before")) is not None
    assert await store.reader.object(key("held")) is None
    gate.let_go()
    await gate.task
    assert await store.reader.object(key("held")) is not None


async def test_a_program_whose_caller_gave_up_before_its_turn_is_not_run(store: SqliteStore) -> None:
    gate = Gate(store)
    await gate.reached()
    given_up = asyncio.ensure_future(store.transact(adding("given up")))
    kept = asyncio.ensure_future(store.transact(adding("kept")))
    await asyncio.sleep(0)
    given_up.cancel()
    gate.let_go()
    assert await kept == "kept"
    await gate.task
    assert await store.reader.object(key("given up")) is None


async def test_a_program_whose_caller_gives_up_while_it_runs_is_finished(store: SqliteStore) -> None:
    gate = Gate(store)
    await gate.reached()
    gate.task.cancel()
    gate.let_go()
    await write(store, objects=[an_object("next")])
    assert await store.reader.object(key("held")) is not None


async def test_closing_finishes_what_is_queued(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "x.db")
    await store.open()
    waiting = [asyncio.ensure_future(store.transact(adding(f"o{number}"))) for number in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*waiting) == [f"o{number}" for number in range(20)]
    with pytest.raises(Unavailable, match="closed"):
        await store.transact(adding("too late"))


async def test_a_program_may_await_nothing_but_its_transaction(store: SqliteStore) -> None:
    async def waits(tx: Tx) -> None:
        await tx.apply(Changes(objects=[an_object("a")]))
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="nothing but methods of its transaction"):
        await store.transact(waits)
    assert await store.reader.object(key("a")) is None
    await write(store, objects=[an_object("b")])


async def test_a_lone_program_that_fails_after_writing_is_run_once(store: SqliteStore) -> None:
    runs: list[None] = []

    async def fails(tx: Tx) -> None:
        runs.append(None)
        await tx.apply(Changes(objects=[an_object("a")]))
        raise LookupError

    with pytest.raises(LookupError):
        await store.transact(fails)
    assert len(runs) == 1
    assert await states(store) == 0


async def test_a_mistake_in_a_row_is_shown_as_it_is(store: SqliteStore) -> None:
    with pytest.raises(Exception, match="NOT NULL constraint failed"):
        await write(store, objects=[an_object("a", state=None)])
    with pytest.raises(Exception, match="type 'list' is not supported"):
        await write(store, objects=[an_object("a", state=[])])
    assert await states(store) == 0


async def test_without_threads_everything_happens_on_the_spot(tmp_path: Path) -> None:
    threads = threading.active_count()
    for place in (tmp_path / "x.db", ":memory:"):
        store = SqliteStore(place, inline=True)
        await store.open()
        ear = TopicRecorder(store)
        await store.transact(adding("a"))
        assert ear.heard
        assert await store.reader.object(key("a")) == an_object("a")
        with pytest.raises(LookupError):
            await store.transact(adding("b", LookupError()))
        assert list(await ask(store, "objects", [key("a"), key("b")])) == [key("a")]
        assert threading.active_count() == threads
        await store.close()
        with pytest.raises(Unavailable):
            await store.reader.object(key("a"))


async def test_a_database_in_memory_starts_empty_and_knows_that_it_is_alone() -> None:
    for _ in range(2):
        store = SqliteStore(":memory:")
        await store.open()
        assert await store.is_sole_user()
        assert await states(store) == 0
        await store.transact(adding("a"))
        await store.close()


async def test_the_clock_is_the_one_that_was_given() -> None:
    now = 1000.0
    store = SqliteStore(":memory:", clock=lambda: now)
    await store.open()

    async def function(tx: Tx) -> float:
        return tx.now

    assert (await store.transact(function), await store.reader.time()) == (1000.0, 1000.0)
    now = 2000.0
    assert (await store.transact(function), await store.reader.time()) == (2000.0, 2000.0)
    await store.close()
