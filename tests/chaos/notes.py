"""The notes of a client, outside of the store: each request before it is sent, and each response after it."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Literal

import msgspec

from stateward.engine import Request


class Sort(StrEnum):
    """What was asked for."""

    ACTION = "action"
    GROUP = "group"
    TIMER = "timer"


class Asked(msgspec.Struct, frozen=True, tag=True):
    """A request that is about to be sent; a timer is written down as the request that it will make."""

    sort: Sort
    request: Request


class Answered(msgspec.Struct, frozen=True, tag=True):
    """The answer that came back: what became of the request, and the operations that it began."""

    op: str
    verdict: Literal["accepted", "denied"]
    operations: tuple[str, ...] = ()


Note = Asked | Answered


class Notebook:
    """A file of notes; it outlives its client."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, note: Note) -> None:
        """Keep a note, in one write, before anything else happens."""
        os.write(self._file, b"\n" + msgspec.json.encode(note, enc_hook=str) + b"\n")


class Notes(msgspec.Struct, frozen=True):
    """All that a notebook holds."""

    asked: dict[str, Asked]
    answered: dict[str, Answered]

    @property
    def unanswered(self) -> list[Asked]:
        """The requests whose answers were lost."""
        return [one for op, one in self.asked.items() if op not in self.answered]

    def accepted(self, *sorts: Sort) -> list[Asked]:
        """The requests of some sorts that were accepted."""
        return [
            one
            for op, one in self.asked.items()
            if one.sort in sorts and op in self.answered and self.answered[op].verdict == "accepted"
        ]


def read_notes(path: Path) -> Notes:
    """Read a notebook; a line that a killed client left unfinished stands for something that was never sent."""
    notes = Notes({}, {})
    for line in path.read_bytes().splitlines() if path.exists() else ():
        note = _note(line)
        if isinstance(note, Asked):
            notes.asked[note.request.op] = note
        elif note is not None:
            notes.answered[note.op] = note
    return notes


def _note(line: bytes) -> Note | None:
    try:
        decoded: Note | None = msgspec.json.decode(line, type=Note) if line else None
    except msgspec.DecodeError:
        return None
    return decoded
