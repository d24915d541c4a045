"""The agent's small local record: what it has, so that it knows after a crash.

A thing is written down before anything of it is made, and as whole only when all of it is there. What really runs is
read from the driver; the notebook says what it belongs to.
"""

import logging
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

log = logging.getLogger("stateward.agent")


class Deployed(Struct, frozen=True):
    """Something that exists, at least in part: its parts are the driver's keys, or the marks of its processes.

    Raw parts are those not known to be set up: after a crash they are made anew.
    """

    name: str
    kind: str
    generation: int
    whole: bool
    host: str = ""
    spec: str = "{}"
    parts: tuple[str, ...] = ()
    raw: tuple[str, ...] = ()


class LocalState:
    """Things on disk, one file each; each is replaced whole, or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._things: dict[str, Deployed] = {}
        self.reload()

    def reload(self) -> None:
        """Read everything: another agent may have written since, of which this one is the successor."""
        self._things = {}
        for file in self._folder.glob("*.json"):
            try:
                thing = msgspec.json.decode(file.read_bytes(), type=Deployed)
            except FileNotFoundError:
                continue  # it was just struck out
            except msgspec.DecodeError as error:
                _set_aside(file, error)
            else:
                self._things[thing.name] = thing

    def __iter__(self) -> Iterator[Deployed]:
        return iter(list(self._things.values()))

    def get(self, name: str) -> Deployed | None:
        """Return a thing, if there is one."""
        return self._things.get(name)

    def save(self, thing: Deployed) -> Deployed:
        """Write a thing down, durably."""
        file = self._file(thing.name)
        new = file.with_suffix(".new")
        with new.open("wb") as stream:
            stream.write(msgspec.json.encode(thing))
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(file)
        self._things[thing.name] = thing
        return thing

    def remove(self, name: str) -> None:
        """Strike a thing out: nothing of it is left."""
        self._file(name).unlink(missing_ok=True)
        self._things.pop(name, None)

    def _file(self, name: str) -> Path:
        return self._folder / f"{sha256(name.encode()).hexdigest()[:32]}.json"


def _set_aside(file: Path, error: Exception) -> None:
    """Rename a record that cannot be read: the agent goes on with the others, and the file can be looked at."""
    aside = file.with_suffix(".unreadable")
    log.error("record %s cannot be read, and is kept as %s: what it is about counts as gone: %s", file, aside, error)
    file.replace(aside)
