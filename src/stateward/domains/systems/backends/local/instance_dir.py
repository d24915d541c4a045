"""The files of the local backend: for each instance an order (desired), a state (observed) and a log.

    NS/SYSTEM/pools.json, pools.lock
    NS/SYSTEM/services/PATH/ready.json              the ports of ready instances; the TCP proxy reads it
    NS/SYSTEM/services/PATH/instances/NAME/         order.json, state.json, work/
    NS/SYSTEM/services/PATH/gate/                   the same, of the service's TCP proxy
    NS/SYSTEM/services/PATH/logs/NAME.log
    NS/SYSTEM/jobs/PATH@RUN/                        the same, of a run of a job, whose instances run once
    NS/SYSTEM/kept/PATH/NAME.log                    the logs of a service that a failed deploy has removed again

The backend writes orders, the backend supervisor alone writes states. Each file is replaced atomically. File names and
field names never change: a supervisor of another version may have written them.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from stateward.domains.systems.backends.port import InstancePhase, ServiceRef, SystemRef
from stateward.domains.systems.definition import NodePool, Service
from stateward.procfs import ProcessId
from stateward.workloads.log_files import read_part
from stateward.workloads.trees import remove_tree

T = TypeVar("T")

PROXY = "gate"
MISSING = (FileNotFoundError, NotADirectoryError)
"""The errors that mean that a file is not there; any other one means that nothing is known about it."""
MAX_LOG_BYTES = 20_000_000
"""How long a log grows before it becomes the old one of its instance."""
CACHED_PATHS = 20_000
"""How many paths are kept: making them took half of the time of a round with hundreds of services."""
MAX_LOGS = 20
"""How many log files a service keeps."""
MAX_KEPT_LOGS, MAX_KEPT_SERVICES, MAX_KEPT_BYTES = 3, 50, 1_000_000
"""How many logs of a removed service are kept, of how many services of a system, and how much of each log."""


class InstanceOrder(Struct, frozen=True, omit_defaults=True):
    """The desired state of an instance (`order.json`)."""

    name: str
    revision: str
    service: Service
    node: str | None = None
    port: int | None = None  # a fixed port; None: any free one
    stop: bool = False
    run_once: bool = False


class LocalInstanceState(Struct, frozen=True, omit_defaults=True):
    """The observed state of an instance (`state.json`). Times are seconds since the epoch."""

    phase: InstancePhase = InstancePhase.STARTING
    boot: int = 0
    process: ProcessId | None = None
    launching: bool = False  # a process may have been started that is not recorded yet
    port: int | None = None
    uid: int | None = None  # the user that it runs as, where that is one of its own
    ready: bool = False
    restarts: int = 0
    crashes: int = 0  # in a row
    since: float = 0.0
    due: float = 0.0
    why: str = ""
    exit_status: int | None = None
    container: str = ""  # its id, where it is a container
    start_sent: bool = False  # the container of an instance that runs once may have been started
    unlimited: tuple[str, ...] = ()  # the resources whose limits are not enforced


class InstanceDir(Struct, frozen=True):
    """The folder and the log of one instance."""

    ref: ServiceRef
    folder: Path
    log: Path

    @property
    def root(self) -> Path:
        """The folder of the backend; the log is at NS/SYSTEM/services/PATH/logs/NAME.log below it."""
        return self.log.parents[5]

    @property
    def exit_file(self) -> Path:
        """The file to which the shell of an instance that runs once writes the exit status; see `launch`."""
        return self.folder / "exit"

    def order(self) -> InstanceOrder | None:
        """Return the order, or None."""
        return read_record(f"{self.folder}/order.json", InstanceOrder)

    def put_order(self, order: InstanceOrder) -> None:
        """Write the order."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_record(self.folder / "order.json", order)

    def state(self) -> LocalInstanceState | None:
        """Return the state, or None."""
        return read_record(f"{self.folder}/state.json", LocalInstanceState)

    def put_state(self, state: LocalInstanceState) -> None:
        """Write the state."""
        write_record(self.folder / "state.json", state)

    def stamp(self) -> int:
        """Return a number that changes when the order is replaced; 0 if there is none."""
        try:
            status = os.stat(f"{self.folder}/order.json")  # noqa: PTH116 - in every round, for every instance
        except MISSING:
            return 0
        return status.st_ino ^ status.st_mtime_ns

    def remove(self) -> None:
        """Remove the instance; its log stays."""
        (self.folder / "order.json").unlink(missing_ok=True)
        remove_tree(self.folder)


