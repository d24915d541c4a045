"""The factory of stores: the URL chooses the adapter."""

from pathlib import Path

import pytest

from stateward.errors import BadInput
from stateward.store import open_store
from stateward.store.sqlite import SqliteStore


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///data/stateward.db", "data/stateward.db"),
        ("sqlite:////var/lib/stateward.db", "/var/lib/stateward.db"),
        ("data/state ward?.db", "data/state ward?.db"),
        (":memory:", ":memory:"),
        ("sqlite://", ":memory:"),
        ("sqlite:///:memory:", ":memory:"),
    ],
)
def test_a_path_and_its_url_name_the_same_file(url: str, path: str) -> None:
    store = open_store(url)
    assert isinstance(store, SqliteStore)
    assert store.settings.path == path


def test_a_postgresql_url_names_a_server() -> None:
    assert type(open_store("postgresql://localhost/stateward")).__name__ == "PostgresStore"


@pytest.mark.parametrize("url", ["", "mysql://localhost/x", "sqlite://host/path", "sqlite:///"])
def test_what_names_no_store_is_refused_and_told_what_would(url: str) -> None:
    with pytest.raises(BadInput) as raised:
        open_store(url)
    assert raised.value.field == "store"
    assert "postgresql://" in str(raised.value)


async def test_the_store_is_made_where_the_url_says(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/x.db")
    await store.open()
    await store.close()
    assert (tmp_path / "x.db").exists()
