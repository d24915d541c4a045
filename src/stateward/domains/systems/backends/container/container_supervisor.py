"""The supervisor of all instances that are containers of one engine.

It is elected as the one of the local backend is. Containers of the installation that belong to no order are removed,
and so are networks of systems that are gone. Volumes are removed with their system alone: what they hold cannot be made
again.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from stateward.aio.supervise import background, cancel_tasks, supervise
from stateward.containers import ContainerEngine, ContainerRecord, EngineRefused, EngineUnavailable
from stateward.domains.systems.backends.container.container_instance import ContainerInstance
from stateward.domains.systems.backends.container.container_runner import ContainerRunner
from stateward.domains.systems.backends.container.container_specs import (
    INSTANCE,
    SERVICE,
    ContainerNames,
    EngineReach,
    owner_of,
)
from stateward.domains.systems.backends.container.engine_listing import EngineListing
from stateward.domains.systems.backends.local.backend_supervisor import BackendSupervisor, log
from stateward.domains.systems.backends.local.instance_dir import PROXY, BackendDir, InstanceDir, InstanceOrder
from stateward.domains.systems.backends.local.instance_supervisor import InstanceSupervisor
from stateward.domains.systems.backends.local.launch import THIS_HOST, HostPlace
from stateward.domains.systems.backends.port import ReadSecrets, ServiceRef
from stateward.workloads.confinement import Confinement
from stateward.workloads.host_ports import LOOPBACK

NETWORK_SWEEP_S = 60.0
"""The time between two comparisons of networks with the systems."""


class ContainerSupervisor(BackendSupervisor):
    """Supervises the containers of one installation."""

    round_interval_s, round_pause_s = 0.1, 0.02

    def __init__(
        self,
        files: BackendDir,
        engine: ContainerEngine,
        names: ContainerNames,
        reach: EngineReach,
        read_secrets: ReadSecrets,
        place: HostPlace = THIS_HOST,
    ) -> None:
        super().__init__(files, Confinement(), read_secrets, place)
        listing = EngineListing(engine, names.filter, self.wake)
        self.runner = ContainerRunner(engine, names, reach, listing, read_secrets, self.wake, place)
        self._swept_at = 0.0
        self._removals: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Supervise, or wait for the lock; ends when no call is under way any more."""
        try:
            async with super().live():
                yield
        finally:
            instances = [instance for instance in self._instances.values() if isinstance(instance, ContainerInstance)]
            await asyncio.gather(*(instance.wait_closed() for instance in instances))
            await cancel_tasks(self._removals)

    def _observing(self) -> AbstractAsyncContextManager[None]:
        listing = self.runner.listing
        loops: dict[str, Any] = {
            "listing of containers": listing.keep_listing,
            "events of containers": listing.keep_watching,
            "sweep of container networks": self._keep_sweeping_networks,
        }
        return background(*(supervise(name, loop, log) for name, loop in loops.items()))

    def _new_instance(self, directory: InstanceDir, order: InstanceOrder) -> InstanceSupervisor:
        if order.name == PROXY:
            return super()._new_instance(directory, order)
        return ContainerInstance(directory, order, self._confinement, self.runner)

    async def _run_round(self) -> None:
        await super()._run_round()
        listing = self.runner.listing.current
        if listing is not None and listing.began > max(self._swept_at, self.runner.removed_at):
            self._swept_at = listing.began
            known = {instance.key for instance in self._instances.values() if isinstance(instance, ContainerInstance)}
            for key in listing.containers.keys() - known:
                if self._is_orphan(listing.containers[key]):
                    self._start_removal(self._remove_orphan(listing.containers[key]))

    def _is_orphan(self, record: ContainerRecord) -> bool:
        """Tell whether no order wants a container; a folder that cannot be read proves nothing."""
        ref = ServiceRef(owner_of(record.labels), record.labels.get(SERVICE, ""))
        directory = self._dir.instance_dir(ref, record.labels.get(INSTANCE, ""))
        return str(directory.folder) in self._instances or (
            (self._dir.root / "keeper.lock").exists() and _is_missing(directory.folder / "order.json")
        )

    def _ready_ports(self, ref: ServiceRef) -> Sequence[int | str]:
        """Return the ports of the ready instances, with the host of the engine if that is another one."""
        reach, ports = self.runner.reach, super()._ready_ports(ref)
        return ports if reach.host == LOOPBACK else [f"{reach.host}:{port}" for port in ports]

    def _start_removal(self, removal: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(removal)
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)

    async def _remove_orphan(self, record: ContainerRecord) -> None:
        with suppress(EngineRefused, EngineUnavailable):  # the next listing shows it again
            async with self.runner.starts:
                if await self.runner.engine.remove_container(record.id, force=True):
                    log.warning("container %s belongs to no instance; it was removed", record.name)
        self.runner.listing.request_refresh()

    async def _keep_sweeping_networks(self) -> None:
        while True:
            with suppress(EngineRefused, EngineUnavailable):
                for network in await self.runner.engine.list_networks((self.runner.names.filter,)):
                    if (self._dir.root / "keeper.lock").exists() and _is_missing(
                        self._dir.system_path(owner_of(network.labels))
                    ):
                        await self.runner.engine.remove_network(network.id)
            await asyncio.sleep(NETWORK_SWEEP_S)


def _is_missing(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
