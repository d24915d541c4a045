"""One port, two adapters: everything that is to survive, in SQLite or in PostgreSQL."""

from stateward.store.changes import Changes, Ended
from stateward.store.connect import open_store
from stateward.store.port import EVERYTHING, LaneLoad, Program, Reader, Store, Topic, Tx
from stateward.store.selection import JournalFilter, Page, Selector

__all__ = [
    "EVERYTHING",
    "Changes",
    "Ended",
    "JournalFilter",
    "LaneLoad",
    "Page",
    "Program",
    "Reader",
    "Selector",
    "Store",
    "Topic",
    "Tx",
    "open_store",
]
