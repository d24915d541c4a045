"""Checkpoints run beside the writer: the WAL stays short, and no commit is lost."""

import asyncio
import signal
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from itertools import count as count_from
from pathlib import Path

import pytest

from stateward.server.store_backup import back_up
from stateward.store import Selector
from stateward.store.errors import Unavailable
from stateward.store.sqlite import SqliteStore, wal
from stateward.store.sqlite.wal import WalLength
from tests.contract.samples import NS, an_object
from tests.contract.store_calls import write

LOG = 16 * 4096
LARGE = "x" * 20_000
HERE = Path(__file__).parents[2]
LIMIT = 60.0
NUMBERS = count_from(1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give the place of a database."""
    return tmp_path / "stateward.db"


def log_of(path: Path) -> Path:
    """Return the log of a database."""
    return path.with_name(f"{path.name}-wal")


def salt(path: Path) -> bytes:
    """Return what is another one each time the log is begun again."""
    with log_of(path).open("rb") as log:
        return log.read(32)[16:24]


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    """Open a store with a short log and close it."""
    store = SqliteStore(path, log_bytes=LOG)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def write_until(met: Callable[[], bool], *stores: SqliteStore) -> int:
    """Have several callers per store write without a pause until something is so; return how many objects that made."""
    written = 0

    async def keep_on(store: SqliteStore) -> None:
        nonlocal written
        while not met():
            written += 1
            await write(store, objects=[an_object(f"o{next(NUMBERS)}", spec=LARGE)])

    async with asyncio.timeout(LIMIT):
        await asyncio.gather(*map(keep_on, stores * 3))
    return written


def begun_again(path: Path, times: int) -> Callable[[], bool]:
    """Return a question: whether the log has been begun again so often since the question was first asked."""
    salts: set[bytes] = set()

    def met() -> bool:
        salts.add(salt(path))
        return len(salts) > times

    return met


async def count(store: SqliteStore) -> int:
    """Return how many objects there are."""
    return sum((await store.reader.count_states(Selector(NS))).values())


async def test_a_writer_that_never_rests_does_not_keep_the_log_from_being_begun_again(path: Path) -> None:
    async with opened(path) as store:
        written = await write_until(begun_again(path, 5), store)
        assert log_of(path).stat().st_size < written * len(LARGE)
        assert await count(store) == written


async def test_several_writers_on_one_file_do_not_either(path: Path) -> None:
    async with opened(path) as first, opened(path) as second:
        written = await write_until(begun_again(path, 3), first, second)
        assert await count(first) == await count(second) == written


async def test_a_long_reader_holds_nobody_up_and_when_it_ends_the_log_shrinks(path: Path) -> None:
    async with opened(path) as store:
        before = await write_until(begun_again(path, 1), store)
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            seen = reader.execute("SELECT count(*) FROM objects").fetchone()
            during = await write_until(lambda: log_of(path).stat().st_size > 20 * LOG, store)
            assert reader.execute("SELECT count(*) FROM objects").fetchone() == seen == (before,)
            reader.execute("ROLLBACK")
        after = await write_until(lambda: log_of(path).stat().st_size <= 4 * LOG, store)
        assert await count(store) == before + during + after


async def test_a_copy_can_be_made_meanwhile(path: Path, tmp_path: Path) -> None:
    async with opened(path) as store:
        made = asyncio.ensure_future(asyncio.to_thread(back_up, path, tmp_path / "copy.db"))
        written = await write_until(made.done, store)
        assert (await made).objects <= written


async def test_closing_ends_the_thread_and_leaves_one_file_with_everything(path: Path) -> None:
    others = set(threading.enumerate())
    async with opened(path) as store:
        written = await write_until(begun_again(path, 1), store)
        threads = [one for one in threading.enumerate() if one.name == "stateward-checkpoints" and one not in others]
        assert [one.is_alive() for one in threads] == [True]
    assert [one.is_alive() for one in threads] == [False]
    assert not log_of(path).exists()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM objects").fetchone() == (written,)


async def test_a_database_behind_a_link_has_its_log_beside_the_file(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    link = folder / "link.db"
    link.symlink_to(path)
    async with opened(link) as store:
        await write_until(begun_again(path, 2), store)


DILIGENT = """
import asyncio, os, sys
from stateward.store.sqlite import SqliteStore
from stateward.store.sqlite import wal
from tests.contract.store_calls import write
from tests.contract.samples import an_object

checkpoint = wal._checkpoint

def announced(connection, mode):
    os.write(1, b"copying\\n")
    return checkpoint(connection, mode)

wal._checkpoint = announced

async def main(path, first):
    store = SqliteStore(path, log_bytes=2**22)
    await store.open()
    for number in range(int(first), 1_000_000):
        await write(store, objects=[an_object(f"o{number}", spec="x" * 20_000)])
        os.write(1, b"%d\\n" % number)

asyncio.run(main(*sys.argv[1:]))
"""


async def killed_while_copying(path: Path, first: int, turns: int) -> set[int]:
    """Have a process write, kill it in one of its checkpoints, and return the numbers that it acknowledged."""
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DILIGENT, str(path), str(first), stdout=asyncio.subprocess.PIPE, cwd=HERE
    )
    assert writer.stdout is not None
    said: list[bytes] = []
    async with asyncio.timeout(LIMIT):
        while said.count(b"copying") < turns:
            said.append((await writer.stdout.readline()).strip())
    writer.send_signal(signal.SIGKILL)
    rest, _ = await writer.communicate()
    return {int(word) for word in (*said, *rest.split()) if word != b"copying"}


async def test_whoever_is_killed_in_a_checkpoint_has_lost_nothing_that_was_acknowledged(path: Path) -> None:
    acknowledged: set[int] = set()
    for turns in (1, 2, 3):
        first = max(acknowledged, default=0) + 2  # the one after the last may be there, too
        acknowledged |= await killed_while_copying(path, first, turns)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            found = {int(name[1:]) for (name,) in connection.execute("SELECT id FROM objects")}
        assert acknowledged <= found
        assert len(found - acknowledged) <= turns


CRAMPED = """
import asyncio, logging, os, resource, sys
from stateward.store import Selector
from stateward.store.sqlite import SqliteStore
from tests.contract.store_calls import write
from tests.contract.samples import NS, an_object

class Told(logging.Handler):
    said = []
    def emit(self, record):
        self.said.append(record.getMessage())

async def main(path):
    logging.getLogger("stateward.store").addHandler(Told())
    store = SqliteStore(path, log_bytes=2**16)
    await store.open()
    written = 0

    async def more(met, size, pause):
        nonlocal written
        async with asyncio.timeout(60):
            while not met():
                await write(store, objects=[an_object(f"o{written}", spec="x" * size)])
                written += 1
                await asyncio.sleep(pause)

    await more(lambda: os.path.getsize(path) > 2**23, 200_000, 0.0)
    await more(lambda: os.path.getsize(path + "-wal") <= 2**18, 20_000, 0.01)
    room = os.path.getsize(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, -1))
    tries = []
    attempt = store._writer._checkpoints._checkpoint_passive
    store._writer._checkpoints._checkpoint_passive = lambda: (tries.append(1), attempt())[1]
    await more(lambda: Told.said, 20_000, 0.01)
    held = len(tries) + 2
    async with asyncio.timeout(60):
        while len(tries) < held:
            await asyncio.sleep(0.01)
    assert os.path.getsize(path) == room
    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
    await more(lambda: os.path.getsize(path) > room + 2**20, 20_000, 0.0)
    assert sum((await store.reader.count_states(Selector(NS))).values()) == written
    await store.close()
    print(len(Told.said), len(set(Told.said)), Told.said[0])

