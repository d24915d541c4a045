"""The guard of nodes, and the choice of a node for a machine.

The last enabled node cannot be decommissioned. Nodes are locked while one is chosen, so that none leaves service in
between, and no two VMs get the same memory. A node on the server's host has the processors and the memory of the host:
no VM has more processors, and the VMs of a node together no more memory.
"""

from collections.abc import Iterable
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from stateward.domains.ovc import model
from stateward.domains.ovc.errors import LastNode, NodeDriverNotGranted, NodeNotReady, NoNode, NoOtherNode, NoRoom
from stateward.domains.ovc.guards.common_guard import check_request, request_args, require_free_name, require_object
from stateward.domains.ovc.lifecycle import NODE, VM, NodeState, OvcVmState
from stateward.domains.ovc.nodes.node_options import check_options
from stateward.drivers.process.shell_machine import MachineSize, size_of
from stateward.drivers.qemu.driver import host_mib
from stateward.drivers.qemu.hardware import MAX_PROCESSORS
from stateward.engine import Request
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.procfs import host_cores
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, to_json


async def guard_node(uow: UnitOfWork, request: Request, node: Object) -> Request | None:
    """Check a request about a node."""
    node = check_request(uow, request, node)
    match request.action:
        case "register":
            spec = model.parse_spec(request.spec, model.NodeSpec)
            if spec.driver in model.HOST_DRIVERS and model.HOST_GRANT not in request.facts:
                raise NodeDriverNotGranted(driver=spec.driver, ns=request.ns)
            check_options(spec)
            if node.parent is not None or node.queue != node.id:
                raise BadInput("parent", node.parent, "left out: nodes are at the top")
            await require_free_name(uow, request.ns, NODE, spec.name)
            return replace(request, seen=to_json(model.NodeSeen(scoped=True)))
        case "maintenance":
            vm_action(request_args(request))
        case "decommission":
            await uow.lock([Key(request.ns, "enabled nodes")])
            enabled = await uow.select(Selector(request.ns, NODE.kind, states=(NodeState.ENABLED,)))
            if all(other.id == node.id for other in enabled):
                raise LastNode(id=node.id)
    return None


def vm_action(args: dict[str, object]) -> model.VmAction:
    """Return what maintenance does with the VMs of a node: move or stop."""
    try:
        action: model.VmAction = msgspec.convert(args.get("vmaction", "move"), model.VmAction)
    except msgspec.ValidationError:
        raise BadInput("vmaction", args.get("vmaction"), "move or stop") from None
    return action


ACCEPTING_STATES = (NodeState.ENABLED, NodeState.ENABLING)
"""The states in which a node takes VMs; while it is being enabled, only those that it had."""


async def requested_node(uow: UnitOfWork, record: Object, node: str, *, back: bool = False) -> str:
    """Return the requested node if it takes the VM; `back`: the VM returns to a node that is being enabled."""
    await uow.load([Key(record.ns, node)])
    requested = require_object(uow, record.ns, node, NODE)
    if requested.state not in (ACCEPTING_STATES if back else ACCEPTING_STATES[:1]):
        raise NodeNotReady(id=node, state=requested.state)
    await _require_room(uow, record, [requested])
    return node


async def choose_node(uow: UnitOfWork, record: Object, *, present: str = "", avoid: str = "") -> str:
    """Return the present node of a VM or a firewall if it is enabled and has room, else another one."""
    enabled = await uow.select(Selector(record.ns, NODE.kind, states=(NodeState.ENABLED,)))
    nodes = [node for node in enabled if node.id != avoid]
    if not nodes:
        raise (NoOtherNode if avoid else NoNode)(kind=model.short_kind(record.kind), id=record.id)
    fitting = await _require_room(uow, record, nodes)
    return present if present in fitting else max(fitting, key=lambda node: _node_weight(record.id, node))


async def _require_room(uow: UnitOfWork, record: Object, nodes: Iterable[Object]) -> set[str]:
    """Return which of some locked nodes have room for a VM; raises if none has.

    Firewalls are small, and always have room.
    """
    limits = {node.id: _size_limit(model.read_spec(node, model.NodeSpec)) for node in nodes}
    if record.kind != VM.kind or not any(limits.values()):
        return {*limits}
    spec = model.read_spec(record, model.OvcVmSpec)
    size = size_of(spec.size) or MachineSize(0, 0)
    large = {
        id_: limit
        for id_, limit in limits.items()
        if limit is None or (size.processors <= limit.processors and size.mib <= limit.mib)
    }
    if not large:
        most = max((limit for limit in limits.values() if limit), key=lambda limit: limit.mib)
        raise BadInput("size", spec.size, f"at most {most.processors}c{most.mib}m, which is what a node has")
    used = await _used_mib(uow, record)
    fitting = {id_ for id_, limit in large.items() if limit is None or used.get(id_, 0) + size.mib <= limit.mib}
    if not fitting:
        raise NoRoom(size=spec.size, mib=size.mib)
    return fitting


def _size_limit(spec: model.NodeSpec) -> MachineSize | None:
    """Return the size of a node on this host; None if it is simulated, and takes any VM."""
    if spec.driver not in model.HOST_DRIVERS:
        return None
    processors = host_cores()
    return MachineSize(min(processors, MAX_PROCESSORS) if spec.driver == "qemu" else processors, host_mib())


UNPOWERED_STATES = frozenset({
    OvcVmState.VIRTUAL, OvcVmState.HALTED, OvcVmState.DELETED, OvcVmState.RESTORING, OvcVmState.DESTROYED
})  # fmt: skip
"""The states in which a VM has no machine."""

POWERED_STATES = tuple(state for state in OvcVmState if state not in UNPOWERED_STATES)


async def _used_mib(uow: UnitOfWork, record: Object) -> dict[str, int]:
    """Return the memory that the other VMs have, or will have after a move, by node.

    Only VMs that can have a machine are read: the nodes' memory limits their number, but not that of all others.
    The nodes are locked, and whatever places a VM locks them, so none appears meanwhile.
    """
    used: dict[str, int] = {}
    for vm in await uow.peek_selected(Selector(record.ns, VM.kind, states=POWERED_STATES)):
        seen = model.vm_seen(vm)
        size = size_of(model.read_spec(vm, model.OvcVmSpec).size)
        if seen.machine and size is not None and vm.id != record.id:
            for node in {seen.node, seen.to}:
                used[node] = used.get(node, 0) + size.mib
    return used


def _node_weight(vm: str, node: str) -> bytes:
    """Return the weight of a node for a VM (rendezvous hashing): VMs spread evenly, few move when nodes change."""
    return blake2b(f"{vm}/{node}".encode(), digest_size=8).digest()
