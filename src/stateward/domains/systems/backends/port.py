"""What is asked of a backend: to run instances, to tell how they are, and to end them.

A backend knows nothing of deploys: it is told which instances are to be, one by one, and keeps each of them running,
restarting what crashes, until it is told to end it. Everything can be asked again: an instance is started once for each
name, and one that is gone is ended already.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from stateward.domains.systems.definition import NodePool, Service
from stateward.domains.systems.errors import NodePoolFull


class SystemRef(Struct, frozen=True):
    """A system, as a backend knows it."""

    ns: str
    system: str


class ServiceRef(Struct, frozen=True):
    """A service of a system."""

    system: SystemRef
    path: str

    def __str__(self) -> str:
        return f"{self.system.system}{self.path}"


class InstancePhase(StrEnum):
    """How far an instance is."""

    STARTING = "starting"
    UP = "up"
    CRASHED = "crashed"  # it is started again when its back-off is over
    STOPPING = "stopping"


class ServiceInstance(Struct, frozen=True, omit_defaults=True):
    """An instance as it was last seen; `why` says what is wrong with it."""

    name: str
    revision: str
    phase: InstancePhase
    ready: bool = False
    restarts: int = 0
    since: float = 0.0
    pid: int | None = None
    port: int | None = None
    node: str | None = None
    why: str = ""

    @property
    def is_wanted(self) -> bool:
        """Whether it is one of those that are to be."""
        return self.phase is not InstancePhase.STOPPING


class InstanceSpec(Struct, frozen=True):
    """An instance that is to be."""

    name: str
    revision: str
    service: Service


class LogExcerpt(Struct, frozen=True):
    """Part of what an instance has written, and where to go on."""

    instance: str
    text: str
    next: int


class Backend(Protocol):
    """Runs instances."""

    async def prepare(self, system_ref: SystemRef) -> Mapping[str, str]:
        """Make ready for a system; returns where it lives, to be kept with it."""

    async def instances(self, ref: ServiceRef) -> Sequence[ServiceInstance]:
        """Return the instances of a service, those that are being ended included, by name."""

    async def start(self, ref: ServiceRef, want: InstanceSpec) -> None:
        """Begin to run an instance, unless there is one of that name; raises `NoRoom`."""

    async def stop(self, ref: ServiceRef, name: str) -> None:
        """Begin to end an instance: it is listed until nothing of it is left."""

    async def address(self, ref: ServiceRef, port: int | None) -> int | None:
        """Give a service one port for all of its instances, or none; returns it once it takes connections."""

    async def is_addressed(self, ref: ServiceRef, port: int | None) -> bool:
        """Tell whether the one port of a service takes connections, or it needs none; nothing is done about it."""

    async def forget(self, ref: ServiceRef) -> None:
        """Remove what there is of a service whose instances have ended."""

    async def ensure_pool(self, system_ref: SystemRef, name: str, pool: NodePool) -> None:
        """Make, grow or shrink a node pool; raises `NoRoom` where what runs there would not fit any more."""

    async def remove_pool(self, system_ref: SystemRef, name: str) -> None:
        """Remove a node pool."""

    async def remove(self, system_ref: SystemRef) -> None:
        """Remove what there is of a system whose services have ended."""

    async def logs(self, ref: ServiceRef, instance: str | None, after: int | None, most: int) -> Sequence[LogExcerpt]:
        """Return what instances have written: the last `most` bytes, or what follows a place."""

    async def pause(self, ref: ServiceRef, seconds: float) -> None:
        """Wait until something has changed about a service, at most so long."""

    def news(self) -> AsyncIterator[ServiceRef]:
        """Yield services about whose instances something has changed, for ever; all there are at first."""

    def live(self) -> AbstractAsyncContextManager[None]:
        """Look after the instances."""


def node_names(name: str, pool: NodePool) -> list[str]:
    """Return the names of a pool's nodes."""
    return [f"{name}-{number}" for number in range(pool.nodes)]


def choose_node(name: str, pool: NodePool, used: Mapping[str, int]) -> str:
    """Return the node for one more instance; `used` says how many each node has."""
    best = min(node_names(name, pool), key=lambda node: used.get(node, 0))
    if used.get(best, 0) >= pool.slots:
        raise NodePoolFull(name, pool.nodes, pool.slots)
    return best


def check_fits(name: str, pool: NodePool, used: Mapping[str, int]) -> None:
    """Raise where what runs on a pool would not fit once it has this size."""
    kept = set(node_names(name, pool))
    if any(count and (node not in kept or count > pool.slots) for node, count in used.items()):
        raise NodePoolFull(name, pool.nodes, pool.slots)
