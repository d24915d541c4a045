"""The store's port on SQLite, with nothing but the standard library."""

from stateward.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
