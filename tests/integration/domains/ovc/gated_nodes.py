"""Simulated nodes with a gate before each step: a test can hold a step up, or let it fail."""

import asyncio
from collections import Counter, defaultdict

from stateward.domains.ovc.model import NodeSpec
from stateward.domains.ovc.nodes.driver_node import DriverNode
from stateward.domains.ovc.nodes.node_registry import NodeRegistry
from stateward.domains.ovc.nodes.port import AttachedDisk, Hypervisor, NodeMachine, ProgressCallback
from stateward.engine import Permanent


class NodeGates:
    """Gates by step: closed ones hold calls up, failing ones raise."""

    def __init__(self) -> None:
        self._closed: dict[str, asyncio.Event] = {}
        self._broken: dict[str, str] = {}
        self.arrived: Counter[str] = Counter()
        self._arrivals: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def close(self, step: str) -> None:
        """Hold up calls of a step from now on, or (`step:machine...`) only those about one VM."""
        self._closed[step] = asyncio.Event()
        self._arrivals[step].clear()

    def open(self, step: str) -> None:
        """Let the calls pass that were held up."""
        self._closed.pop(step).set()

    def fail_at(self, step: str, why: str = "the gate is stuck") -> None:
        """Let a step fail."""
        self._broken[step] = why

    def stop_failing(self, step: str) -> None:
        """Let a step succeed again."""
        del self._broken[step]

    def reset(self) -> None:
        """Open all gates, let all steps succeed, and forget the arrivals."""
        for step in list(self._closed):
            self.open(step)
        self._broken.clear()
        self.arrived.clear()
        self._arrivals.clear()

    async def wait_for_arrival(self, step: str) -> None:
        """Wait until a call has arrived at a step."""
        await asyncio.wait_for(self._arrivals[step].wait(), 60)

    async def pass_gate(self, step: str, key: str) -> None:
        """Pass the gate of a step: wait while it is closed, raise if it fails."""
        names = (step, f"{step}:{key.rpartition('-')[0]}")
        for name in names:
            self.arrived[name] += 1
            self._arrivals[name].set()
        for name in names:
            if name in self._closed:
                await self._closed[name].wait()
        for name in names:
            if name in self._broken:
                raise Permanent(self._broken[name])


class GatedNode(DriverNode):
    """A simulated node with a gate before each step."""

    gates: NodeGates

    async def start(self, machine: NodeMachine) -> None:
        await self.gates.pass_gate("start", machine.key)
        await super().start(machine)

    async def stop(self, key: str) -> None:
        await self.gates.pass_gate("stop", key)
        await super().stop(key)

    async def pause(self, key: str) -> None:
        await self.gates.pass_gate("pause", key)
        await super().pause(key)

    async def attach(self, key: str, disk: AttachedDisk) -> None:
        await self.gates.pass_gate("attach", key)

    async def detach(self, key: str, disk: AttachedDisk) -> None:
        await self.gates.pass_gate("detach", key)

    async def move(self, key: str, to: Hypervisor, machine: NodeMachine, on_progress: ProgressCallback) -> None:
        await self.gates.pass_gate("move", key)
        await super().move(key, to, machine, on_progress)


def gate_nodes(nodes: NodeRegistry) -> NodeGates:
    """Put a gate before each step of all simulated nodes."""
    gates, plain = NodeGates(), nodes.factories["simulated"]

    def make(node: str, spec: NodeSpec) -> Hypervisor:
        made = plain(node, spec)
        assert isinstance(made, DriverNode)
        behind = GatedNode(made._driver, made._image, made._size)
        behind.gates = gates
        return behind

    nodes.factories = {**nodes.factories, "simulated": make}
    return gates
