"""The agent's local state on disk: the things it has deployed, for recovery after a crash.

A thing is saved before any part of it is created, and saved as whole only when all of it exists. What really runs is
read from the driver; the local state tells what it belongs to.
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
    """A deployed thing, whole or in part; `parts` are the driver's keys, or the marks of its processes.

    `raw` parts may not be set up: after a crash they are created again. `nodes` are the numbers of the nodes of
    its containers.
    """

    name: str
    kind: str
    generation: int
    whole: bool
    host: str = ""
    spec: str = "{}"
    parts: tuple[str, ...] = ()
    raw: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()


class LocalState:
    """The deployed things, one file each; a file is replaced atomically."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._things: dict[str, Deployed] = {}
        self.reload()

    def reload(self) -> None:
        """Read all files again: the predecessor in an upgrade may have written them since."""
        self._things = {}
        for file in self._folder.glob("*.json"):
            try:
                thing = msgspec.json.decode(file.read_bytes(), type=Deployed)
            except FileNotFoundError:
                continue  # it was just removed
            except msgspec.DecodeError as error:
                _set_aside(file, error)
            else:
                self._things[thing.name] = thing

    def __iter__(self) -> Iterator[Deployed]:
        return iter(list(self._things.values()))

    def get(self, name: str) -> Deployed | None:
        """Return a deployed thing, if it exists."""
        return self._things.get(name)

    def save(self, thing: Deployed) -> Deployed:
        """Save a thing durably."""
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
        """Remove a thing of which nothing is left."""
        self._file(name).unlink(missing_ok=True)
        self._things.pop(name, None)

    def _file(self, name: str) -> Path:
        return self._folder / f"{sha256(name.encode()).hexdigest()[:32]}.json"


def _set_aside(file: Path, error: Exception) -> None:
    """Rename an unreadable file; the agent continues with the others, and the file is kept for inspection."""
    aside = file.with_suffix(".unreadable")
    log.error("state file %s is unreadable and is kept as %s; its object counts as gone: %s", file, aside, error)
    file.replace(aside)