class BackendDir:
    """All systems below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def system_path(self, system_ref: SystemRef) -> Path:
        """Return the folder of a system."""
        return self.root / system_ref.ns / system_ref.system

    def service_path(self, ref: ServiceRef) -> Path:
        """Return the folder of a service; runs of jobs have another one, where earlier versions do not restart them."""
        return _service_path(self.root, ref)

    def instance_dir(self, ref: ServiceRef, name: str) -> InstanceDir:
        """Return the folder of an instance, or of the TCP proxy."""
        return _instance_dir(self.root, ref, name)

    def instance_dirs(self, ref: ServiceRef) -> list[InstanceDir]:
        """Return the folders of a service's instances, without the TCP proxy."""
        return [self.instance_dir(ref, name) for name in _names(f"{self.service_path(ref)}/instances")]

    def systems(self) -> Iterator[SystemRef]:
        """Walk over all systems."""
        for ns in _names(self.root):
            for system in _names(self.root / ns):
                yield SystemRef(ns, system)

    def services(self, system_ref: SystemRef) -> list[ServiceRef]:
        """Return the services of a system, and the runs of its jobs."""
        return [
            ServiceRef(system_ref, "/" + name.replace(".", "/"))
            for folder in ("services", "jobs")
            for name in _names(self.system_path(system_ref) / folder)
        ]

    def kept_logs_path(self, ref: ServiceRef) -> Path:
        """Return the folder with the logs of a service that a failed deploy has removed again."""
        return self.system_path(ref.system) / "kept" / self.service_path(ref).name

    def drop_service(self, ref: ServiceRef, *, keep_logs: bool = False) -> None:
        """Remove the folder of a service; keep the ends of its newest logs, or remove also those that were kept."""
        kept = self.kept_logs_path(ref)
        remove_tree(kept)
        if keep_logs:
            _keep_logs(self.service_path(ref) / "logs", kept)
            oldest = sorted(kept.parent.iterdir(), key=_changed_at, reverse=True)[MAX_KEPT_SERVICES:]
            for folder in oldest:
                remove_tree(folder)
        remove_tree(self.service_path(ref))

    @contextmanager
    def pools_lock(self, system_ref: SystemRef) -> Iterator[None]:
        """Keep other processes of this host from changing the node pools of a system, or taking their slots."""
        folder = self.system_path(system_ref)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / "pools.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def pools(self, system_ref: SystemRef) -> dict[str, NodePool]:
        """Return the node pools of a system."""
        return read_record(self.system_path(system_ref) / "pools.json", dict[str, NodePool]) or {}

    def put_pools(self, system_ref: SystemRef, pools: dict[str, NodePool]) -> None:
        """Write the node pools of a system."""
        write_record(self.system_path(system_ref) / "pools.json", pools)


@lru_cache(CACHED_PATHS)
def _service_path(root: Path, ref: ServiceRef) -> Path:
    folder = "jobs" if ref.is_job_run else "services"
    return root / ref.system.ns / ref.system.system / folder / ref.path.removeprefix("/").replace("/", ".")


@lru_cache(CACHED_PATHS)
def _instance_dir(root: Path, ref: ServiceRef, name: str) -> InstanceDir:
    service = _service_path(root, ref)
    folder = service / PROXY if name == PROXY else service / "instances" / name
    return InstanceDir(ref, folder, service / "logs" / f"{name}.log")


def read_record(file: Path | str, wanted: type[T]) -> T | None:
    """Read a record; None if it is missing or isn't one. Raises if the file cannot be read: it may be there."""
    try:
        with open(file, "rb") as stream:  # noqa: PTH123 - in every round, for every instance
            return msgspec.json.decode(stream.read(), type=wanted)
    except (*MISSING, msgspec.DecodeError):
        return None


def write_record(file: Path, value: Any) -> None:  # noqa: ANN401 - whatever msgspec can encode
    """Replace a record atomically; does nothing if its folder is gone."""
    new = file.with_suffix(".new")
    with suppress(FileNotFoundError):
        new.write_bytes(msgspec.json.encode(value))
        new.replace(file)


def prepare_log(log: Path) -> None:
    """Rotate a log that is too long, and remove the oldest logs of the service."""
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
        log.replace(old_log(log))
    kept = sorted(log.parent.iterdir(), key=lambda file: file.stat().st_mtime)
    for old in [file for file in kept if file != log][: max(0, len(kept) - MAX_LOGS)]:
        old.unlink(missing_ok=True)


def old_log(log: Path) -> Path:
    """Return the file that a log becomes when it is too long."""
    return log.with_suffix(".old")


def _keep_logs(logs: Path, kept: Path) -> None:
    """Copy the ends of the newest logs of instances."""
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    newest = sorted((log for log in logs.glob("*.log") if log.stem != PROXY), key=_changed_at, reverse=True)
    for log in newest[:MAX_KEPT_LOGS]:
        (kept / log.name).write_bytes(read_part(log, log, None, MAX_KEPT_BYTES)[0])


def _changed_at(path: Path) -> float:
    return path.stat().st_mtime


def _names(folder: Path | str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except MISSING:
        return []
