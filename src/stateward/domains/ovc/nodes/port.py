"""What is asked of a node: machines that come up, stop, freeze, move, and get and lose disks.

Everything here can be asked again without harm: a machine has one key for each time its VM gets power, and what is so
already is done. A method returns when it is so; what a node says no to, or does not answer, is raised in the words that
the engine reads (`Permanent`, `Temporary`, `Unknown`).
"""

from collections.abc import Awaitable, Callable, Collection
from enum import StrEnum
from typing import Protocol

from msgspec import Struct


class Power(StrEnum):
    """What a machine is, as its node shows it."""

    ON = "on"
    FROZEN = "frozen"
    OFF = "off"
    CHANGING = "changing"
    UNKNOWN = "unknown"


class AttachedDisk(Struct, frozen=True):
    """A disk as a machine has it."""

    disk: str
    file: str
    slot: int
    boot: bool = False


class NodeMachine(Struct, frozen=True):
    """A machine that is to be: the key of this life of it, its VM's name and size, and its disks."""

    key: str
    name: str
    size: str
    disks: tuple[AttachedDisk, ...] = ()


class NodeInventory(Struct, frozen=True):
    """The machines that are on a node; only where that is complete is nobody else there."""

    keys: frozenset[str]
    complete: bool


ProgressCallback = Callable[[int, int], Awaitable[None]]
"""Is told how much of a machine has moved, and how much there is."""


class Hypervisor(Protocol):
    """A node at work."""

    @property
    def lag(self) -> float:
        """How many seconds old what it shows may be."""

    async def check(self) -> str:
        """Say why the node cannot carry machines; nothing if it can."""

    async def start(self, machine: NodeMachine) -> None:
        """Give a machine power, and wait until it is up."""

    async def stop(self, key: str) -> None:
        """Take a machine's power, and wait until nothing is left of it."""

    async def pause(self, key: str) -> None:
        """Freeze a machine in memory."""

    async def resume(self, key: str) -> None:
        """Let a frozen machine go on."""

    async def reset(self, key: str, token: str) -> None:
        """Boot a machine anew; with the same token, no second time."""

    async def attach(self, key: str, disk: AttachedDisk) -> None:
        """Give a disk to a machine that has power."""

    async def detach(self, key: str, disk: AttachedDisk) -> None:
        """Take a disk from a machine that has power."""

    async def has_disk(self, key: str, disk: AttachedDisk) -> bool:
        """Tell whether a machine has a disk."""

    async def get_power(self, key: str) -> Power:
        """Say what a machine is."""

    async def get_settled_power(self, key: str, seconds: float) -> Power:
        """Say what a machine is; one that is changing is waited for, up to some seconds."""

    async def was_reset(self, key: str, token: str) -> bool | None:
        """Tell whether a reset with this token was done; None where nobody can say."""

    async def get_powers(self, keys: Collection[str]) -> dict[str, Power]:
        """Say what machines are, in one go."""

    async def list_machines(self) -> NodeInventory:
        """Say which machines are there at all, whoever asked for them."""

    async def move(self, key: str, to: "Hypervisor", machine: NodeMachine, told: ProgressCallback) -> None:
        """Move a machine to another node, where it is the one described; a failure leaves it where it was."""

    async def has_moved(self, key: str, to: "Hypervisor", machine: NodeMachine) -> bool:
        """Tell whether a machine goes on at another node, and nowhere else."""

    async def stop_moving(self, key: str, to: "Hypervisor", machine: NodeMachine) -> bool:
        """Give a move up; tells whether it is too late for that."""

    async def close(self) -> None:
        """Let go of connections; the machines stay as they are."""
