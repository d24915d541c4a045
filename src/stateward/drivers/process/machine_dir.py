"""The directory of a region's machines: one subfolder per machine, with its record and two file locks.

Controllers share nothing but these locks. A controller holds `lock` while it changes a machine. `alive`, the liveness
lock, is the machine's standard input: it is locked before the process starts, and the kernel releases it when the
process ends, however it ends. So a free lock proves the end of a machine, even where its process cannot be seen.

The record is on the disk before the process is started, so no machine is without one. Unknown fields are ignored when a
record is read, and stored field names never change.
"""

import asyncio
import fcntl
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec import Struct

from stateward.drivers.port import MachineSpec
from stateward.drivers.process.errors import BadMachineRecord, MachineLocked
from stateward.procfs import ProcessId, ProcessStat
from stateward.workloads.confinement.syscalls import open_handle
from stateward.workloads.lock_files import try_flock, try_lock_file
from stateward.workloads.trees import clear_tree, remove_tree


class MachinePhase(StrEnum):
    """The phase of a machine's life, as we have recorded it."""

    STARTING = "starting"
    UP = "up"
    ENDING = "ending"


class MachineRecord(Struct, frozen=True, omit_defaults=True):
    """The stored record of a machine. `process` is that of the latest boot that is known to have started."""

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
    more: Mapping[str, str] = {}  # further facts of one kind of machine
    uid: int | None = None  # the user that it runs as, if it has one of its own
    home: str = ""  # its folder inside its mount namespace; empty: the same as outside
    ssh_port: int = 0  # of this host; 0: nobody can log in
    host_key: str = ""  # the public key of its SSH server
    authorized_keys: tuple[str, ...] = ()  # the public keys that may log in
    stopped_before: tuple[ProcessId, ...] | None = None  # what its tenant has stopped itself; None: not suspended by us


_RECORD_DECODER = msgspec.json.Decoder(MachineRecord)
"""Made when the module is loaded: a type that two threads decode for the first time at once crashes msgspec 0.22."""


class ProcessStatus(StrEnum):
    """What the operating system shows of a machine that has a record."""

    NOT_YET = "not started yet"
    RUNNING = "there"
    STOPPED = "stopped"
    EXITING = "dead, but not yet gone"
    GONE = "gone"
    HIDDEN = "alive, but not to be seen from here"


class MachineStatus(Struct, frozen=True):
    """A machine as its record and the operating system show it."""

    record: MachineRecord
    process_status: ProcessStatus
    process: ProcessId | None = None
    stat: ProcessStat | None = None

    def __str__(self) -> str:
        """Describe both views: they may differ."""
        return f"its record says that it is {self.record.phase}, and its process is {self.process_status}"


def new_record(machine_spec: MachineSpec, root: Path) -> MachineRecord:
    """Return the first record of a machine."""
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
"""How long a controller waits for the lock of a machine."""
LOCK_RETRY_S = 0.005
REMOVED_LAST = frozenset({"record.json", "lock"})
"""The files that are removed last: while they exist, the machine is known and locked."""


def folder_name(key: str) -> str:
    """Return the folder name of a key; no other key has it."""
    return key if PLAIN_KEY.fullmatch(key) else f"={sha256(key.encode()).hexdigest()}"


class MachineDir:
    """The records and locks of a region's machines."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._machines = root / "machines"
        self._machines.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path_of(self, key: str) -> Path:
        """Return the folder of a machine."""
        return self._machines / folder_name(key)

    def read_all(self, keys: Collection[str] | None = None) -> tuple[list[MachineRecord], list[str]]:
        """Return all records, or some, and the problems of unreadable ones; raises if the directory is missing."""
        records, problems = [], []
        paths = sorted(self._machines.iterdir()) if keys is None else [self.path_of(key) for key in dict.fromkeys(keys)]
        for path in paths:
            try:
                record = self._read(path)
            except BadMachineRecord as error:
                problems.append(str(error))
            else:
                records += [] if record is None else [record]
        return records, problems

    def read(self, key: str) -> MachineRecord | None:
        """Return the record of a machine, or None; raises if the directory itself is missing."""
        return self._read(self.path_of(key))

    def _read(self, machine: Path) -> MachineRecord | None:
        file = machine / "record.json"
        try:
            return _RECORD_DECODER.decode(file.read_bytes())
        except FileNotFoundError:  # it is being created or removed
            self._machines.stat()
            return None
        except msgspec.MsgspecError as error:
            raise BadMachineRecord(str(file), str(error)) from error

    def write(self, record: MachineRecord, sync: Callable[[int], None] | None = None) -> None:
        """Replace a record atomically; `sync` is called with the handle of the new file before it replaces the old."""
        file = self.path_of(record.key) / "record.json"
        new = file.with_suffix(".new")
        with open(new, "wb", opener=open_private) as stream:
            stream.write(msgspec.json.encode(record))
            stream.flush()
            if sync:
                sync(stream.fileno())
        new.replace(file)

    def write_durably(self, record: MachineRecord) -> None:
        """Replace a record atomically, and return when it would survive a loss of power."""
        self.write(record, sync=os.fsync)
        _sync_folder(self.path_of(record.key))
        _sync_folder(self._machines)

    def record_age_s(self, key: str) -> float:
        """Return how long ago a record was written, in seconds."""
        return time.time() - (self.path_of(key) / "record.json").stat().st_mtime

    def remove(self, key: str) -> None:
        """Remove a machine; the caller holds its lock. If a file cannot be removed, the record stays, for a retry."""
        if clear_tree(self.path_of(key), REMOVED_LAST):
            (self.path_of(key) / "record.json").unlink(missing_ok=True)
            remove_tree(self.path_of(key))

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        """Hold the lock of a machine against all controllers of this host."""
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
        return try_lock_file(file)

    @contextmanager
    def liveness_lock(self, key: str) -> Iterator[int | None]:
        """Take the liveness lock, to pass it to a machine's process; None if a process has it."""
        with open_handle(self.path_of(key) / "alive", os.O_RDWR | os.O_CREAT, 0o600) as handle:
            yield handle if try_flock(handle) else None

    def is_alive(self, key: str) -> bool:
        """Tell whether a process has the machine's liveness lock."""
        try:
            with open_handle(self.path_of(key) / "alive", os.O_RDWR) as handle:
                return not try_flock(handle, fcntl.LOCK_SH)
        except FileNotFoundError:
            return False


def open_private(path: str, flags: int) -> int:
    """Open a file that only this user may read; a link is not followed."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _sync_folder(path: Path) -> None:
    with open_handle(path, os.O_RDONLY | os.O_DIRECTORY) as handle:
        os.fsync(handle)
