"""The message of an agent about the load of its instances."""

from typing import Annotated

from msgspec import Meta, Struct

from stateward.agents.message_types import Name, Number, Text

MAX_LOAD = 1e15
"""The upper limit of a load."""

MAX_NODES = 1000
MAX_LOADS = 500
"""The number of instances in one message of measures."""


class NodeLoad(Struct, frozen=True, omit_defaults=True):
    """The load of a host that a thing consists of: cores and bytes; None is unknown."""

    key: Name
    is_up: bool = True
    cpu: float | None = None
    mem: float | None = None


class Load(Struct, frozen=True, omit_defaults=True):
    """The load of an instance and of its nodes together: cores, bytes, established connections; None is unknown.

    `requests` counts the new connections since the start of the agent. `is_healthy` is the verdict of its probe,
    with the reason of a bad one; None: it has no probe, or there is no verdict yet.
    """

    name: Name
    generation: Number
    cpu: float | None = None
    mem: float | None = None
    connections: float | None = None
    requests: Number = 0
    nodes: Annotated[tuple[NodeLoad, ...], Meta(max_length=MAX_NODES)] = ()
    is_healthy: bool | None = None
    reason: Text = ""

    @property
    def is_in_range(self) -> bool:
        """Whether all values are within the limits."""
        values = (
            self.cpu,
            self.mem,
            self.connections,
            *(value for node in self.nodes for value in (node.cpu, node.mem)),
        )
        return all(value is None or 0 <= value <= MAX_LOAD for value in values)


class Measures(Struct, frozen=True, tag="measures"):
    """The loads that have changed since the last message of this connection, and names whose load is unknown now.

    `problem` tells why the site cannot be measured at all; every message has the present one.
    """

    notify: Number
    loads: Annotated[tuple[Load, ...], Meta(max_length=MAX_LOADS)] = ()
    unknown: Annotated[tuple[Name, ...], Meta(max_length=MAX_LOADS)] = ()
    problem: Text = ""
