"""Where the data is, as one line of configuration."""

from stateward.errors import BadInput
from stateward.store.port import Store

SQLITE = "sqlite://"
POSTGRES = ("postgresql://", "postgres://")
MEMORY = ":memory:"
KNOWN = "a path, sqlite:///path, :memory: or postgresql://..."


def open_store(url: str, *, migrate: bool = False, pooled: bool = False, direct: str | None = None) -> Store:
    """Return the store that a URL or a path names; it is connected to by its `open`.

    A PostgreSQL database is brought up to date only with `migrate`; an embedded one always is. With `pooled`, the URL
    is that of a pooler in transaction mode; `direct` is one past it.

    As elsewhere, `sqlite:///name` is relative to the working folder and `sqlite:////name` is not.
    """
    if url.startswith(POSTGRES):
        from stateward.store.postgres.store import PostgresStore  # each adapter is loaded only where it is used

        return PostgresStore(url, migrate=migrate, pooled=pooled, direct=direct)
    if not url or ("://" in url and not url.startswith(SQLITE)):
        raise BadInput("store", url, KNOWN)
    path = _path(url) if url.startswith(SQLITE) else url
    from stateward.store.sqlite.store import SqliteStore

    return SqliteStore(path)


def _path(url: str) -> str:
    host, slash, path = url.removeprefix(SQLITE).partition("/")
    if host or (slash and not path):
        raise BadInput("store", url, KNOWN)
    return path or MEMORY
