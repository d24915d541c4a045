"""Fixtures of the contract suite: a test with the fixture `store` runs once on each store."""

from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pytest

from stateward.store import Store
from stateward.store.sqlite import SqliteStore
from tests.servers import PostgresServer

Place: TypeAlias = Callable[[], Store]
"""One database: each call gives another store on it, which is not open yet."""

SCHEMAS = count(1)
POOLED = ("test_claiming", "test_compare_and_set", "test_lanes", "test_locks", "test_subscriptions", "test_workers")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on both stores; some suites also through a pooler, where no session is ours."""
    if "place" in metafunc.fixturenames:
        name = metafunc.module.__name__.rpartition(".")[2]
        pooled = ["pgbouncer"] if name in POOLED else []
        metafunc.parametrize("place", ["sqlite", "postgres", *pooled], indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Give a new database of each sort."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "stateward.db")
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
