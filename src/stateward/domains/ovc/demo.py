"""The demo of the ovc domain: three simulated nodes, an account with a few machines, and random actions on them.

The objects are created when the server first starts with the demo, in their own namespace. Each has an idempotency key,
so a later start finds them again. Sometimes a node goes into maintenance, and its machines move.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

from stateward.domains.ovc.lifecycle import DISK, NODE, VM, DiskState, NodeState, OvcVmState
from stateward.domains.ovc.model import AccountSpec, CloudspaceSpec, DiskSpec, ImageSpec, NodeSpec, OvcVmSpec
from stateward.domains.ovc.service import OvcCaller, Service
from stateward.engine import Accepted
from stateward.engine.queries import list_all
from stateward.errors import StatewardError
from stateward.lifecycle import ADMIN, USER
from stateward.store.errors import StoreError
from stateward.store.filters import Selector
from stateward.store.records import Object

log = logging.getLogger("stateward.demo")

NS = "demo"
DEMO_USER = OvcCaller(USER, "the demo's user")
DEMO_ADMIN = OvcCaller(ADMIN, "the demo's administrator")
PAUSE_S = 1.5
"""Average seconds between two actions."""

NODES, MACHINES, DISKS = 3, 8, 4
HABITS: dict[str, tuple[str, ...]] = {
    OvcVmState.RUNNING: ("pause", "stop", "reboot", "reset", "migrate", "migrate"),
    OvcVmState.PAUSED: ("resume",),
    OvcVmState.HALTED: ("start", "start", "delete"),
    OvcVmState.DELETED: ("restore",),
    OvcVmState.VIRTUAL: ("deploy",),
    OvcVmState.ERROR: ("deploy",),
}


class OvcDemo:
    """Creates the objects, and acts on them at random."""

    def __init__(
        self,
        service: Service,
        chance: Random,
        *,
        pause: float = PAUSE_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._service, self._chance, self._pause, self._sleep = service, chance, pause, sleep

    async def run(self) -> None:
        """Create the objects and act on them, until cancelled; a store error restarts it."""
        while True:
            try:
                await self.create_objects()
                while True:
                    await self._sleep(self._chance.uniform(0.5, 1.5) * self._pause)
                    await self.act_once()
            except StoreError as error:
                log.warning("the ovc demo is interrupted by the store, and restarts in 5 s: %s", error)
                await self._sleep(5.0)

    async def create_objects(self) -> None:
        """Create the objects that do not exist yet."""
        make = self._service
        for number in range(1, NODES + 1):
            await self._made(make.create(NS, NodeSpec(f"node {number}"), DEMO_ADMIN, f"node {number}"))
        account = await self._made(make.create(NS, AccountSpec("acme"), DEMO_USER, "account"))
        box = await self._made(make.create(NS, CloudspaceSpec("web", account), DEMO_USER, "box"))
        image = await self._made(make.create(NS, ImageSpec("tick", account), DEMO_USER, "image"))
        for number in range(1, MACHINES + 1):
            spec = OvcVmSpec(f"machine {number}", account, box, image)
            await self._made(make.create(NS, spec, DEMO_USER, f"machine {number}"))
        for number in range(1, DISKS + 1):
            spec_of_it = DiskSpec(f"data {number}", account, 10)
            await self._made(make.create(NS, spec_of_it, DEMO_USER, f"data {number}"))

    async def _made(self, making: Awaitable[Accepted]) -> str:
        """Wait until an object is created, or found again; return its id, or an empty text if it was refused."""
        with suppress(StatewardError):
            accepted = await making
            if accepted.operation is not None:
                await self._service.engine.wait_record(NS, accepted.op.id, 60)
            return accepted.object.id
        return ""

    async def act_once(self) -> None:
        """Run one random action on one object, if one is possible."""
        with suppress(StatewardError):  # another action was faster: the demo shows refusals, too
            match self._chance.random():
                case luck if luck < 0.1:
                    # Put a node in maintenance if all are enabled; otherwise enable the one that is in maintenance.
                    nodes = [
                        node async for node in list_all(self._service.engine.store.reader, Selector(NS, NODE.kind))
                    ]
                    away = [node for node in nodes if node.state == NodeState.MAINTENANCE]
                    if away:
                        await self._service.act(NS, NODE.kind, away[0].id, "enable", DEMO_ADMIN)
                    elif nodes and all(node.state == NodeState.ENABLED for node in nodes):
                        chosen = self._chance.choice(nodes)
                        await self._service.act(NS, NODE.kind, chosen.id, "maintenance", DEMO_ADMIN)
                case luck if luck < 0.35:
                    await self._attach_or_detach()
                case _:
                    vm = await self._some(VM.kind)
                    if vm is not None and vm.state in HABITS:
                        action = self._chance.choice(HABITS[vm.state])
                        caller = DEMO_ADMIN if action == "migrate" else DEMO_USER
                        await self._service.act(NS, VM.kind, vm.id, action, caller)

    async def _attach_or_detach(self) -> None:
        disk, vm = await self._some(DISK.kind), await self._some(VM.kind)
        if disk is None or vm is None:
            return
        if disk.state == DiskState.CREATED:
            await self._service.act(NS, VM.kind, vm.id, "attach disk", DEMO_USER, args={"disk": disk.id})
        elif disk.state == DiskState.ASSIGNED and disk.parent is not None:
            await self._service.act(NS, VM.kind, disk.parent, "detach disk", DEMO_USER, args={"disk": disk.id})

    async def _some(self, kind: str) -> Object | None:
        records = [record async for record in list_all(self._service.engine.store.reader, Selector(NS, kind))]
        return self._chance.choice(records) if records else None
