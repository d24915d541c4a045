"""The ovc domain on a real store, with helpers that create objects, submit actions and wait for their outcomes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from stateward.domains.ovc.lifecycle import ACCOUNT, CLOUDSPACE, DISK, IMAGE, NODE, VM
from stateward.domains.ovc.model import (
    HOST_GRANT,
    AccountSpec,
    CloudspaceSpec,
    DiskSpec,
    ImageSpec,
    NodeSpec,
    OvcVmSpec,
    PlacedMachine,
    boot_disk_id,
    file_name,
    vm_seen,
)
from stateward.domains.ovc.nodes.port import NodeMachine, Power
from stateward.domains.ovc.runtime import OvcRuntime
from stateward.domains.ovc.service import OvcCaller, Service
from stateward.domains.ovc.settings import Settings
from stateward.drivers.simulated import SimulatedCloud
from stateward.drivers.simulated.faults import CALM
from stateward.engine import Accepted, Engine
from stateward.plugin.runtime import ProcessContext
from stateward.store.port import Store
from stateward.store.records import Key, Object, Operation
from tests.integration.domains.ovc.gated_nodes import NodeGates, gate_nodes
from tests.waiting import until

ANN = OvcCaller("user", "ann")
ADA = OvcCaller("admin", "ada", frozenset({HOST_GRANT}))
TIMEOUT_S = 60.0
NUMBERS = iter(range(1, 1_000_000))
RECORDS_ONLY = Settings(storage="none", look_every=0.0)
FILES = Settings(storage="files", look_every=0.0)
KINDS = {"account": ACCOUNT, "cloudspace": CLOUDSPACE, "vm": VM, "disk": DISK, "image": IMAGE, "node": NODE}


class Cloud:
    """The domain with its engine, and the first objects of a tenant."""

    account = box = image = ""
    nodes: list[str]
    simulated: SimulatedCloud

    def __init__(self, engine: Engine, plugin: OvcRuntime, gates: NodeGates, ns: str = "default") -> None:
        self.engine, self.plugin, self.gates, self.ns = engine, plugin, gates, ns
        self._numbers = NUMBERS

    @property
    def service(self) -> Service:
        return self.plugin.service

    def in_new_namespace(self) -> "Cloud":
        """Return the same cloud in a new, empty namespace."""
        return Cloud(self.engine, self.plugin, self.gates, f"ns-{next(self._numbers)}")

    # --- creation ----------------------------------------------------------------------------------------------------

    async def create_base_objects(self, nodes: int = 2, **node: Any) -> "Cloud":
        """Register nodes, and create an account with a cloudspace and an image."""
        self.nodes = [await self.node(**node) for _ in range(nodes)]
        self.account = await self.new_account()
        self.box = await self.new_box()
        self.image = await self.made(self.service.create(self.ns, ImageSpec("tick", self.account), ANN))
        return self

    async def node(self, driver: str = "simulated", **options: str) -> str:
        """Register a node."""
        spec = NodeSpec(f"node {next(self._numbers)}", driver, options)  # type: ignore[arg-type]
        return await self.made(self.service.create(self.ns, spec, ADA))

    async def new_account(self, **how: Any) -> str:
        """Make an account."""
        return await self.made(self.service.create(self.ns, AccountSpec(f"account {next(self._numbers)}", **how), ANN))

    async def new_box(self, account: str = "") -> str:
        """Make a cloudspace."""
        spec = CloudspaceSpec(f"space {next(self._numbers)}", account or self.account)
        return await self.made(self.service.create(self.ns, spec, ANN))

    def vm_spec(self, box: str = "", **how: Any) -> OvcVmSpec:
        """Describe a VM."""
        return OvcVmSpec(f"vm {next(self._numbers)}", self.account, box or self.box, self.image, **how)

    async def vm(self, box: str = "", **how: Any) -> str:
        """Make a VM, and wait until it runs."""
        return await self.made(self.service.create(self.ns, self.vm_spec(box, **how), ANN))

    async def vms(self, number: int) -> list[str]:
        """Make several VMs at once."""
        return list(await asyncio.gather(*(self.vm() for _ in range(number))))

    async def disk(self, account: str = "", **how: Any) -> str:
        """Make a disk without a VM."""
        spec = DiskSpec(f"disk {next(self._numbers)}", account or self.account, **how)
        return await self.made(self.service.create(self.ns, spec, ANN))

    async def made(self, making: Awaitable[Accepted]) -> str:
        """Wait until an object is created; return its id."""
        accepted = await making
        operation = await self.ended(accepted)
        assert operation.status == "succeeded", operation
        return accepted.object.id

    # --- actions -----------------------------------------------------------------------------------------------------

    async def ask(self, id_: str, action: str, caller: OvcCaller = ANN, **args: Any) -> Accepted:
        """Ask for an action."""
        kind = KINDS[id_.split("-")[0]].kind
        return await self.service.act(self.ns, kind, id_, action, caller, args=args)

    async def do(self, id_: str, action: str, caller: OvcCaller = ANN, **args: Any) -> Operation:
        """Ask for an action, and wait until it has ended."""
        return await self.ended(await self.ask(id_, action, caller, **args))

    async def did(self, id_: str, action: str, caller: OvcCaller = ANN, **args: Any) -> None:
        """Ask for an action, and wait until it has succeeded."""
        operation = await self.do(id_, action, caller, **args)
        assert operation.status == "succeeded", operation

    async def attached(self, vm: str, **how: Any) -> str:
        """Make a disk, and attach it to a VM."""
        disk = await self.disk(**how)
        await self.did(vm, "attach disk", disk=disk)
        return disk

    async def ended(self, accepted: Accepted) -> Operation:
        """Wait for the end of an operation."""
        return await self.engine.wait_record(accepted.op.ns, accepted.op.id, TIMEOUT_S)

    # --- queries -----------------------------------------------------------------------------------------------------

    async def get(self, id_: str) -> Object:
        """Return an object."""
        return await self.engine.record(self.ns, id_)

    async def file_name(self, id_: str) -> str:
        """Return the name of the file of a disk or an image, or of the folder of a node."""
        return file_name(await self.get(id_))

    async def state(self, id_: str) -> str:
        """Return an object's state."""
        return (await self.get(id_)).state

    async def states(self, *ids: str) -> list[str]:
        """Return the states of several objects."""
        return [await self.state(id_) for id_ in ids]

    async def node_of(self, vm: str) -> str:
        """Return the node that a VM is on."""
        return vm_seen(await self.get(vm)).node

    async def machine(self, vm: str) -> str:
        """Return the key of a VM's machine."""
        return vm_seen(await self.get(vm)).machine

    async def cancel_migration(self, vm: str) -> PlacedMachine:
        """Cancel a migration half way; returns the machine that it may have left on its target."""
        self.gates.close("move")
        migrating = await self.ask(vm, "migrate", ADA)
        await self.gates.wait_for_arrival("move")
        await self.engine.cancel(self.ns, migrating.op.id)
        assert (await self.ended(migrating)).status == "cancelled"
        self.gates.open("move")
        return vm_seen(await self.get(vm)).stale_machines[-1]

    async def start_late(self, *spots: PlacedMachine) -> None:
        """Start machines without the domain's knowledge, as if their start had been slow and not failed."""
        for spot in spots:
            await (await self.plugin.nodes.get(self.ns, spot.node)).start(NodeMachine(spot.machine, "late", "tiny"))

    async def powers(self, *spots: PlacedMachine) -> list[Power]:
        """Return the powers of machines, as their nodes show them."""
        return [await (await self.plugin.nodes.get(self.ns, spot.node)).get_power(spot.machine) for spot in spots]

    async def until_state(self, id_: str, *states: str) -> None:
        """Wait until an object is in one of these states."""
        await until(lambda: self.state(id_), lambda now: now in states)

    async def operation(self, op: str) -> Operation:
        """Return an operation as it is now."""
        found = await self.engine.store.reader.operation(Key(self.ns, op))
        assert found is not None
        return found

    async def until_progress(self, op: str) -> None:
        """Wait until an operation has reported progress."""
        await until(lambda: self.engine.store.reader.progress_of(Key(self.ns, op), 0))

    def boot_disk(self, vm: str) -> str:
        """Return the id of a VM's boot disk."""
        return boot_disk_id(vm)


@asynccontextmanager
async def open_cloud(
    store: Store,
    folder: Path,
    settings: Settings = RECORDS_ONLY,
    *,
    simulated: SimulatedCloud | None = None,
    works: bool = True,
    lease: float = 15.0,
) -> AsyncIterator[Cloud]:
    """Open the domain on a store."""
    simulated = simulated or SimulatedCloud(profile=CALM, chance=Random(1))
    plugin = OvcRuntime(ProcessContext(folder, random=Random(1)), settings, cloud=simulated)
    gates = gate_nodes(plugin.nodes)
    engine = Engine(store, plugin.kinds, works=works, lease_s=lease)
    plugin.bind_engine(engine)
    async with engine, plugin.running(engine, works=works):
        opened = Cloud(engine, plugin, gates)
        opened.simulated = simulated
        yield opened
