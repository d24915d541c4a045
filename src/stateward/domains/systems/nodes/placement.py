"""The placement of an instance on a node: by resources, labels and spread (pure).

Of the nodes that have the labels and the room, the one with the fewest instances of the same service is chosen, then
the one with the smallest share of its slots in use, then the first by name.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from stateward.domains.systems.errors import NodesFull


class InstanceNeeds(Struct, frozen=True):
    """The needs of one instance: cores, MiB, and labels of its node; `pool_slots` is the most of its pool on a node.

    A container needs a node with an engine. Secrets need one whose connection may carry their values.
    """

    cpu: float = 0.0
    memory: int = 0
    labels: Mapping[str, str] = {}
    pool_slots: int | None = None
    container: bool = False
    secrets: bool = False


class NodeRoom(Struct, frozen=True):
    """A node that takes instances: what it has, and what is placed on it."""

    name: str
    labels: Mapping[str, str] = {}
    cpu: float = 0.0
    memory: int = 0
    slots: int = 0
    used_cpu: float = 0.0
    used_memory: int = 0
    used_slots: int = 0
    same_service: int = 0
    same_pool: int = 0
    has_engine: bool = False
    secrets: bool = False

    @property
    def free_cpu(self) -> float:
        """The cores that no instance has asked for."""
        return round(self.cpu - self.used_cpu, 3)

    @property
    def free_memory(self) -> int:
        """The MiB that no instance has asked for."""
        return self.memory - self.used_memory

    @property
    def free_slots(self) -> int:
        """The number of instances that may be added."""
        return self.slots - self.used_slots


def has_labels(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Tell whether labels include the wanted ones."""
    return wanted.items() <= labels.items()


def can_run(demand: InstanceNeeds, room: NodeRoom) -> bool:
    """Tell whether a node has what an instance needs, apart from room."""
    return (room.has_engine or not demand.container) and (room.secrets or not demand.secrets)


def fits(demand: InstanceNeeds, room: NodeRoom) -> bool:
    """Tell whether a node has the labels and the room for one more instance."""
    return (
        has_labels(room.labels, demand.labels)
        and can_run(demand, room)
        and room.free_slots >= 1
        and room.free_cpu >= demand.cpu
        and room.free_memory >= demand.memory
        and (demand.pool_slots is None or room.same_pool < demand.pool_slots)
    )


def choose_host(demand: InstanceNeeds, rooms: Iterable[NodeRoom], lost: Sequence[str] = ()) -> str:
    """Return the node for one more instance; raises `NodesFull`: what is asked, what is free, and what is lost."""
    known = list(rooms)
    fitting = [room for room in known if fits(demand, room)]
    if not fitting:
        raise NodesFull(_asked(demand), _free(demand, known) + _lost_text(lost))
    return min(fitting, key=lambda room: (room.same_service, room.used_slots / room.slots, room.name)).name


def _asked(demand: InstanceNeeds) -> str:
    needs = [
        "a slot" if demand.pool_slots is None else f"one of {demand.pool_slots} slots of its pool on each node",
        f"{demand.cpu:g} cores" if demand.cpu else "",
        f"{demand.memory} MiB" if demand.memory else "",
        "a container engine" if demand.container else "",
        "a connection over TLS for its secrets" if demand.secrets else "",
        _labels_text(demand.labels),
    ]
    return ", ".join(need for need in needs if need)


def _labels_text(labels: Mapping[str, str]) -> str:
    return f"labels {','.join(f'{name}={value}' for name, value in sorted(labels.items()))}" if labels else ""


MAX_NODES_NAMED = 5


def _lost_text(lost: Sequence[str]) -> str:
    if not lost:
        return ""
    more = len(lost) - MAX_NODES_NAMED
    named = ", ".join(lost[:MAX_NODES_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"; lost: {named}"


def _free(demand: InstanceNeeds, rooms: Sequence[NodeRoom]) -> str:
    labelled = [room for room in rooms if has_labels(room.labels, demand.labels)]
    if not labelled:
        return "no node with these labels takes instances" if demand.labels else "no node takes instances"
    able = [room for room in labelled if can_run(demand, room)]
    if not able:
        return _listed([f"{room.name} {_lack(demand, room)}" for room in labelled])
    return _listed(
        [f"{room.name} has {room.free_slots} slots, {room.free_cpu:g} cores, {room.free_memory} MiB" for room in able]
    )


def _lack(demand: InstanceNeeds, room: NodeRoom) -> str:
    lacks = [
        "has no container engine" if demand.container and not room.has_engine else "",
        "is not connected over TLS" if demand.secrets and not room.secrets else "",
    ]
    return " and ".join(lack for lack in lacks if lack)


def _listed(said: Sequence[str]) -> str:
    more = len(said) - MAX_NODES_NAMED
    return "; ".join([*said[:MAX_NODES_NAMED], f"and {more} more"] if more > 0 else said)
