"""The guard of nodes, and the choice of a node for a machine.

The last enabled node cannot be decommissioned. Nodes are locked while one is chosen, so that none leaves service in
between.
"""

from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from stateward.domains.ovc.errors import LastNode, NodeDriverNotGranted, NodeNotReady, NoNode
from stateward.domains.ovc.guards.common_guard import check_request, request_args, require_free_name, require_object
from stateward.domains.ovc.lifecycle import NODE, NodeState
from stateward.domains.ovc.model import HOST_DRIVERS, HOST_GRANT, NodeSeen, NodeSpec, VmAction, parse_spec
from stateward.domains.ovc.nodes.node_options import check_options
from stateward.engine import Request
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, to_json


async def guard_node(uow: UnitOfWork, request: Request, found: Object) -> Request | None:
    """Check a request about a node."""
    found = check_request(uow, request, found)
    match request.action:
        case "register":
            spec = parse_spec(request.spec, NodeSpec)
            if spec.driver in HOST_DRIVERS and HOST_GRANT not in request.facts:
                raise NodeDriverNotGranted(driver=spec.driver, ns=request.ns)
            check_options(spec)
            if found.parent is not None or found.queue != found.id:
                raise BadInput("parent", found.parent, "left out: nodes are at the top")
            await require_free_name(uow, request.ns, NODE, spec.name)
            return replace(request, seen=to_json(NodeSeen(scoped=True)))
        case "maintenance":
            vm_action(request_args(request))
        case "decommission":
            await uow.lock([Key(request.ns, "enabled nodes")])
            enabled = await uow.select(Selector(request.ns, NODE.kind, states=(NodeState.ENABLED,)))
            if all(one.id == found.id for one in enabled):
                raise LastNode(id=found.id)
    return None


def vm_action(args: dict[str, object]) -> VmAction:
    """Return what maintenance does with the VMs of a node: move or stop."""
    try:
        action: VmAction = msgspec.convert(args.get("vmaction", "move"), VmAction)
    except msgspec.ValidationError:
        raise BadInput("vmaction", args.get("vmaction"), "move or stop") from None
    return action


ACCEPTING_STATES = (NodeState.ENABLED, NodeState.ENABLING)
"""The states in which a node takes VMs; while it is being enabled, only those that it had."""


async def requested_node(uow: UnitOfWork, ns: str, node: str, *, back: bool = False) -> str:
    """Return the requested node if it takes VMs; `back`: the VM returns to a node that is being enabled."""
    await uow.load([Key(ns, node)])
    found = require_object(uow, ns, node, NODE)
    if found.state not in (ACCEPTING_STATES if back else ACCEPTING_STATES[:1]):
        raise NodeNotReady(id=node, state=found.state)
    return node


async def choose_node(uow: UnitOfWork, vm: Object, *, present: str = "", avoid: str = "") -> str:
    """Return the present node of a VM if it is enabled, else another one; raises NoNode."""
    nodes = {one.id for one in await uow.select(Selector(vm.ns, NODE.kind, states=(NodeState.ENABLED,)))}
    if present in nodes:
        return present
    nodes.discard(avoid)
    if not nodes:
        raise NoNode(id=vm.id)
    return max(nodes, key=lambda node: _node_weight(vm.id, node))


def _node_weight(vm: str, node: str) -> bytes:
    """Return the weight of a node for a VM (rendezvous hashing): VMs spread evenly, few move when nodes change."""
    return blake2b(f"{vm}/{node}".encode(), digest_size=8).digest()
