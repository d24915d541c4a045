"""What the tests on real stores share: a PostgreSQL, and one database for each test, on both stores."""

from collections.abc import Callable

import pytest

from stateward.store.port import Store
from tests.servers import postgres_dsn
from tests.stores import fresh_store

__all__ = ["postgres_dsn"]


@pytest.fixture(params=["sqlite", "postgres"])
def store_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def new_store(store_name: str, request: pytest.FixtureRequest) -> Callable[[], Store]:
    """Return a function that opens the same fresh database, as often as it is called."""
    return fresh_store(store_name, request)
