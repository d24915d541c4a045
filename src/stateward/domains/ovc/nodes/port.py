"""The port of nodes: start, stop, pause, reset and move machines, attach and detach disks, observe power.

All methods are idempotent: a machine has its own key for each time that its VM is started. A method returns when the
node has done it; a refusal or a missing answer is raised as the engine's policies (`Permanent`, `Temporary`,
`Unknown`).
"""

from collections.abc import Awaitable, Callable, Collection
from enum import StrEnum
from typing import Protocol

from msgspec import Struct


class Power(StrEnum):
    """The power of a machine, as its node shows it."""

    ON = "on"
    FROZEN = "frozen"
    OFF = "off"
    CHANGING = "changing"
    UNKNOWN = "unknown"


class AttachedDisk(Struct, frozen=True):
    """A disk that is attached to a machine."""

    disk: str
    file: str
    slot: int
    boot: bool = False


class NodeMachine(Struct, frozen=True):
    """A machine to start: its key (one for each start), its VM's name and size, and its disks.

    `boots_disk`: it boots what is on its boot disk, and not the built-in guest.
    """

    key: str
    name: str
    size: str
    disks: tuple[AttachedDisk, ...] = ()
    boots_disk: bool = False


class NodeInventory(Struct, frozen=True):
    """The machines on a node; only a complete inventory proves that there are no others."""

    keys: frozenset[str]
    complete: bool


ProgressCallback = Callable[[int, int], Awaitable[None]]
"""Called with how much of a machine has moved, and the total."""


class Hypervisor(Protocol):
    """A node that runs machines."""

    @property
    def lag(self) -> float:
        """How many seconds old its listings may be."""

    async def check(self) -> str:
        """Return why the node cannot run machines; empty if it can."""

    async def start(self, machine: NodeMachine) -> None:
        """Start a machine, and wait until it runs."""

    async def stop(self, key: str) -> None:
        """Stop a machine, and wait until nothing is left of it."""

    async def pause(self, key: str) -> None:
        """Freeze a machine in memory."""

    async def resume(self, key: str) -> None:
        """Resume a frozen machine."""

    async def reset(self, key: str, token: str) -> None:
        """Boot a machine again; only once for the same token."""

    async def attach(self, key: str, disk: AttachedDisk) -> None:
        """Attach a disk to a running machine."""

    async def detach(self, key: str, disk: AttachedDisk) -> None:
        """Detach a disk from a running machine."""

    async def has_disk(self, key: str, disk: AttachedDisk) -> bool:
        """Tell whether a machine has a disk."""

    async def get_power(self, key: str) -> Power:
        """Return the power of a machine."""

    async def get_settled_power(self, key: str, seconds: float) -> Power:
        """Return the power of a machine; wait for a changing one, up to some seconds."""

    async def was_reset(self, key: str, token: str) -> bool | None:
        """Tell whether a reset with this token was done; None if the node cannot say."""

    async def get_powers(self, keys: Collection[str]) -> dict[str, Power]:
        """Return the power of machines, by one listing."""

    async def list_machines(self) -> NodeInventory:
        """Return all machines on the node, also those that the domain did not start."""

    async def move(self, key: str, to: "Hypervisor", machine: NodeMachine, on_progress: ProgressCallback) -> None:
        """Move a machine to another node, where it is the one described; a failure leaves it where it was."""

    async def has_moved(self, key: str, to: "Hypervisor", machine: NodeMachine) -> bool:
        """Tell whether a machine runs on the other node, and no longer here."""

    async def stop_moving(self, key: str, to: "Hypervisor", machine: NodeMachine) -> bool:
        """Stop a move; tells whether it is too late for that."""

    async def close(self) -> None:
        """Close the connections; the machines stay as they are."""
