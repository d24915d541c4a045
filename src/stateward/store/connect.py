"""The factory of stores: `open_store` chooses the adapter by the URL."""

from stateward.errors import BadInput
from stateward.store.port import Store

SQLITE = "sqlite://"
POSTGRES = ("postgresql://", "postgres://")
MEMORY = ":memory:"
KNOWN = "a path, sqlite:///path, :memory: or postgresql://..."


def open_store(url: str, *, migrate: bool = False, pooled: bool = False, direct: str | None = None) -> Store:
    """Return the store for a URL or a path. Its method `open` connects.

    The schema of a PostgreSQL database is migrated only with `migrate`, that of an SQLite file always. With `pooled`,
    the URL is that of a pooler in transaction mode, and `direct` is a URL that bypasses the pooler.

    As in SQLAlchemy, `sqlite:///name` is relative to the working directory and `sqlite:////name` is absolute.
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
