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
from stateward.drivers.process.errors import BadMachineRecord, MachineLocked
from stateward.drivers.process.procfs import ProcessId, ProcessStat
from stateward.drivers.process.trees import clear_tree, remove_tree


class MachinePhase(StrEnum):
    """How far we have brought a machine."""

    STARTING = "starting"
    UP = "up"
    ENDING = "ending"


class MachineRecord(Struct, frozen=True, omit_defaults=True):
    """A machine of ours. `process` is that of its latest boot that is known to have started."""

    key: str
    native_id: str
    name: str
    spec: str
    image: str
    phase: MachinePhase = MachinePhase.STARTING
    boot: int = 1
    process: ProcessId | None = None
    token: str = ""  # of the latest reboot
    user: str = ""
    tags: Mapping[str, str] = {}
    more: Mapping[str, str] = {}  # what one kind of machine keeps beside
    uid: int | None = None  # the user that it runs as, where that is one of its own
    home: str = ""  # its folder as it sees it; empty: as it is


class ProcessStatus(StrEnum):
    """What the operating system says about a machine of which there is a record."""

    NOT_YET = "not started yet"
    RUNNING = "there"
    STOPPED = "stopped"
    EXITING = "dead, but not yet gone"
    GONE = "gone"
    HIDDEN = "alive, but not to be seen from here"


class MachineStatus(Struct, frozen=True):
    """A machine as record and operating system show it together."""

    record: MachineRecord
    process_status: ProcessStatus
    process: ProcessId | None = None
    stat: ProcessStat | None = None

    def __str__(self) -> str:
        """Say what both show of it: they may differ."""
        return f"its record says that it is {self.record.phase}, and its process is {self.process_status}"

    @property
    def is_alive(self) -> bool:
        """Whether its process can be reached."""
        return self.process is not None


def new_record(machine_spec: MachineSpec, root: Path) -> MachineRecord:
    """Return the record of a machine that is to be."""
    native_id = str(uuid5(NAMESPACE_URL, f"{root}?{machine_spec.key}"))
    return MachineRecord(
        machine_spec.key,
        native_id,
        machine_spec.name,
        machine_spec.spec,
        machine_spec.image,
        user=machine_spec.user,
        tags=machine_spec.tags,
    )


PLAIN_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
LOCK_TIMEOUT_S = 10.0
"""How long one waits for another who is doing something to the same machine, in seconds."""
LOCK_RETRY_S = 0.005
REMOVED_LAST = frozenset({"record.json", "lock"})
"""What is removed last: as long as it is there, the machine is known and nobody else has it."""


def folder_name(key: str) -> str:
    """Return a name for a folder that no other key has."""
    return key if PLAIN_KEY.fullmatch(key) else f"={sha256(key.encode()).hexdigest()}"


class MachineDir:
    """The machines of a place, as far as the disk knows of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._machines = root / "machines"
        self._machines.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path_of(self, key: str) -> Path:
        """Return where a machine's files are."""
        return self._machines / folder_name(key)

    def read_all(self) -> tuple[list[MachineRecord], list[str]]:
        """Return all records, and what is wrong with those that are none; a missing folder of all is an error."""
        records, troubles = [], []
        for machine in sorted(self._machines.iterdir()):
            try:
                records.append(self._read(machine))
            except FileNotFoundError:
                continue  # it is just being made, or being forgotten
            except BadMachineRecord as error:
                troubles.append(str(error))
        return records, troubles

    def read(self, key: str) -> MachineRecord | None:
        """Return the record of a machine, if there is one; a missing folder of all is an error."""
        try:
            return self._read(self.path_of(key))
        except FileNotFoundError:
            self._machines.stat()
            return None

    def _read(self, machine: Path) -> MachineRecord:
        file = machine / "record.json"
        try:
            return msgspec.json.decode(file.read_bytes(), type=MachineRecord)
        except msgspec.MsgspecError as error:
            raise BadMachineRecord(str(file), str(error)) from error

    def write(self, record: MachineRecord) -> None:
        """Put a record in the place of the one before: whole, or not at all."""
        self._write(record)

    def write_durably(self, record: MachineRecord) -> None:
        """Put a record in the place of the one before, and return when it would survive a loss of power."""
        self._write(record, sync=os.fsync)
        _sync_folder(self.path_of(record.key))
        _sync_folder(self._machines)

    def _write(self, record: MachineRecord, sync: Callable[[int], None] | None = None) -> None:
        file = self.path_of(record.key) / "record.json"
        new = file.with_suffix(".new")
        with open(new, "wb", opener=_open_private) as stream:
            stream.write(msgspec.json.encode(record))
            stream.flush()
            if sync:
                sync(stream.fileno())
        new.replace(file)

    def record_age_s(self, key: str) -> float:
        """Say how long ago a record was written, in seconds."""
        return time.time() - (self.path_of(key) / "record.json").stat().st_mtime

    def remove(self, key: str) -> None:
        """Forget a machine; the caller holds its lock. If files of it cannot be removed, its record stays, to retry."""
        if clear_tree(self.path_of(key), REMOVED_LAST):
            (self.path_of(key) / "record.json").unlink(missing_ok=True)
            remove_tree(self.path_of(key))

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        """Be the only one, in any process, who does something to a machine."""
        deadline = asyncio.get_running_loop().time() + LOCK_TIMEOUT_S
        while (handle := self._try_lock(key)) is None:
            if asyncio.get_running_loop().time() > deadline:
                raise MachineLocked(key, LOCK_TIMEOUT_S)
            await asyncio.sleep(LOCK_RETRY_S)
        try:
            yield
        finally:
            os.close(handle)

    def _try_lock(self, key: str) -> int | None:
        file = self.path_of(key) / "lock"
        with suppress(FileExistsError):
            file.parent.mkdir(mode=0o700)
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        if _try_flock(handle) and _is_same_file(handle, file):
            return handle
        os.close(handle)
        return None

    @contextmanager
    def liveness_lock(self, key: str) -> Iterator[int | None]:
        """Take the sign of life, to hand it on to a machine's process; None where a process has it."""
        handle = os.open(self.path_of(key) / "alive", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            yield handle if _try_flock(handle) else None
        finally:
            os.close(handle)

    def is_alive(self, key: str) -> bool:
        """Tell whether a process has the machine's sign of life."""
        try:
            handle = os.open(self.path_of(key) / "alive", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            return not _try_flock(handle, fcntl.LOCK_SH)
        finally:
            os.close(handle)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _try_flock(handle: int, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same_file(handle: int, file: Path) -> bool:
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
