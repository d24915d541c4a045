"""Nodes with doors: simulated nodes at which a test can hold something up, or let it fail."""

import asyncio
from collections import Counter, defaultdict

from stateward.domains.ovc.model import NodeSpec
from stateward.domains.ovc.nodes.driver_node import DriverNode
from stateward.domains.ovc.nodes.node_registry import NodeRegistry
from stateward.domains.ovc.nodes.port import AttachedDisk, Hypervisor, NodeMachine, ProgressCallback
from stateward.engine import Permanent


class NodeGates:
    """What is held up at which step, and what fails there."""

    def __init__(self) -> None:
        self._closed: dict[str, asyncio.Event] = {}
        self._broken: dict[str, str] = {}
        self.arrived: Counter[str] = Counter()
        self._comes: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def close(self, step: str) -> None:
        """Hold up what comes to a step from now on, or (`step:machine...`) only what is about one VM."""
        self._closed[step] = asyncio.Event()
        self._comes[step].clear()

    def open(self, step: str) -> None:
        """Let everything pass that was held up."""
        self._closed.pop(step).set()

    def break_(self, step: str, why: str = "the door is stuck") -> None:
        """Let a step fail."""
        self._broken[step] = why

    def mend(self, step: str) -> None:
        """Let a step succeed again."""
        del self._broken[step]

    def reset(self) -> None:
        """Open all doors and mend them, and forget who came."""
        for step in list(self._closed):
            self.open(step)
        self._broken.clear()
        self.arrived.clear()
        self._comes.clear()

    async def somebody_at(self, step: str) -> None:
        """Wait until somebody has come to a step."""
        await asyncio.wait_for(self._comes[step].wait(), 60)

    async def pass_(self, step: str, key: str) -> None:
        """Go through a door."""
        names = (step, f"{step}:{key.rpartition('-')[0]}")
        for name in names:
            self.arrived[name] += 1
            self._comes[name].set()
        for name in names:
            if name in self._closed:
                await self._closed[name].wait()
        for name in names:
            if name in self._broken:
                raise Permanent(self._broken[name])


class GatedNode(DriverNode):
    """A simulated node behind doors."""

    doors: NodeGates

    async def start(self, machine: NodeMachine) -> None:
        await self.doors.pass_("start", machine.key)
        await super().start(machine)

    async def stop(self, key: str) -> None:
        await self.doors.pass_("stop", key)
        await super().stop(key)

    async def pause(self, key: str) -> None:
        await self.doors.pass_("pause", key)
        await super().pause(key)

    async def attach(self, key: str, disk: AttachedDisk) -> None:
        await self.doors.pass_("attach", key)

    async def detach(self, key: str, disk: AttachedDisk) -> None:
        await self.doors.pass_("detach", key)

    async def move(self, key: str, to: Hypervisor, machine: NodeMachine, told: ProgressCallback) -> None:
        await self.doors.pass_("move", key)
        await super().move(key, to, machine, told)


def gate_nodes(nodes: NodeRegistry) -> NodeGates:
    """Put doors in front of all simulated nodes."""
    doors, plain = NodeGates(), nodes.factories["simulated"]

    def make(node: str, spec: NodeSpec) -> Hypervisor:
        made = plain(node, spec)
        assert isinstance(made, DriverNode)
        behind = GatedNode(made._driver, made._image, made._size)
        behind.doors = doors
        return behind

    nodes.factories = {**nodes.factories, "simulated": make}
    return doors
