"""A site of containers: a cluster is a network with nodes, an app is containers in its cluster's network.

The local state tells what was ordered, and is saved before anything is created. What exists is read from a listing of
the engine, by the labels of containers, networks and volumes. So every order may be interrupted at any point, and is
executed again from what the engine has.

Restarts are never the engine's: a container that has ended is noticed, and the cloudlet's policy decides.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stateward.agents.local_state import Deployed, LocalState
from stateward.agents.messages import (
    AgentOrder,
    CommandRequest,
    Existing,
    LogPart,
    LogRequest,
    OrderAction,
    SiteBackend,
)
from stateward.agents.published_ports import PublishedAddress
from stateward.agents.site import InstanceMeasure, ReportProgress, SiteCommandResult, SiteError
from stateward.containers import (
    ContainerEngine,
    ContainerNetworkSpec,
    ContainerRecord,
    ContainerSpec,
    ContainerState,
    EngineRefused,
    EngineUnavailable,
    RegistryLogin,
    start_created,
)
from stateward.domains.edge.sites.app_containers import container_spec, volume_names, volume_specs
from stateward.domains.edge.sites.app_manifest import AppPart, check_backend, check_host_ports, parts_of
from stateward.domains.edge.sites.container_calls import ENGINE_PATIENCE_S, EngineCalls
from stateward.domains.edge.sites.container_identity import (
    CLUSTER_LABEL,
    INSTANCE_LABEL,
    Copy,
    SiteNames,
    by_instance,
    copies_down,
    copies_of,
    copy_in,
    describe_state,
    grace_of,
    is_up,
    published_addresses,
    summarize,
)
from stateward.domains.edge.sites.container_images import ImageSource
from stateward.domains.edge.sites.container_nodes import NodeSize, PlacedApp, node_size, place_apps, wanted_of
from stateward.domains.edge.sites.container_reader import ContainerReader, read_program
from stateward.domains.edge.sites.output_excerpt import last_output
from stateward.errors import BadInput, count_text
from stateward.naming import ADDRESS_PORTS

STABLE_AFTER_S = 0.5
"""Seconds that an app must run before it counts as started."""

MAX_INSPECTED = 20
"""The number of an app's ended containers that an observation inspects for their reason."""

MAX_LOG_LINES = 20


class ContainerOptions(Struct, frozen=True):
    """The choices of the administrator of an agent's host.

    `publish_at` is the address at which published ports listen, and `address_ports` are the ports of the host that apps
    can name. `archives` is the folder of images.
    """

    publish_at: str = "127.0.0.1"
    archives: Path | None = None
    logins: Mapping[str, RegistryLogin] = {}
    patience_s: float = ENGINE_PATIENCE_S
    stable_after_s: float = STABLE_AFTER_S
    address_ports: str = ADDRESS_PORTS


class SiteListing(Struct, frozen=True):
    """What the engine has of this installation, by instance; networks by their cluster."""

    containers: Mapping[str, Sequence[ContainerRecord]]
    networks: Mapping[str, str]
    volumes: Mapping[str, Sequence[str]]

    @property
    def instances(self) -> set[str]:
        """The instances that something is there of."""
        return {*self.containers, *self.networks, *self.volumes} - {""}


