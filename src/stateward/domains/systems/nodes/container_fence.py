"""The end of a node's containers without the help of their engine, which may hang.

The id of a container is stored before the container is started, and is a part of the names of the control groups of its
processes. So the watchdog finds all of them, whatever they have done to their environment. The engine is told as well,
when it answers: then no call that it had received before can start one of the containers any more.
"""

import asyncio
import logging
import re
import threading
from pathlib import Path

from msgspec import Struct

from stateward.containers import EngineClient, EngineRefused, EngineUnavailable
from stateward.domains.systems.backends.container.container_backend import read_installation
from stateward.domains.systems.backends.container.container_specs import ContainerNames
from stateward.domains.systems.backends.local.instance_dir import BackendDir, read_record, write_record
from stateward.domains.systems.nodes.node_lease import LeaseFile
from stateward.procfs import kill_processes, living_processes, read_proc

log = logging.getLogger("stateward.systems")

CONTAINERS = "containers"
ENGINE_FILE = "container-engine.json"
ENGINE_TIMEOUT_S = 10.0
RETRY_S = 0.5

_CONTAINER_ID = re.compile(rb"(?<!conmon-)([0-9a-f]{64})")
"""The id of a container in the name of a control group; its monitor ends with it, after it has reported the end."""


class EngineRecord(Struct, frozen=True):
    """The file with the address of the container engine of a node."""

    address: str


def save_engine(folder: Path, address: str) -> None:
    """Store the engine of a node, for its watchdog; empty: it has none."""
    if address:
        write_record(folder / ENGINE_FILE, EngineRecord(address))
    else:
        (folder / ENGINE_FILE).unlink(missing_ok=True)


def sees_container(pid: int, container: str) -> bool:
    """Tell whether a process of this host belongs to a container, as its control groups say."""
    return container.encode() in _containers_of(pid)


def kill_containers(folder: Path) -> bool:
    """Kill all processes of all containers of a node; returns whether there was none."""
    wanted = {id_.encode() for id_ in _stored_ids(BackendDir(folder / CONTAINERS))}
    if not wanted:
        return True
    pids = [process.pid for process in living_processes() if _containers_of(process.pid) & wanted]
    kill_processes(pids)
    return not pids


def _containers_of(pid: int) -> set[bytes]:
    return set(_CONTAINER_ID.findall(read_proc(pid, "cgroup") or b""))


def _stored_ids(files: BackendDir) -> set[str]:
    states = (
        directory.state()
        for system_ref in files.systems()
        for ref in files.services(system_ref)
        for directory in files.instance_dirs(ref)
    )
    return {state.container for state in states if state is not None and state.container}


class EngineCleaner:
    """Removes the containers of a node from its engine after the end of the lease, in a thread: the engine may hang."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lease = folder, LeaseFile(folder)
        self._thread: threading.Thread | None = None
        self._is_clean = False

    @property
    def is_clean(self) -> bool:
        """Whether the node has no engine, or its engine has no container of the node since the lease has ended."""
        return self._is_clean or not (self._folder / ENGINE_FILE).exists()

    def reset(self) -> None:
        """Note that there may be containers again."""
        self._is_clean = False

    def work(self) -> None:
        """Remove the containers, unless that is under way or done; returns at once."""
        if not self.is_clean and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        asyncio.run(self._clean())

    async def _clean(self) -> None:
        record = read_record(self._folder / ENGINE_FILE, EngineRecord)
        if record is None:
            return
        client = EngineClient(record.address, timeout_s=ENGINE_TIMEOUT_S)
        label = ContainerNames(read_installation(self._folder / CONTAINERS)).filter
        try:
            containers = await client.list_containers((label,))
            if self._lease.is_valid():  # they may be new
                return
            for container in containers:
                await client.remove_container(container.id, force=True)
            self._is_clean = not containers
        except (EngineRefused, EngineUnavailable) as error:
            log.warning("containers are not removed yet after the end of the lease: %s", error)
            await asyncio.sleep(RETRY_S)
        finally:
            await client.close()
