"""The folder of a place: one subfolder for each machine, with its record, a lock, and a sign of life.

Two locks of the kernel's are all that is shared between controllers. `lock` is held by whoever does something to a
machine. `alive` is the machine's own standard input, taken before its process is started and given back by the kernel
when that ends, however it ends; so whether it is free tells what became of a machine, even where its process cannot be
seen.
"""

import asyncio
import fcntl
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec import Struct

from stateward.drivers.port import MachineSpec
from stateward.drivers.process.procfs import Process, Stat
from stateward.drivers.process.trees import clear_tree, remove_tree
from stateward.errors import StatewardError


class Phase(StrEnum):
    """How far we have brought a machine."""

    STARTING = "starting"
    UP = "up"
    ENDING = "ending"


class Record(Struct, frozen=True, omit_defaults=True):
    """A machine of ours. `process` is that of its latest boot that is known to have started."""

    key: str
    native_id: str
    name: str
    spec: str
    image: str
    phase: Phase = Phase.STARTING
    boot: int = 1
    process: Process | None = None
    token: str = ""  # of the latest reboot
    user: str = ""
    tags: Mapping[str, str] = {}
    more: Mapping[str, str] = {}  # what one kind of machine keeps beside
    uid: int | None = None  # the user that it runs as, where that is one of its own
    home: str = ""  # its folder as it sees it; empty: as it is


class Standing(StrEnum):
    """What the operating system says about a machine of which there is a record."""

    NOT_YET = "not started yet"
    THERE = "there"
    STOPPED = "stopped"
    LEAVING = "dead, but not yet gone"
    GONE = "gone"
    HIDDEN = "alive, but not to be seen from here"


class Sight(Struct, frozen=True):
    """A machine as record and operating system show it together."""

    record: Record
    standing: Standing
    process: Process | None = None
    stat: Stat | None = None

    def __str__(self) -> str:
        """Say what both show of it: they may differ."""
        return f"its record says that it is {self.record.phase}, and its process is {self.standing}"

    @property
    def alive(self) -> bool:
        """Whether its process can be reached."""
        return self.process is not None


def first_record(want: MachineSpec, root: Path) -> Record:
    """Return the record of a machine that is to be."""
    native_id = str(uuid5(NAMESPACE_URL, f"{root}?{want.key}"))
    return Record(want.key, native_id, want.name, want.spec, want.image, user=want.user, tags=want.tags)


PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
PATIENCE = 10.0
"""How long one waits for another who is doing something to the same machine, in seconds."""
BETWEEN_TRIES = 0.005
KEPT = frozenset({"record.json", "lock"})
"""What is removed last: as long as it is there, the machine is known and nobody else has it."""


class Busy(StatewardError):
    """Somebody else is at work on a machine, and does not come to an end."""

    retry = True

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"somebody else has been at work on {self.key} for {PATIENCE:.0f} s"


class BadRecord(StatewardError):
    """A record cannot be read as one."""

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(file, reason)
        self.file = str(file)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


def folder_name(key: str) -> str:
    """Return a name for a folder that no other key has."""
    return key if PLAIN.fullmatch(key) else f"={sha256(key.encode()).hexdigest()}"


class Folder:
    """The machines of a place, as far as the disk knows of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._machines = root / "machines"
        self._machines.mkdir(mode=0o700, parents=True, exist_ok=True)

    def at(self, key: str) -> Path:
        """Return where a machine's files are."""
        return self._machines / folder_name(key)

    def read_all(self) -> tuple[list[Record], list[str]]:
        """Return all records, and what is wrong with those that are none; a missing folder of all is an error."""
        records, troubles = [], []
        for machine in sorted(self._machines.iterdir()):
            try:
                records.append(self._read(machine))
            except FileNotFoundError:
                continue  # it is just being made, or being forgotten
            except BadRecord as error:
                troubles.append(str(error))
        return records, troubles

    def read(self, key: str) -> Record | None:
        """Return the record of a machine, if there is one; a missing folder of all is an error."""
        try:
            return self._read(self.at(key))
        except FileNotFoundError:
            self._machines.stat()
            return None

    def _read(self, machine: Path) -> Record:
        file = machine / "record.json"
        try:
            return msgspec.json.decode(file.read_bytes(), type=Record)
        except msgspec.MsgspecError as error:
            raise BadRecord(file, str(error)) from error

    def write(self, record: Record) -> None:
        """Put a record in the place of the one before: whole, or not at all."""
        self._write(record)

    def write_durably(self, record: Record) -> None:
        """Put a record in the place of the one before, and return when it would survive a loss of power."""
        self._write(record, sync=os.fsync)
        _sync_folder(self.at(record.key))
        _sync_folder(self._machines)

    def _write(self, record: Record, sync: Callable[[int], None] | None = None) -> None:
        file = self.at(record.key) / "record.json"
        new = file.with_suffix(".new")
        with open(new, "wb", opener=_for_us_alone) as stream:
            stream.write(msgspec.json.encode(record))
            stream.flush()
            if sync:
                sync(stream.fileno())
        new.replace(file)

    def age(self, key: str) -> float:
        """Say how long ago a record was written, in seconds."""
        return time.time() - (self.at(key) / "record.json").stat().st_mtime

    def remove(self, key: str) -> None:
        """Forget a machine; the caller holds its lock. If files of it cannot be removed, its record stays, to retry."""
        if clear_tree(self.at(key), KEPT):
            (self.at(key) / "record.json").unlink(missing_ok=True)
            remove_tree(self.at(key))

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        """Be the only one, in any process, who does something to a machine."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while (handle := self._try_lock(key)) is None:
            if asyncio.get_running_loop().time() > deadline:
                raise Busy(key)
            await asyncio.sleep(BETWEEN_TRIES)
        try:
            yield
        finally:
            os.close(handle)

    def _try_lock(self, key: str) -> int | None:
        file = self.at(key) / "lock"
        with suppress(FileExistsError):
            file.parent.mkdir(mode=0o700)
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        if _locks(handle) and _is_still(handle, file):
            return handle
        os.close(handle)
        return None

    @contextmanager
    def life(self, key: str) -> Iterator[int | None]:
        """Take the sign of life, to hand it on to a machine's process; None where a process has it."""
        handle = os.open(self.at(key) / "alive", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            yield handle if _locks(handle) else None
        finally:
            os.close(handle)

    def is_alive(self, key: str) -> bool:
        """Tell whether a process has the machine's sign of life."""
        try:
            handle = os.open(self.at(key) / "alive", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            return not _locks(handle, fcntl.LOCK_SH)
        finally:
            os.close(handle)


def _for_us_alone(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _locks(handle: int, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still(handle: int, file: Path) -> bool:
    """Tell whether a file that was locked is the one that is there; its machine may have been forgotten meanwhile."""
    try:
        return os.path.samestat(os.fstat(handle), file.stat())
    except FileNotFoundError:
        return False


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