asyncio.run(main(*sys.argv[1:]))
"""


async def test_checkpoints_that_fail_are_logged_again_only_after_one_has_succeeded(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fails, checkpoint = threading.Event(), wal._checkpoint

    def attempt(connection: sqlite3.Connection, mode: str) -> wal.CheckpointResult:
        if fails.is_set():
            raise sqlite3.OperationalError("disk I/O error")
        return checkpoint(connection, mode)

    def is_logged(times: int) -> bool:
        return caplog.text.count("the thread cannot checkpoint the WAL") == times

    monkeypatch.setattr(wal, "_checkpoint", attempt)
    async with opened(path) as store:
        for times in (1, 2):
            fails.set()
            await write_until(lambda times=times: is_logged(times), store)  # type: ignore[misc]
            fails.clear()
            await write_until(begun_again(path, 2), store)
    assert is_logged(2)


async def test_when_the_database_cannot_grow_it_is_said_once_and_goes_on_when_it_can(path: Path) -> None:
    cramped = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CRAMPED, str(path), stdout=asyncio.subprocess.PIPE, cwd=HERE
    )
    said, _ = await cramped.communicate()
    times, different, words = said.decode().split(maxsplit=2)
    assert times == different  # the thread says so, and so may the writer
    assert "cannot checkpoint the WAL" in words
    assert cramped.returncode == 0


@pytest.fixture
def filling(path: Path) -> Iterator[sqlite3.Connection]:
    """Give a database whose log is not cleared by itself."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA wal_autocheckpoint = 0").fetchone()
        connection.execute("CREATE TABLE filled (text)")
        yield connection


def test_the_gauge_says_what_sqlite_says(filling: sqlite3.Connection, path: Path) -> None:
    gauge = WalLength(log_of(path))
    for round_ in range(40):
        filling.execute("INSERT INTO filled VALUES (?)", ("x" * 3000 * (round_ % 7),))
        reached = next(number for number in range(1, 1000) if not gauge.has_frames(number)) - 1
        _, found, _ = filling.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        assert reached == found > 0
    gauge.close()


def test_a_log_that_is_empty_reaches_nothing(filling: sqlite3.Connection, path: Path) -> None:
    filling.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    gauge = WalLength(log_of(path))
    assert log_of(path).stat().st_size == 0
    assert not gauge.has_frames(1)
    gauge.close()


def test_a_log_that_is_not_there_is_named(path: Path) -> None:
    with pytest.raises(Unavailable, match=r"stateward\.db-wal"):
        WalLength(log_of(path))
