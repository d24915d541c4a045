"""The rules of nodes: the last one that carries VMs stays."""

from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from stateward.domains.ovc.errors import LastNode, NodeNotReady, NoNode
from stateward.domains.ovc.guards.common_guard import args_of, heed
from stateward.domains.ovc.lifecycle import NODE, NodeState
from stateward.domains.ovc.model import NodeSeen, NodeSpec, VmAction, new_spec
from stateward.domains.ovc.nodes.node_options import check_options
from stateward.domains.ovc.queries import known, refuse_taken
from stateward.engine import Request
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, to_json

RESERVED = frozenset({"folder", "program"})
"""Options of drivers that are not for whoever registers a node: where on this host it is, and what it runs."""


async def guard_node(uow: UnitOfWork, request: Request, found: Object) -> Request | None:
    """Check a request about a node."""
    found = heed(uow, request, found)
    match request.action:
        case "register":
            spec = new_spec(request.spec, NodeSpec)
            if RESERVED & spec.options.keys():
                raise BadInput("options", sorted(spec.options), f"without {' and '.join(sorted(RESERVED))}")
            check_options(spec)
            if found.parent is not None or found.queue != found.id:
                raise BadInput("parent", found.parent, "nothing: nodes are on top")
            await refuse_taken(uow, request.ns, NODE, spec.name)
            return replace(request, seen=to_json(NodeSeen(scoped=True)))
        case "maintenance":
            vm_action(args_of(request))
        case "decommission":
            enabled = await uow.tx.select(Selector(request.ns, NODE.kind, states=(NodeState.ENABLED,)))
            if all(one.id == found.id for one in enabled):
                raise LastNode(id=found.id)
    return None


def vm_action(args: dict[str, object]) -> VmAction:
    """Return what is to be done with the VMs of a node that goes into maintenance."""
    try:
        action: VmAction = msgspec.convert(args.get("vmaction", "move"), VmAction)
    except msgspec.ValidationError:
        raise BadInput("vmaction", args.get("vmaction"), "move or stop") from None
    return action


FILLING = (NodeState.ENABLED, NodeState.ENABLING)
"""The states in which a node takes back the VMs that it had."""


async def wanted_node(uow: UnitOfWork, ns: str, node: str, *, back: bool = False) -> str:
    """Return the node that was asked for, if it takes VMs; `back`: those that it had, while it is being enabled."""
    await uow.load([Key(ns, node)])
    found = known(uow, ns, node, NODE)
    if found.state not in (FILLING if back else FILLING[:1]):
        raise NodeNotReady(id=node, state=found.state)
    return node


async def some_node(uow: UnitOfWork, vm: Object, *, present: str = "", avoid: str = "") -> str:
    """Return the node that a VM is on, if that takes VMs, and else another one."""
    nodes = {one.id for one in await uow.tx.select(Selector(vm.ns, NODE.kind, states=(NodeState.ENABLED,)))}
    if present in nodes:
        return present
    nodes.discard(avoid)
    if not nodes:
        raise NoNode(id=vm.id)
    return max(nodes, key=lambda node: _lot(vm.id, node))


def _lot(vm: str, node: str) -> bytes:
    """Return a VM's lot at a node: VMs spread evenly, and few have to move when nodes come and go."""
    return blake2b(f"{vm}/{node}".encode(), digest_size=8).digest()
