"""Fresh databases for tests, SQLite and PostgreSQL."""

from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.store import open_store
from stateward.store.port import Store


def fresh_store(name: str, request: pytest.FixtureRequest) -> Callable[[], Store]:
    """Return a function that opens one fresh database, as often as it is called."""
    if name == "postgres":
        dsn = request.getfixturevalue("postgres_server").new_database()
        return lambda: open_store(dsn, migrate=True)
    folder: Path = request.getfixturevalue("tmp_path")
    return lambda: open_store(str(folder / "stateward.db"))
