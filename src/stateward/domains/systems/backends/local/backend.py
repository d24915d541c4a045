"""The local backend: instances are processes of this host, which the backend supervisor starts and stops.

The backend only writes orders into files; one supervisor per folder carries them out. The container backend does the
same, with another supervisor.
"""

import asyncio
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from stateward.aio.threads import finish_in_thread
from stateward.domains.systems.backends.local.backend_supervisor import BackendSupervisor, ReadyAddresses
from stateward.domains.systems.backends.local.instance_command import run_in_process_instance
from stateward.domains.systems.backends.local.instance_dir import (
    PROXY,
    BackendDir,
    InstanceDir,
    InstanceOrder,
    LocalInstanceState,
    old_log,
)
from stateward.domains.systems.backends.local.launch import (
    PROXY_PROGRAM,
    THIS_HOST,
    HostPlace,
)
from stateward.domains.systems.backends.port import (
    CommandOutcome,
    InstancePhase,
    InstanceSpec,
    LogExcerpt,
    ReadSecrets,
    ReportText,
    ServiceInstance,
    ServiceRef,
    SystemRef,
    check_fits,
    choose_node,
    choose_running,
    no_secrets,
)
from stateward.domains.systems.definition import HealthCheck, NodePool, PinnedImage, Service
from stateward.domains.systems.errors import NoRunningInstance
from stateward.workloads.confinement import Confinement
from stateward.workloads.host_ports import free_port, is_port_taken
from stateward.workloads.log_files import read_part
from stateward.workloads.trees import remove_tree

POLL_INTERVAL_S = 0.05


