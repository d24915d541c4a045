"""The durable store: one port, with an adapter for SQLite and one for PostgreSQL."""

from stateward.store.changes import Changes, Ended
from stateward.store.connect import open_store
from stateward.store.filters import JournalFilter, Page, Selector
from stateward.store.port import LaneLoad, Reader, Store, Tx, TxFunction
from stateward.store.topics import ALL_TOPICS, Topic

__all__ = [
    "ALL_TOPICS",
    "Changes",
    "Ended",
    "JournalFilter",
    "LaneLoad",
    "Page",
    "Reader",
    "Selector",
    "Store",
    "Topic",
    "Tx",
    "TxFunction",
    "open_store",
]
