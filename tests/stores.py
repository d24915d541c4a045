"""Fresh databases for tests, SQLite and PostgreSQL."""

from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.store import open_store
from stateward.store.port import Store
from tests.servers import PostgresServer


def fresh_store(name: str, request: pytest.FixtureRequest) -> Callable[[], Store]:
    """Return a function that opens one fresh database, as often as it is called."""
    if name == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        dsn = server.new_migrated_database()
        request.addfinalizer(lambda: server.drop_later(dsn))
        return lambda: open_store(dsn, migrate=True)
    folder: Path = request.getfixturevalue("tmp_path")
    return lambda: open_store(str(folder / "stateward.db"))
