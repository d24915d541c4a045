"""VMs on simulated nodes: a VM has one machine at most, on its node, and one node stays enabled."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Any, ClassVar

from stateward.domains.ovc.lifecycle import ACCOUNT, CLOUDSPACE, DISK, IMAGE, NODE, VM
from stateward.domains.ovc.model import (
    AccountSpec,
    CloudspaceSpec,
    DiskSpec,
    ImageSpec,
    NodeSpec,
    OvcVmSpec,
    vm_seen,
)
from stateward.domains.ovc.runtime import OvcRuntime
from stateward.domains.ovc.service import OvcCaller
from stateward.domains.ovc.settings import Settings
from stateward.drivers import MachineState
from stateward.drivers.simulated import SimulatedCloud
from stateward.drivers.simulated.faults import FaultProfile
from stateward.drivers.simulated.machine import state_at
from stateward.engine import Accepted
from stateward.store.filters import Page, Selector
from stateward.store.records import Object
from tests.simulation.domain_case import NS, Action, DomainCase, Server

ANN, ADA = OvcCaller("user", "ann"), OvcCaller("admin", "ada")
PROFILE = FaultProfile(latency=0.05, pending=1.0, suspending=0.5, resuming=0.5, rebooting=1.0, terminating=0.5)
ON = (MachineState.RUNNING, MachineState.PENDING, MachineState.SUSPENDED)
BOOT = "-boot"
"""The end of the ids of boot disks, which come and go with their VMs."""


class OvcCase(DomainCase):
    """Two nodes, an account with a cloudspace and an image, and a few VMs."""

    name = "ovc"
    pairs: ClassVar = [
        ("start", "delete the cloudspace"),
        ("decommission", "decommission another"),
        ("stop", "migrate"),
    ]
    before: ClassVar = {
        "start": ["stop"],
        "start again": ["stop"],
        "resume": ["pause"],
        "restore": ["stop", "delete"],
        "destroy": ["stop", "delete"],
        "enable": ["maintenance"],
        "enable again": ["maintenance"],
        "attach a disk": ["create a disk"],
        "delete a disk": ["create a disk"],
    }

    def __init__(self, clock: Any, chance: Any) -> None:
        super().__init__(clock, chance)
        self.cloud = SimulatedCloud(profile=PROFILE, chance=chance("cloud"), clock=clock, sleep=asyncio.sleep)
        self._numbers = iter(range(1, 1_000_000))

    def make_runtime(self, name: str) -> OvcRuntime:
        return OvcRuntime(self.context(name), Settings(storage="none", look_every=20.0), cloud=self.cloud)

    async def prepare(self, server: Server) -> None:
        for spec, caller in (
            (NodeSpec("node 1", "simulated", {}), ADA),
            (NodeSpec("node 2", "simulated", {}), ADA),
            (AccountSpec("account"), ANN),
        ):
            await self._made(server, spec, caller)
        self.account = (await self._all(server, ACCOUNT.kind))[0].id
        await self._made(server, CloudspaceSpec("space", self.account), ANN)
        await self._made(server, ImageSpec("tick", self.account), ANN)
        for _ in range(2):
            await self._made(server, await self._vm_spec(server), ANN)

    async def _made(self, server: Server, spec: Any, caller: OvcCaller) -> None:
        accepted: Accepted = await server.runtime.service.create(NS, spec, caller)
        if accepted.operation is not None:
            await server.engine.wait_record(NS, accepted.op.id, 600.0)

    async def _all(self, server: Server, kind: str, *states: str) -> list[Object]:
        found = await server.engine.store.reader.list_objects(Selector(NS, kind), Page(None, 1000))
        return [one for one in found if not states or one.state in states]

    async def _vm_spec(self, server: Server) -> OvcVmSpec:
        spaces, images = await self._all(server, CLOUDSPACE.kind), await self._all(server, IMAGE.kind)
        return OvcVmSpec(f"vm {next(self._numbers)}", self.account, spaces[0].id, images[0].id)

    @property
    def actions(self) -> Mapping[str, Action]:
        of_vms = ("start", "stop", "pause", "resume", "reset", "delete", "restore", "destroy")
        return {
            "create": self._create,
            **{one: partial(self._act, VM.kind, one, ANN) for one in of_vms},
            "start again": partial(self._act, VM.kind, "start", ANN),
            "migrate": partial(self._act, VM.kind, "migrate", ADA),
            "maintenance": partial(self._act, NODE.kind, "maintenance", ADA),
            "enable": partial(self._act, NODE.kind, "enable", ADA),
            "enable again": partial(self._act, NODE.kind, "enable", ADA),
            "decommission": partial(self._act, NODE.kind, "decommission", ADA),
            "decommission another": partial(self._act, NODE.kind, "decommission", ADA, last=True),
            "create a disk": lambda server, chance: server.runtime.service.create(
                NS, DiskSpec(f"disk {next(self._numbers)}", self.account), ANN
            ),
            "attach a disk": self._attach,
            "delete a disk": partial(self._act, DISK.kind, "delete", ANN),
            "delete the cloudspace": partial(self._act, CLOUDSPACE.kind, "delete", ANN),
            "restore the cloudspace": partial(self._act, CLOUDSPACE.kind, "restore", ANN),
        }

    async def _create(self, server: Server, chance: Random) -> Any:
        return await server.runtime.service.create(NS, await self._vm_spec(server), ANN)

    async def _act(
        self, kind: str, action: str, caller: OvcCaller, server: Server, chance: Random, *, last: bool = False
    ) -> Any:
        found = [one.id for one in await self._all(server, kind) if not one.id.endswith(BOOT)] or ["nobody"]
        args = {"vmaction": "stop"} if action == "maintenance" else {}
        name = found[-1] if last else chance.choice(found)
        return await server.runtime.service.act(NS, kind, name, action, caller, args=args)

    async def _attach(self, server: Server, chance: Random) -> Any:
        disks = [one.id for one in await self._all(server, DISK.kind) if not one.id.endswith(BOOT)] or ["nothing"]
        vms = [one.id for one in await self._all(server, VM.kind)] or ["nobody"]
        args = {"disk": chance.choice(disks)}
        return await server.runtime.service.act(NS, VM.kind, chance.choice(vms), "attach disk", ANN, args=args)

    # --- what must be true -------------------------------------------------------------------------------------------

    def broken(self, objects: Iterable[Object]) -> Iterator[str]:
        nodes = [one.state for one in objects if one.kind == NODE.kind and not one.removed]
        if nodes and set(nodes) == {"DECOMMISSIONED"}:
            yield "all nodes are DECOMMISSIONED"

    async def broken_at_rest(self, server: Server) -> list[str]:
        await asyncio.sleep(120.0)
        machines: Counter[str] = Counter()
        for region in self.cloud._regions.values():
            for machine in region.machines.values():
                if machine.key.startswith("vm-") and state_at(machine, self.clock()) in ON:
                    machines[machine.key] += 1
        wrong, vms = list[str](), await self._all(server, VM.kind)
        keys = {vm_seen(one).machine: one for one in vms if vm_seen(one).machine}
        stale = {spot.machine for one in vms for spot in vm_seen(one).stale_machines}
        wrong += [f"{key} runs {number} times" for key, number in machines.items() if number > 1]
        wrong += [f"machine {key} runs, and no VM has it" for key in machines if key not in keys and key not in stale]
        for key, vm in keys.items():
            if (vm.state == "RUNNING") != (key in machines) and vm.state in ("RUNNING", "HALTED"):
                wrong.append(f"{vm.id} is {vm.state}, and its machine {'runs' if key in machines else 'does not run'}")
        spaces = {one.id for one in await self._all(server, CLOUDSPACE.kind)}
        wrong += [f"{one.id} is in a cloudspace that does not exist" for one in vms if one.parent not in spaces]
        return wrong
