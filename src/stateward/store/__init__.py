"""The durable store: one port, with an adapter for SQLite and one for PostgreSQL."""

from typing import TYPE_CHECKING

from stateward.lazy_names import lazy_names

if TYPE_CHECKING:
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

__getattr__ = lazy_names(
    __name__,
    {
        "stateward.store.changes": (
            "Changes",
            "Ended",
        ),
        "stateward.store.connect": ("open_store",),
        "stateward.store.filters": (
            "JournalFilter",
            "Page",
            "Selector",
        ),
        "stateward.store.port": (
            "LaneLoad",
            "Reader",
            "Store",
            "Tx",
            "TxFunction",
        ),
        "stateward.store.topics": (
            "ALL_TOPICS",
            "Topic",
        ),
    },
)