class ContainerSite:
    """Clusters and apps as containers of one engine."""

    def __init__(
        self, folder: Path, engine: ContainerEngine, installation: str, options: ContainerOptions | None = None
    ) -> None:
        self._options = options or ContainerOptions()
        self._engine, self._names = engine, SiteNames(installation)
        self._state = LocalState(folder / "containers")
        self._images = ImageSource(engine, self._options.archives, self._options.logins)
        self._calls = EngineCalls(self._options.patience_s)
        self._reader = ContainerReader(engine, self._names, self._state)
        self._ports: dict[str, tuple[PublishedAddress, ...]] = {}
        self._orders = 0  # orders that run
        self._sweeping = asyncio.Lock()  # held while what nobody ordered is removed: no order begins meanwhile

    # --- observation -------------------------------------------------------------------------------------------------

    async def observe(self) -> Mapping[str, Existing]:
        """Return the things in the local state and those that labels name; a thing that does not run is not whole."""
        try:
            listing = await self._list()
            self._state.reload()  # after the listing: an order saves its thing before it creates anything
            await self._sweep(listing)
            problems = {thing.name: await self._problem(thing, listing) for thing in self._state}
        except (EngineUnavailable, EngineRefused) as error:
            raise SiteError(str(error)) from error
        unknown = {name: _left_over(name, listing) for name in listing.instances if self._state.get(name) is None}
        self._ports = {name: published_addresses(some) for name, some in listing.containers.items()}
        known = ((thing, problems.get(thing.name, "")) for thing in self._state)
        return {
            **{name: Existing(1, False, problem) for name, problem in unknown.items()},
            **{
                thing.name: Existing(thing.generation, not problem, problem, self.ports_of(thing.name))
                for thing, problem in known
            },
        }

    def ports_of(self, name: str) -> tuple[PublishedAddress, ...]:
        """Return the published ports of an app."""
        return self._ports.get(name, ())

    async def _list(self) -> SiteListing:
        """List all that the engine has of this installation: one call for each kind of thing."""
        ours = (self._names.label,)
        containers = by_instance(await self._engine.list_containers(ours))
        networks = {
            network.labels.get(INSTANCE_LABEL, ""): network.name for network in await self._engine.list_networks(ours)
        }
        volumes: dict[str, list[str]] = {}
        for volume in await self._engine.list_volumes(ours):
            volumes.setdefault(volume.labels.get(INSTANCE_LABEL, ""), []).append(volume.name)
        return SiteListing(containers, networks, volumes)

    async def _sweep(self, listing: SiteListing) -> None:
        """Remove what a killed agent has left.

        That is what one of its calls has created after its instance was deleted, and was never used; and the volumes
        that the last update of an app, which has succeeded, no longer names.
        """
        async with self._sweeping:
            if self._orders:
                return
            for name in [instance for instance in listing.instances if self._state.get(instance) is None]:
                containers = listing.containers.get(name, ())
                for container in containers:
                    if container.state is ContainerState.CREATED:
                        await self._engine.remove_container(container.id)
                if name in listing.networks:
                    with suppress(EngineRefused):  # it is in use
                        await self._engine.remove_network(listing.networks[name])
            for app in [thing for thing in self._state if thing.kind == "appinst" and thing.whole]:
                named = volume_names(self._names, app.name, parts_of(read_program(app.spec)))
                for volume in [candidate for candidate in listing.volumes.get(app.name, ()) if candidate not in named]:
                    with suppress(EngineRefused):  # it is in use
                        await self._engine.remove_volume(volume)

    async def _problem(self, thing: Deployed, listing: SiteListing) -> str:
        """Return what of a thing is not as it should be, or nothing."""
        if not thing.whole:
            return "it is not complete"
        if thing.kind != "appinst":
            return "" if thing.name in listing.networks else "its network is gone"
        containers, network = listing.containers.get(thing.name, ()), listing.networks.get(thing.host, "")
        copies = copies_of(parts_of(read_program(thing.spec)), thing.generation)
        if not any(True for _ in copies_down(copies, containers, network)):
            return ""
        down = [container for container in containers if not is_up(container, network)][:MAX_INSPECTED]
        seen = {container.id: await self._inspect(container) for container in down}
        return summarize(
            list(copies_down(copies, (seen.get(container.id, container) for container in containers), network)),
            len(copies),
        )

    async def _inspect(self, container: ContainerRecord) -> ContainerRecord:
        """Return what the engine knows of a container; a listing does not tell why one has ended."""
        try:
            return await self._engine.inspect_container(container.id)
        except EngineRefused:
            return container  # it was removed meanwhile

    # --- orders ------------------------------------------------------------------------------------------------------

    async def execute(self, order: AgentOrder, report_progress: ReportProgress) -> None:
        """Create, update or delete a cluster or an app."""
        async with self._sweeping:
            self._orders += 1
        try:
            await self._execute(order, report_progress)
        except (EngineRefused, EngineUnavailable, BadInput) as error:
            raise SiteError(str(error)) from error
        finally:
            self._orders -= 1

    async def _execute(self, order: AgentOrder, report_progress: ReportProgress) -> None:
        spec = msgspec.json.decode(order.spec) if order.spec else {}
        thing = self._state.get(order.name)
        kind = str(spec.get("kind") or (thing.kind if thing else "clusterinst"))
        if order.work is OrderAction.DELETE:
            await self._remove(order, report_progress)
        elif kind == "appinst":
            await self._start_app(order, report_progress)
        else:
            await self._make_cluster(order, spec, report_progress)

    async def close(self) -> None:
        """Stop the probes, and close the engine's connections; the containers go on."""
        await self._reader.close()
        await self._images.close()
        await self._engine.close()

    async def measure(self) -> Mapping[str, InstanceMeasure]:
        """Measure all containers, and take the verdicts of the probes."""
        return await self._reader.measure()

    async def read_log(self, request: LogRequest) -> Sequence[LogPart]:
        """Return the output of an app's containers, or of one."""
        return await self._reader.read_log(request)

    async def run_command(self, request: CommandRequest) -> SiteCommandResult:
        """Run a command in a container of an app."""
        return await self._reader.run_command(request)

    # --- clusters ----------------------------------------------------------------------------------------------------

    async def _make_cluster(
        self, order: AgentOrder, spec: Mapping[str, object], report_progress: ReportProgress
    ) -> None:
        """Create a cluster's network, and place its apps on the requested nodes."""
        if spec.get("setup"):
            raise BadInput("setup", spec["setup"], f"empty on a cloudlet with the back end {SiteBackend.CONTAINER}")
        nodes, size = int(str(spec.get("nodes", 1))), node_size(spec)
        self._place(order.name, nodes, size)  # before anything is changed: it may not fit
        parts = tuple(f"{order.name}-{number + 1}" for number in range(nodes))
        thing = Deployed(order.name, "clusterinst", order.generation, False, "", order.spec, parts)
        self._state.save(thing)
        report_progress(f"creating a network for {count_text(nodes, 'node')}", 0, nodes)
        network = ContainerNetworkSpec(
            self._names.name(order.name), self._names.key(order.name), self._names.labels(order)
        )
        await self._calls.ask(report_progress, self._engine.create_network, network)
        for app, placed in self._place(order.name, nodes, size).items():
            self._state.save(replace(self._known(app), nodes=placed))
        self._state.save(replace(thing, whole=True))

    def _place(
        self, cluster: str, nodes: int, size: NodeSize, changed: PlacedApp | None = None
    ) -> dict[str, tuple[int, ...]]:
        """Return the nodes of a cluster's apps; one that is created or changed is placed after all others."""
        apps = [
            PlacedApp(thing.name, wanted_of(parts_of(read_program(thing.spec))), thing.nodes)
            for thing in self._state
            if thing.kind == "appinst" and thing.host == cluster and (changed is None or thing.name != changed.name)
        ]
        return place_apps([*apps, *([changed] if changed else [])], nodes, size)

    # --- apps --------------------------------------------------------------------------------------------------------

    async def _start_app(self, order: AgentOrder, report_progress: ReportProgress) -> None:
        """Replace an app's containers by those of this generation.

        The former ones are removed before the new ones start, because they hold the published ports and the volumes.
        Volumes that are no longer named are removed when the new ones run: otherwise the undo needs them.
        """
        program = read_program(order.spec)
        check_backend(program, SiteBackend.CONTAINER)
        check_host_ports(program, self._options.address_ports)
        parts = parts_of(program)
        size, copies = self._save_app(order, parts), copies_of(parts, order.generation)
        for part in parts:
            await self._calls.ask(report_progress, self._images.ensure, part, report_progress)
        volumes = volume_specs(self._names, order, parts)
        for volume in volumes:
            await self._calls.ask(report_progress, self._engine.create_volume, volume)
        by_name = {part.name: part for part in parts}
        publish_at = self._options.publish_at
        specs = [container_spec(self._names, order, by_name[copy.part], copy, size, publish_at) for copy in copies]
        await self._create(specs, report_progress)
        containers = await self._containers_of(order.name, report_progress)
        keep = {spec.name for spec in specs}
        await self._remove_containers(
            [container for container in containers if container.name not in keep], report_progress
        )
        await self._start(specs, report_progress)
        await self._check_stable(order, copies, report_progress)
        self._state.save(replace(self._known(order.name), whole=True))
        with suppress(EngineRefused, EngineUnavailable):  # the app runs, and the next sweep removes what is left
            await self._remove_volumes(order.name, {volume.name for volume in volumes}, report_progress)

    def _save_app(self, order: AgentOrder, parts: Sequence[AppPart]) -> NodeSize:
        """Place an app and save it, in one step: orders run side by side. Returns the size of its cluster's nodes."""
        cluster = self._state.get(order.host)
        if cluster is None or not cluster.whole:
            raise SiteError(f"there is no cluster {order.host!r} here")
        size, former = node_size(msgspec.json.decode(cluster.spec)), self._state.get(order.name)
        changed = PlacedApp(order.name, wanted_of(parts), former.nodes if former else ())
        nodes = self._place(order.host, len(cluster.parts), size, changed)[order.name]
        copies = tuple(map(str, copies_of(parts, order.generation)))
        self._state.save(
            Deployed(order.name, "appinst", order.generation, False, order.host, order.spec, copies, nodes=nodes)
        )
        return size

    def _known(self, name: str) -> Deployed:
        thing = self._state.get(name)
        if thing is None:
            raise SiteError(f"the local state of {name} was removed")
        return thing

    async def _create(self, specs: Sequence[ContainerSpec], report_progress: ReportProgress) -> None:
        async def create(spec: ContainerSpec) -> None:
            await self._calls.ask(report_progress, self._engine.create_container, spec)

        await self._calls.for_each(create, specs)

    async def _start(self, specs: Sequence[ContainerSpec], report_progress: ReportProgress) -> None:
        numbers = iter(range(1, len(specs) + 1))

        async def start(spec: ContainerSpec) -> None:
            report_progress(f"starting container {spec.name}", next(numbers), len(specs))

            async def create_again() -> str:
                report_progress(f"creating container {spec.name} anew: the engine was killed while it started it")
                return await self._engine.create_container(spec)

            await self._calls.ask(report_progress, start_created, self._engine, spec.name, create_again)

        await self._calls.for_each(start, specs)

    async def _check_stable(self, order: AgentOrder, copies: Sequence[Copy], report_progress: ReportProgress) -> None:
        """Return if all containers run a little after their start; otherwise tell why one has ended."""
        await asyncio.sleep(self._options.stable_after_s)
        network = self._names.name(order.host)
        containers = await self._containers_of(order.name, report_progress)
        by_copy = {copy_in(container.labels): container for container in containers}
        for copy in copies:
            container = by_copy.get(copy)
            if container is None:
                raise SiteError(f"container {copy} was removed while the app was started")
            if not is_up(container, network):
                why, output = describe_state(await self._inspect(container)), await self._read_output(container.id)
                raise SiteError(f"container {copy} {why} at once{output and f'; its last output: {output}'}")
        self._ports[order.name] = published_addresses(containers)
        for address in self._ports[order.name]:
            report_progress(f"published: {address}")

    async def _read_output(self, container: str) -> str:
        """Return the last lines of a container's output."""
        try:
            chunks = [chunk.data async for chunk in self._engine.read_logs(container, tail=MAX_LOG_LINES)]
        except (EngineRefused, EngineUnavailable):
            return ""
        return last_output(b"".join(chunks).decode(errors="replace"), ())

    # --- removal -----------------------------------------------------------------------------------------------------

    async def _remove(self, order: AgentOrder, report_progress: ReportProgress) -> None:
        """Remove all that has a thing's labels, whether the local state knows it or not; with a cluster, its apps'.

        Volumes that are kept are still found by their labels, so that a later delete removes them.
        """
        name = order.name
        thing = self._state.get(name)
        if thing is not None:
            self._state.save(replace(thing, whole=False))
        containers = await self._calls.ask(report_progress, self._engine.list_containers, (self._names.label,))
        ours = [
            container
            for container in containers
            if name in (container.labels.get(INSTANCE_LABEL), container.labels.get(CLUSTER_LABEL))
        ]
        await self._remove_containers(ours, report_progress)
        if not order.keep_data:
            await self._remove_volumes(name, (), report_progress)
        for network in await self._calls.ask(report_progress, self._engine.list_networks, (self._names.label,)):
            if network.labels.get(INSTANCE_LABEL) == name:
                await self._calls.ask(report_progress, self._engine.remove_network, network.name)
        self._state.remove(name)

    async def _containers_of(self, name: str, report_progress: ReportProgress) -> Sequence[ContainerRecord]:
        containers = await self._calls.ask(report_progress, self._engine.list_containers, (self._names.label,))
        return [container for container in containers if container.labels.get(INSTANCE_LABEL) == name]

    async def _remove_containers(self, containers: Sequence[ContainerRecord], report_progress: ReportProgress) -> None:
        """Stop containers by their signal, and remove them."""
        if containers:
            report_progress(f"ending {len(containers)} containers", 0, len(containers))

        async def remove(container: ContainerRecord) -> None:
            if container.state is ContainerState.RUNNING:
                with suppress(EngineRefused):  # it is removed by force
                    await self._calls.ask(
                        report_progress, self._engine.stop_container, container.id, grace_of(container)
                    )
            await self._calls.ask(report_progress, self._engine.remove_container, container.id, force=True)

        await self._calls.for_each(remove, containers)

    async def _remove_volumes(self, name: str, keep: Collection[str], report_progress: ReportProgress) -> None:
        """Remove the volumes of an app, except some."""
        for volume in await self._calls.ask(report_progress, self._engine.list_volumes, (self._names.label,)):
            if volume.labels.get(INSTANCE_LABEL) == name and volume.name not in keep:
                await self._calls.ask(report_progress, self._engine.remove_volume, volume.name)


def _left_over(name: str, listing: SiteListing) -> str:
    """Return what is wrong with a thing that the local state does not know."""
    if name in listing.containers or name in listing.networks:
        return "the agent has no record of it"
    return "only its volumes are left"
