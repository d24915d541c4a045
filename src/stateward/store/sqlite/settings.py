"""How an SQLite database is used."""

from pathlib import Path
from typing import Literal

from msgspec import Struct

Synchronous = Literal["FULL", "NORMAL", "OFF"]

MEMORY = ":memory:"
LOG_BYTES = 16 * 2**20


class Settings(Struct, frozen=True):
    """Where the database is, how durable a commit is, how long to wait for other processes, and how much to keep."""

    path: str
    synchronous: Synchronous = "FULL"
    busy_timeout: float = 5.0
    max_bytes: int | None = None  # the database may not grow beyond this
    cache_bytes: int = 8 * 2**20  # the system keeps the rest of the file at hand, and a larger one makes commits dearer
    spill_bytes: int = 64 * 2**20  # so much may a transaction change before it goes into the log ahead of its commit
    log_bytes: int = LOG_BYTES  # after so much has been written, the log is brought into the database

    @property
    def in_memory(self) -> bool:
        """Whether there is no file at all."""
        return self.path == MEMORY

    @property
    def log_path(self) -> Path:
        """The log; SQLite keeps it beside the file itself, not beside a link to it."""
        return Path(f"{Path(self.path).resolve()}-wal")

    @property
    def lock_path(self) -> Path:
        """The file by which processes notice each other."""
        return Path(f"{self.path}.lock")
