"""One port, two adapters: everything that is to survive, in SQLite or in PostgreSQL."""

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
