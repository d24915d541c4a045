"""Nodes of clusters of containers: slices of the host's capacity, and the placement of apps on them.

All containers of a host share one kernel, so a node is no machine. It is a share of processors and memory, as large as
its flavor. Every copy of an app is placed on a node: the limits that the copies on a node ask for never exceed it, and
no container has a limit above its node's. Placement is a record alone; a copy moves to another node without a restart.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from stateward.agents.site import SiteError
from stateward.domains.edge.sites.app_manifest import AppPart, PartResources
from stateward.drivers.process.shell_machine import NAMED_SIZES, size_of

MIB = 1 << 20


class NodeSize(Struct, frozen=True):
    """The capacity of a node; 0 means no limit."""

    cpu: float = 0.0
    memory_mib: int = 0


UNLIMITED = NodeSize()


def node_size(spec: Mapping[str, object]) -> NodeSize:
    """Return the capacity of a cluster's nodes: its flavor's cores and memory, or else its size; no limit without."""
    if not spec.get("flavor"):
        return UNLIMITED
    cores, memory = float(str(spec.get("cores") or 0)), int(str(spec.get("memory") or 0))
    if cores or memory:
        return NodeSize(cores, max(1, memory // MIB) if memory else 0)
    size = size_of(str(spec.get("size", "")))
    if size is None:
        raise SiteError(f"size: {spec.get('size')!r} must be one of {', '.join(NAMED_SIZES)}, or such as 2c512m")
    return NodeSize(size.processors, size.mib)


class NodeUse(Struct):
    """What the copies on a node ask for."""

    cpu: float = 0.0
    memory_mib: int = 0
    copies: int = 0

    def add(self, wanted: PartResources) -> None:
        """Count a copy."""
        self.cpu, self.memory_mib, self.copies = (
            self.cpu + wanted.cpu,
            self.memory_mib + wanted.memory_mib,
            self.copies + 1,
        )

    def fits(self, wanted: PartResources, size: NodeSize) -> bool:
        """Tell whether a copy fits, too."""
        return (not size.cpu or self.cpu + wanted.cpu <= size.cpu) and (
            not size.memory_mib or self.memory_mib + wanted.memory_mib <= size.memory_mib
        )


class PlacedApp(Struct, frozen=True):
    """An app in a cluster: what each of its copies asks for, and their nodes, from 0 on; fewer if not all have one."""

    name: str
    wanted: tuple[PartResources, ...]
    nodes: tuple[int, ...] = ()


def wanted_of(parts: Sequence[AppPart]) -> tuple[PartResources, ...]:
    """Return what each copy of an app asks for, in the order of its copies."""
    return tuple(part.resources for part in parts for _ in range(part.count))


def place_apps(apps: Iterable[PlacedApp], nodes: int, size: NodeSize) -> dict[str, tuple[int, ...]]:
    """Place the copies of all apps of a cluster: a copy keeps its node if it can, others get the emptiest node.

    Raises `SiteError` if they do not fit.
    """
    uses = [NodeUse() for _ in range(nodes)]
    placed: dict[str, list[int]] = {}
    waiting: list[tuple[str, int, PartResources]] = []
    for app in apps:
        placed[app.name] = [-1] * len(app.wanted)
        for copy, wanted in enumerate(app.wanted):
            node = app.nodes[copy] if copy < len(app.nodes) else -1
            if 0 <= node < nodes and uses[node].fits(wanted, size):
                uses[node].add(wanted)
                placed[app.name][copy] = node
            else:
                waiting.append((app.name, copy, wanted))
    for name, copy, wanted in sorted(waiting, key=lambda entry: (entry[2].memory_mib, entry[2].cpu), reverse=True):
        node = _emptiest(uses, wanted, size)
        uses[node].add(wanted)
        placed[name][copy] = node
    return {name: tuple(places) for name, places in placed.items()}


def _emptiest(uses: Sequence[NodeUse], wanted: PartResources, size: NodeSize) -> int:
    fitting = [number for number, use in enumerate(uses) if use.fits(wanted, size)]
    if not fitting:
        raise SiteError(
            f"no node has room for a copy with {wanted.cpu:g} cpu and {wanted.memory_mib} MiB: the cluster has "
            f"{len(uses)} nodes of {size.cpu:g} cpu and {size.memory_mib} MiB"
        )
    return min(fitting, key=lambda number: (uses[number].memory_mib, uses[number].cpu, uses[number].copies))
