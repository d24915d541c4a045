"""How an SQLite database is used."""

from pathlib import Path
from typing import Literal

from msgspec import Struct

Synchronous = Literal["FULL", "NORMAL", "OFF"]

MEMORY = ":memory:"


class Settings(Struct, frozen=True):
    """Where the database is, how durable a commit is, how long to wait for other processes, and how much to keep."""

    path: str
    synchronous: Synchronous = "FULL"
    busy_timeout: float = 5.0
    max_bytes: int | None = None  # the database may not grow beyond this
    cache_bytes: int = 64 * 2**20
    log_bytes: int = 16 * 2**20  # after so much has been written, the log is brought into the database

    @property
    def in_memory(self) -> bool:
        """Whether there is no file at all."""
        return self.path == MEMORY

    @property
    def lock_path(self) -> Path:
        """The file by which processes notice each other."""
        return Path(f"{self.path}.lock")
