"""Fresh databases for tests, of both sorts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.store import open_store
from stateward.store.port import Store


def fresh_store(name: str, request: pytest.FixtureRequest) -> Callable[[], Store]:
    """Return how to open one and the same fresh database, as often as wanted."""
    if name == "postgres":
        dsn = request.getfixturevalue("postgres_server").new_database()
        return lambda: open_store(dsn, migrate=True)
    folder: Path = request.getfixturevalue("tmp_path")
    return lambda: open_store(str(folder / "stateward.db"))
