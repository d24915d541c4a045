"""The outside witness: an append-only file in which is written what was really done, in the order in which it was.

It plays the part of a provider that knows client tokens: the first request with an operation's id is the effect, any
further one is recognised. Each line is one write to a file opened for appending, so that the order of the lines is the
order of events for all processes, and a process that is killed in mid-line spoils nobody's line but its own.
"""

import os
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec


class What(StrEnum):
    """What is witnessed."""

    BEGIN = "begin"  # a handler has begun
    APPLY = "apply"  # the provider was asked for the effect
    END = "end"  # a handler has ended, one way or another
    LOOK = "look"  # a handler looked at what is true
    STOPPING = "stopping"  # the process is about to be stopped
    WOKEN = "woken"  # the process was woken again
    STILL = "still"  # the process noticed that it had stood still, since a time
    KILLED = "killed"  # the process is certainly dead


class Entry(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A line: when, what, by which process, and about which operation."""

    at: float
    what: What
    worker: str
    op: str = ""
    object: str = ""
    lane: str = ""
    epoch: int = 0
    lock: str = ""  # mode and path of the lock that the operation holds
    since: float = 0.0


class Ledger:
    """One process's pen."""

    def __init__(self, path: Path, worker: str) -> None:
        self._worker = worker
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._tail = Tail(path)
        self._applied: set[str] = set()

    def note(self, what: What, **facts: Any) -> None:
        """Write a line."""
        self.note_about(self._worker, what, **facts)

    def note_about(self, worker: str, what: What, **facts: Any) -> None:
        """Write a line about another process."""
        entry = Entry(time.time(), what, worker, **facts)
        os.write(self._file, b"\n" + msgspec.json.encode(entry) + b"\n")

    def applied(self, op: str) -> bool:
        """Tell whether the provider knows this token."""
        self._applied.update(entry.op for entry in self._tail.read() if entry.what is What.APPLY)
        return op in self._applied


class Tail:
    """Reads a ledger, and later what has been added to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> Iterator[Entry]:
        """Yield the lines that were added since; what a killed process left unfinished does not count."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            added = file.read()
        whole = added[: added.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            entry = _entry(line)
            if entry is not None:
                yield entry


def _entry(line: bytes) -> Entry | None:
    try:
        return msgspec.json.decode(line, type=Entry) if line else None
    except msgspec.DecodeError:
        return None


def entries(path: Path) -> list[Entry]:
    """Return all lines of a ledger."""
    return list(Tail(path).read())
