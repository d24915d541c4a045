"""Measurement of clusters and apps that are containers: one listing and one request for statistics for all of them."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from stateward.agents.local_state import Deployed
from stateward.agents.site import InstanceMeasure, NodeMeasure
from stateward.containers import ContainerRecord, ContainerState, ContainerStats
from stateward.domains.edge.sites.app_manifest import AppPart
from stateward.domains.edge.sites.app_probes import ProbedApp
from stateward.domains.edge.sites.container_connections import Connections
from stateward.domains.edge.sites.container_identity import Copy, copies_of, copy_in
from stateward.workloads.meters import RateMeter

NO_REQUESTS: Mapping[str, int] = {}


class ContainerUse(Struct, frozen=True):
    """What a container uses: cores, bytes of memory, and established connections to it; None is not known."""

    cpu: float | None
    memory: int
    connections: int | None = None


def container_uses(
    stats: Sequence[ContainerStats], cores: RateMeter, connections: Mapping[str, Connections]
) -> dict[str, ContainerUse]:
    """Return what containers use, by id; `cores` has their processor time at the previous measurement."""
    rates = cores.rates({sample.id: sample.cpu_s for sample in stats})
    return {
        sample.id: ContainerUse(
            rates.get(sample.id),
            sample.memory_bytes,
            connections[sample.id].established if sample.id in connections else None,
        )
        for sample in stats
    }


def measure_things(
    things: Collection[Deployed],
    parts: Mapping[str, Sequence[AppPart]],
    containers: Mapping[str, Sequence[ContainerRecord]],
    uses: Mapping[str, ContainerUse],
    requests: Mapping[str, int] = NO_REQUESTS,
) -> dict[str, InstanceMeasure]:
    """Return the measures of clusters and apps; `parts`, `containers` and `requests` are those of the apps, by name."""
    measures: dict[str, InstanceMeasure] = {}
    on_nodes: dict[tuple[str, int], list[ContainerUse]] = {}
    for app in things:
        if app.kind == "appinst":
            nodes = dict(zip(copies_of(parts[app.name], app.generation), app.nodes, strict=False))
            own = [
                (copy_in(container.labels), uses[container.id])
                for container in containers.get(app.name, ())
                if container.id in uses
            ]
            measures[app.name] = replace(_sum(use for _, use in own), requests=requests.get(app.name, 0))
            for copy, use in own:
                on_nodes.setdefault((app.host, nodes.get(copy, 0) if copy else 0), []).append(use)
    for cluster in things:
        if cluster.kind != "appinst":
            sums = [_sum(on_nodes.get((cluster.name, number), ())) for number in range(len(cluster.parts))]
            loads = tuple(
                NodeMeasure(key, True, node.cpu, node.memory) for key, node in zip(cluster.parts, sums, strict=True)
            )
            every = [use for (host, _), node_uses in on_nodes.items() if host == cluster.name for use in node_uses]
            total = _sum(every)
            below = sum(requests.get(app.name, 0) for app in things if app.host == cluster.name)
            measures[cluster.name] = replace(total, requests=below, nodes=loads)
    return measures


def _sum(uses: Iterable[ContainerUse]) -> InstanceMeasure:
    listed = list(uses)
    cores, connections = [use.cpu for use in listed], [use.connections for use in listed]
    return InstanceMeasure(
        None if None in cores else sum(cpu for cpu in cores if cpu is not None),
        sum(use.memory for use in listed),
        None if None in connections else sum(count for count in connections if count is not None),
    )


# --- probes ----------------------------------------------------------------------------------------------------------


def probed_copies(
    app: Deployed, parts: Sequence[AppPart], containers: Sequence[ContainerRecord], network: str
) -> dict[str, ProbedApp]:
    """Return the copies of an app that have a probe and run, by name; a published port is probed at the host."""
    running = {
        copy_in(container.labels): container for container in containers if container.state is ContainerState.RUNNING
    }
    probed = {}
    for part in parts:
        for number in range(part.count):
            container = running.get(Copy(app.generation, part.name, number))
            if part.probe is None or container is None:
                continue
            name = f"{app.name}/{part.name}/{number}"
            address, port = container.ips.get(network, ""), getattr(part.probe, "port", 0)
            for published in container.ports:
                if published.container_port == port and published.protocol == "tcp":
                    address, port = published.host_ip, published.host_port
            probed[name] = ProbedApp(name, app.generation, part.probe, address, port)
    return probed