class OrderBackend:
    """Writes the orders for a supervisor of this host; all files are below one folder."""

    def __init__(self, files: BackendDir, supervisor: BackendSupervisor) -> None:
        self._dir, self._supervisor = files, supervisor
        self._seen: dict[ServiceRef, int] = {}  # the changes of a service before it was last read

    async def prepare(self, system_ref: SystemRef) -> Mapping[str, str]:
        """Create the folder of a system."""
        self._dir.system_path(system_ref).mkdir(mode=0o700, parents=True, exist_ok=True)
        return {"host": socket.gethostname(), "folder": str(self._dir.root)}

    async def pin_images(
        self,
        system_ref: SystemRef,  # noqa: ARG002
        services: Mapping[str, Service],  # noqa: ARG002
        report: ReportText,  # noqa: ARG002
    ) -> Mapping[str, PinnedImage]:
        """Return nothing: processes have no images."""
        return {}

    async def instances(self, ref: ServiceRef) -> Sequence[ServiceInstance]:
        """Return the instances of a service."""
        self._seen[ref] = self._supervisor.count_changes(ref)
        return await asyncio.to_thread(self._read_instances, ref)

    def _read_instances(self, ref: ServiceRef) -> list[ServiceInstance]:
        orders = ((directory, directory.order()) for directory in self._dir.instance_dirs(ref))
        return [
            _instance(order, directory.state() or LocalInstanceState())
            for directory, order in orders
            if order is not None
        ]

    async def start(self, ref: ServiceRef, want: InstanceSpec) -> None:
        """Write the order of an instance."""
        await finish_in_thread(partial(self._start, ref, want))
        self._supervisor.wake()

    def _start(self, ref: ServiceRef, want: InstanceSpec) -> None:
        directory = self._dir.instance_dir(ref, want.name)
        if directory.order() is None:
            pool = want.service.node_pool
            with self._dir.pools_lock(ref.system) if pool is not None else nullcontext():
                node = self._placed(ref.system, pool)
                order = InstanceOrder(want.name, want.revision, want.service, node, run_once=want.run_once)
                directory.put_order(order)

    async def stop(self, ref: ServiceRef, name: str) -> None:
        """Write the order to stop an instance."""
        await finish_in_thread(partial(_order_stop, self._dir.instance_dir(ref, name)))
        self._supervisor.wake()

    # --- addresses ---------------------------------------------------------------------------------------------------

    async def address(self, ref: ServiceRef, port: int | None) -> int | None:
        """Order the TCP proxy of a service, or its end if the port has changed."""
        directory = self._dir.instance_dir(ref, PROXY)
        order = directory.order()
        if port is None or (order is not None and port not in (0, order.port)):
            _order_stop(directory)
            self._supervisor.wake()
            return None
        if order is None:
            # A proxy without its port would end, and a check of its health would reach the program that has it.
            if not port or not is_port_taken(port):
                directory.put_order(self._proxy_order(ref, port or free_port()))
                self._supervisor.wake()
            return None
        return order.port if _stands(directory, order) else None

    async def address_problem(self, ref: ServiceRef, port: int | None) -> str:
        """Return why the TCP proxy accepts no connections at the wanted port."""
        directory = self._dir.instance_dir(ref, PROXY)
        order = directory.order()
        if port is None or (order is not None and port in (0, order.port) and _stands(directory, order)):
            return ""
        if order is None and port and is_port_taken(port):
            return f"its address is not open: port {port} of this host is taken by another program"
        state = directory.state()
        why = f": {state.why}" if order is not None and state is not None and state.why else ""
        return f"its address {port or 'at any port'} is not open{why}"

    def _proxy_order(self, ref: ServiceRef, port: int) -> InstanceOrder:
        ready = str(self._dir.service_path(ref) / "ready.json")
        command = (sys.executable, "-I", "-S", PROXY_PROGRAM, ready, str(port))
        check = HealthCheck(tcp=True, interval=5.0, timeout=5.0)
        return InstanceOrder(PROXY, PROXY, Service(command=command, health=check, drain=0.05), port=port)

    def has_proxy(self, ref: ServiceRef) -> bool:
        """Tell whether this host has a TCP proxy for a service, or is about to start one."""
        return self._dir.instance_dir(ref, PROXY).order() is not None

    def proxied_services(self) -> list[ServiceRef]:
        """Return the services that have a TCP proxy on this host."""
        refs = (ref for system_ref in self._dir.systems() for ref in self._dir.services(system_ref))
        return [ref for ref in refs if self.has_proxy(ref)]

    def wake(self) -> None:
        """Start the next round of the supervisor at once."""
        self._supervisor.wake()

    # --- removal -----------------------------------------------------------------------------------------------------

    def folder_problem(self, folder: str) -> str:  # noqa: ARG002
        """Return nothing: containers have no folders of the host."""
        return ""

    async def forget(self, ref: ServiceRef, *, keep_logs: bool = False) -> None:
        """Remove the folder of a service; its logs go with it, or are the kept ones of its path from now on."""
        while (proxy := self._dir.instance_dir(ref, PROXY)).order() is not None:
            _order_stop(proxy)
            self._supervisor.wake()
            await asyncio.sleep(POLL_INTERVAL_S)
        self._seen.pop(ref, None)
        await asyncio.to_thread(self._dir.drop_service, ref, keep_logs=keep_logs)

    async def remove(self, system_ref: SystemRef) -> None:
        """Remove the folder of a system."""
        await asyncio.to_thread(remove_tree, self._dir.system_path(system_ref))

    # --- node pools --------------------------------------------------------------------------------------------------

    async def ensure_pool(self, system_ref: SystemRef, name: str, pool: NodePool) -> None:
        """Store the size of a node pool; all its nodes are this host."""
        await finish_in_thread(partial(self._put_pool, system_ref, name, pool))

    def _put_pool(self, system_ref: SystemRef, name: str, pool: NodePool) -> None:
        with self._dir.pools_lock(system_ref):
            check_fits(name, pool, self._used(system_ref))
            self._dir.put_pools(system_ref, {**self._dir.pools(system_ref), name: pool})

    async def remove_pool(self, system_ref: SystemRef, name: str) -> None:
        """Remove a node pool."""
        await finish_in_thread(partial(self._drop_pool, system_ref, name))

    def _drop_pool(self, system_ref: SystemRef, name: str) -> None:
        with self._dir.pools_lock(system_ref):
            kept = {key: pool for key, pool in self._dir.pools(system_ref).items() if key != name}
            self._dir.put_pools(system_ref, kept)

    def _placed(self, system_ref: SystemRef, pool: str | None) -> str | None:
        known = self._dir.pools(system_ref)
        return None if pool is None or pool not in known else choose_node(pool, known[pool], self._used(system_ref))

    def _used(self, system_ref: SystemRef) -> Counter[str]:
        directories = (
            directory for ref in self._dir.services(system_ref) for directory in self._dir.instance_dirs(ref)
        )
        orders = (directory.order() for directory in directories)
        return Counter(order.node for order in orders if order is not None and order.node is not None)

    # --- looking -----------------------------------------------------------------------------------------------------

    async def logs(self, ref: ServiceRef, instance: str | None, after: int | None, most: int) -> Sequence[LogExcerpt]:
        """Return the logs of instances, ended ones included; of a service that is gone, those that were kept."""
        return await asyncio.to_thread(self._read_logs, ref, instance, after, most)

    def _read_logs(self, ref: ServiceRef, instance: str | None, after: int | None, most: int) -> list[LogExcerpt]:
        folder = self._dir.service_path(ref) / "logs"
        folder = folder if folder.is_dir() else self._dir.kept_logs_path(ref)
        files = sorted(folder.glob("*.log"), key=lambda file: file.stat().st_mtime) if folder.is_dir() else []
        chosen = [file for file in files if file.stem == instance or (instance is None and file.stem != PROXY)]
        return [read_excerpt(file, after, most) for file in chosen]

    async def servers(self, ref: ServiceRef) -> Mapping[str, str]:  # noqa: ARG002 - the port's
        """Return nothing: this server reaches all instances."""
        return {}

    async def pause(self, ref: ServiceRef, seconds: float) -> None:
        """Wait until a service has changed since its instances were read."""
        await self._supervisor.wait_for_change(ref, self._seen.get(ref, -1), seconds)

    def changed_services(self) -> AsyncIterator[ServiceRef]:
        """Yield the services that the supervisor of this process changes; none if another process supervises."""
        return aiter(self._supervisor.changed_services)

    def live(self) -> AbstractAsyncContextManager[None]:
        """Supervise the instances, or wait to take over."""
        return self._supervisor.live()


