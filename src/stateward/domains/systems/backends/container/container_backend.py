"""The container backend: instances are containers of an engine, which the container supervisor starts and stops.

Orders, states and the proxies of addresses are those of the local backend, in a folder of their own.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from stateward.access.private_files import create_private_file
from stateward.containers import ContainerEngine, EngineRefusal, EngineRefused, EngineUnavailable, ExecTimedOut
from stateward.domains.systems.backends.container.container_runner import read_output
from stateward.domains.systems.backends.container.container_specs import ContainerNames, EngineReach
from stateward.domains.systems.backends.container.container_supervisor import ContainerSupervisor
from stateward.domains.systems.backends.local.backend import OrderBackend
from stateward.domains.systems.backends.local.instance_dir import BackendDir, old_log
from stateward.domains.systems.backends.local.launch import THIS_HOST, HostPlace
from stateward.domains.systems.backends.port import (
    CommandOutcome,
    LogExcerpt,
    ReadSecrets,
    ReportText,
    ServiceRef,
    SystemRef,
    choose_running,
    no_secrets,
)
from stateward.domains.systems.definition import PinnedImage, Service
from stateward.domains.systems.errors import NetworksOpen, NoRunningInstance
from stateward.workloads.log_files import read_part

INSTALLATION_FILE = "installation"
ON_THIS_HOST = EngineReach()


class ContainerBackend(OrderBackend):
    """Runs instances as containers."""

    def __init__(
        self,
        root: Path,
        engine: ContainerEngine,
        reach: EngineReach = ON_THIS_HOST,
        read_secrets: ReadSecrets = no_secrets,
        place: HostPlace = THIS_HOST,
        *,
        open_networks: bool = False,
    ) -> None:
        self._open_networks = open_networks
        files = BackendDir(root.absolute())
        self._engine, self._names = engine, ContainerNames(read_installation(files.root))
        self._containers = ContainerSupervisor(files, engine, self._names, reach, read_secrets, place)
        super().__init__(files, self._containers)

    @property
    def label(self) -> str:
        """The label of all containers, networks and volumes of this installation."""
        return self._names.filter

    async def pin_images(
        self,
        system_ref: SystemRef,
        services: Mapping[str, Service],
        report: ReportText,
    ) -> dict[str, PinnedImage]:
        """Return what the images of services are now, by path; pulls those that the engine lacks.

        Raises if the containers could be reached by those of another namespace, which nobody has accepted.
        """
        is_shared = any(system.ns != system_ref.ns for system in self._dir.systems())
        if is_shared and not self._open_networks and not await self._engine.isolates_networks():
            raise NetworksOpen(system_ref.ns)
        unpinned = {
            path: service for path, service in services.items() if service.image is not None and service.pinned is None
        }
        pins = self._containers.runner.images
        distinct = {(service.image, service.pull, service.registry_login): service for service in unpinned.values()}
        images = await asyncio.gather(*(pins.pin(service, report) for service in distinct.values()))
        pinned = dict(zip(distinct, images, strict=True))
        return {path: pinned[service.image, service.pull, service.registry_login] for path, service in unpinned.items()}

    async def remove(self, system_ref: SystemRef) -> None:
        """Remove the volumes and the network of a system, and then its folder."""
        labels = self._names.system_filters(system_ref)
        for volume in await self._engine.list_volumes(labels):
            await self._engine.remove_volume(volume.name)
        await self._remove_networks(system_ref)
        await super().remove(system_ref)

    async def leave(self, system_ref: SystemRef) -> None:
        """Remove the folder and the network of a system that has no instances here; its volumes stay."""
        await super().remove(system_ref)
        with suppress(EngineRefused, EngineUnavailable):  # the sweep of networks makes up for it
            await self._remove_networks(system_ref)

    async def _remove_networks(self, system_ref: SystemRef) -> None:
        self._containers.runner.forget_network(system_ref)
        for network in await self._engine.list_networks(self._names.system_filters(system_ref)):
            await self._engine.remove_network(network.id)

    async def logs(self, ref: ServiceRef, instance: str | None, after: int | None, most: int) -> Sequence[LogExcerpt]:
        """Return the logs of instances: what ended containers have left, and then that of the present one."""
        kept = {excerpt.instance: excerpt for excerpt in await super().logs(ref, instance, after, most)}
        live = []
        for directory in self._dir.instance_dirs(ref):
            state, name = directory.state(), directory.folder.name
            if state is not None and state.container and instance in (None, name):
                kept.pop(name, None)
                live.append(await self._live_excerpt(name, directory.log, state.container, after, most))
        return [*kept.values(), *live]

    async def _live_excerpt(self, name: str, log: Path, container: str, after: int | None, most: int) -> LogExcerpt:
        size = log.stat().st_size if log.exists() else 0
        wanted = most if after is None else max(most, 20_000_000)
        try:
            data, total = await read_output(self._engine, container, wanted)
        except EngineRefused as error:
            if error.reason is not EngineRefusal.NOT_FOUND:
                raise
            data, total = b"", 0
        end, first = size + total, size + total - len(data)
        begin = max(0, end - most) if after is None or after > end else after
        text = b""
        if begin < size:
            text = read_part(log, old_log(log), begin, min(most, size - begin))[0]
        live = data[max(0, begin - first) :]
        shown = (text + live)[:most]
        return LogExcerpt(name, shown.decode(errors="replace"), begin + len(shown))

    async def run_command(
        self, ref: ServiceRef, instance: str | None, argv: Sequence[str], timeout_s: float, max_output: int
    ) -> CommandOutcome:
        """Run a command in the container of an instance; one that does not end in time is killed."""
        name = choose_running(str(ref), await self.instances(ref), instance).name
        state = self._dir.instance_dir(ref, name).state()
        if state is None or not state.container:
            raise NoRunningInstance(str(ref), instance)
        try:
            done = await self._engine.exec(state.container, argv, timeout_s=timeout_s, max_output=max_output)
        except ExecTimedOut as error:
            return CommandOutcome(name, None, "", str(error))
        out, err = (output.decode(errors="replace") for output in (done.stdout, done.stderr))
        return CommandOutcome(name, done.exit_code, out, err, truncated=done.truncated)

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Supervise the containers, or wait to take over."""
        try:
            async with super().live():
                yield
        finally:
            await self._containers.runner.close()


def read_installation(root: Path) -> str:
    """Return the id of a data folder, which is made once: the first of several processes wins."""
    create_private_file(root / INSTALLATION_FILE, secrets.token_hex(8))
    return (root / INSTALLATION_FILE).read_text().strip()


def reach_of(address: str) -> EngineReach:
    """Return how the ports of an engine's containers are reached: on this host, or on the engine's."""
    host = urlsplit(address).hostname
    if host is None:
        return ON_THIS_HOST
    try:
        return EngineReach(str(ip_address(host)), host)
    except ValueError:
        return ON_THIS_HOST if host == "localhost" else EngineReach("0.0.0.0", host)  # noqa: S104 - documented
