"""Fixtures of the contract suite: a test with the fixture `store` runs once on each store."""

from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from stateward.store import Store
from stateward.store.sqlite import SqliteStore
from stateward.testing.read_committed import ReadCommittedStore
from tests.servers import PostgresServer

Place: TypeAlias = Callable[[], Store]
"""One database: each call gives another store on it, which is not open yet."""

SCHEMAS = count(1)
MODELLED_TOO = (
    "test_children", "test_claiming", "test_compare_and_set", "test_counting", "test_idempotency_records",
    "test_journal", "test_lanes", "test_locks", "test_prefetch", "test_selection", "test_signals",
    "test_subscriptions", "test_timers", "test_tx_functions", "test_workers",
)  # fmt: skip
POOLED = ("test_claiming", "test_compare_and_set", "test_lanes", "test_locks", "test_subscriptions", "test_workers")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on both stores; some suites also through a pooler, where no session is ours."""
    if "place" in metafunc.fixturenames:
        name = metafunc.module.__name__.rpartition(".")[2]
        pooled = ["pgbouncer"] if name in POOLED else []
        modelled = ["model"] if name in MODELLED_TOO else []
        metafunc.parametrize("place", ["sqlite", "postgres", *pooled, *modelled], indirect=True)


class SharedModel:
    """The modelled store as one of several processes has it: the first one opens it, and closes it."""

    def __init__(self, shared: ReadCommittedStore) -> None:
        self._shared = shared
        self._opened = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shared, name)

    async def open(self) -> None:
        if not self._shared.is_open:
            self._opened = True
            await self._shared.open()

    async def close(self) -> None:
        if self._opened:
            await self._shared.close()


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Give a new database of each sort."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "stateward.db")
    if request.param == "model":
        shared = ReadCommittedStore()
        return lambda: SharedModel(shared)
    from stateward.store.postgres.store import PostgresStore

    dsn: str = request.getfixturevalue("postgres_database")
    schema = f"contract {next(SCHEMAS)}"
    if request.param == "pgbouncer":
        url = request.getfixturevalue("pgbouncer").url(dsn)
        return lambda: PostgresStore(url, migrate=True, schema=schema, pooled=True, direct=dsn)
    return lambda: PostgresStore(dsn, migrate=True, schema=schema)


@pytest.fixture(scope="session")
def postgres_database(postgres_server: PostgresServer) -> str:
    """Give one database for all tests, each of which has a schema of its own: that is much faster to make."""
    return postgres_server.new_database()


@pytest.fixture
async def store(place: Place) -> AsyncIterator[Store]:
    """Give an open store on a new database."""
    store = place()
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def second(place: Place, store: Store) -> AsyncIterator[Store]:
    """Give another store on the same database, as another process has it."""
    other = place()
    await other.open()
    yield other
    await other.close()