class LocalBackend(OrderBackend):
    """Runs instances as processes of this host."""

    def __init__(
        self,
        root: Path,
        confinement: Confinement | None = None,
        read_secrets: ReadSecrets = no_secrets,
        place: HostPlace = THIS_HOST,
        ready_addresses: ReadyAddresses | None = None,
    ) -> None:
        files = BackendDir(root.absolute())
        confinement = (confinement or Confinement()).hiding(files.root)
        super().__init__(files, BackendSupervisor(files, confinement, read_secrets, place, ready_addresses))
        self._confinement, self._read_secrets = confinement, read_secrets

    def folder_problem(self, folder: str) -> str:
        """Return what the folder of a service must be; programs see only some folders of this host."""
        return self._confinement.folder_problem(Path(folder))

    async def run_command(
        self, ref: ServiceRef, instance: str | None, argv: Sequence[str], timeout_s: float, max_output: int
    ) -> CommandOutcome:
        """Run a command in the confinement and the folder of an instance."""
        name = choose_running(str(ref), await self.instances(ref), instance).name
        directory = self._dir.instance_dir(ref, name)
        order, state = directory.order(), directory.state()
        if order is None or state is None or state.process is None:
            raise NoRunningInstance(str(ref), instance)
        wanted = {secret.secret for secret in order.service.secrets.values()}
        secrets = await self._read_secrets(ref.system.ns, wanted) if wanted else {}
        return await run_in_process_instance(
            directory, order, state, secrets, self._confinement, argv, timeout_s, max_output
        )


def _order_stop(directory: InstanceDir) -> None:
    order = directory.order()
    if order is not None and not order.stop:
        directory.put_order(replace(order, stop=True))


def _stands(proxy: InstanceDir, order: InstanceOrder) -> bool:
    return (proxy.state() or LocalInstanceState()).ready and not order.stop


def _instance(order: InstanceOrder, state: LocalInstanceState) -> ServiceInstance:
    return ServiceInstance(
        name=order.name,
        revision=order.revision,
        phase=InstancePhase.STOPPING if order.stop else state.phase,
        ready=state.ready and not order.stop,
        restarts=state.restarts,
        since=state.since,
        pid=None if state.process is None else state.process.pid,
        port=state.port,
        node=order.node,
        why=state.why,
        exit_status=state.exit_status,
        unlimited=state.unlimited,
        stop_s=order.service.stop_s if order.stop else 0.0,
    )


def read_excerpt(file: Path, after: int | None, most: int) -> LogExcerpt:
    """Return a part of a log: its end, or what is after an offset."""
    data, end = read_part(file, old_log(file), after, most)
    return LogExcerpt(file.stem, data.decode(errors="replace"), end)
