"""Processes that share a database file detect each other."""

import asyncio
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stateward.store import Selector, Topic
from stateward.store.sqlite import SqliteStore
from stateward.store.sqlite.shared_file import (
    POLL_INTERVAL_S,
    POLLS_PER_LOCK_TEST,
    SOLE_USER_POLL_INTERVAL_S,
    ExternalChanges,
    LockFile,
)
from tests.contract.samples import NS, an_entry
from tests.contract.store_calls import TopicRecorder, write

NEIGHBOUR = """
import asyncio, sys
from stateward.store.sqlite import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    print(await store.is_sole_user(), flush=True)
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


DILIGENT = """
import asyncio, sys
from stateward.store.sqlite import SqliteStore
from tests.contract.store_calls import write
from tests.contract.samples import an_entry, an_object

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    for number in range(1_000_000):
        await write(store, objects=[an_object(f"o{number}")], journal=[an_entry(f"o{number}")])
        print(number, flush=True)

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give the place of a database."""
    return tmp_path / "stateward.db"


async def opened(path: Path, **options: float) -> SqliteStore:
    """Open a store."""
    store = SqliteStore(path, **options)  # type: ignore[arg-type]
    await store.open()
    return store


async def test_who_opens_a_file_first_is_alone(path: Path) -> None:
    store = await opened(path)
    assert await store.is_sole_user()
    assert await store.is_sole_user()
    await store.close()


async def test_two_are_not_alone_until_one_leaves(path: Path) -> None:
    first = await opened(path)
    assert await first.is_sole_user()
    second = await opened(path)
    assert not await second.is_sole_user()
    assert not await first.is_sole_user()
    await second.close()
    assert await first.is_sole_user()
    third = await opened(path)
    assert not await first.is_sole_user()
    await first.close()
    assert await third.is_sole_user()
    await third.close()


async def test_nobody_ever_finds_to_be_alone_while_there_are_two(path: Path) -> None:
    first, second = await opened(path), await opened(path)
    found = await asyncio.gather(*(store.is_sole_user() for store in (first, second) * 50))
    assert not any(found)
    await asyncio.gather(first.close(), second.close())


async def test_another_process_is_noticed_and_so_is_its_death(path: Path) -> None:
    store = await opened(path)
    neighbour = await asyncio.create_subprocess_exec(
        sys.executable, "-c", NEIGHBOUR, str(path), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert neighbour.stdout is not None
    assert await neighbour.stdout.readline() == b"False\n"
    assert not await store.is_sole_user()
    neighbour.send_signal(signal.SIGKILL)
    await neighbour.communicate()
    assert await store.is_sole_user()
    await store.close()


async def test_who_cannot_look_does_not_claim_to_be_alone(path: Path) -> None:
    first, second = await opened(path, busy_timeout_s=0.02), await opened(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert not await first.is_sole_user()
        other.execute("ROLLBACK")
    await asyncio.gather(first.close(), second.close())


async def test_who_was_alone_hears_a_newcomer(path: Path) -> None:
    first = await opened(path)
    ear = TopicRecorder(first)
    assert await first.is_sole_user()
    second = await opened(path)
    await write(second, journal=[an_entry()])
    await ear.hears(Topic.JOURNAL)
    await asyncio.gather(first.close(), second.close())


async def test_what_was_acknowledged_survives_a_kill_and_the_next_one_is_alone_at_once(path: Path) -> None:
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DILIGENT, str(path), stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert writer.stdout is not None
    for number in range(40):
        assert await writer.stdout.readline() == f"{number}\n".encode()
    writer.send_signal(signal.SIGKILL)
    rest, _ = await writer.communicate()
    last = max(39, *(int(line) for line in rest.split(b"\n")[:-1] if line), 0)
    store = await opened(path)
    assert await store.is_sole_user()
    found = sum((await store.reader.count_states(Selector(NS))).values())
    assert found in (last + 1, last + 2)
    assert await store.reader.last_journal_seq() == found
    await store.close()


@pytest.fixture
def neighbours(path: Path) -> Iterator[tuple[sqlite3.Connection, LockFile, LockFile]]:
    """Give a connection and the lock files of two who use the same database."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        mine, theirs = LockFile(path.with_suffix(".lock"), 5.0), LockFile(path.with_suffix(".lock"), 5.0)
        mine.join()
        theirs.join()
        yield connection, mine, theirs
        mine.close()


def test_who_is_left_alone_stops_looking_so_often(neighbours: tuple[sqlite3.Connection, LockFile, LockFile]) -> None:
    connection, mine, theirs = neighbours
    others = ExternalChanges(connection, mine)
    assert not any(others.detect() for _ in range(POLLS_PER_LOCK_TEST))
    assert others.interval_s == POLL_INTERVAL_S
    theirs.close()
    assert not any(others.detect() for _ in range(POLLS_PER_LOCK_TEST + 1))
    assert others.interval_s == SOLE_USER_POLL_INTERVAL_S


def test_who_cannot_look_takes_it_that_something_happened(
    neighbours: tuple[sqlite3.Connection, LockFile, LockFile], path: Path
) -> None:
    connection, mine, theirs = neighbours
    others = ExternalChanges(connection, mine)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert any(others.detect() for _ in range(POLLS_PER_LOCK_TEST))
    theirs.close()
