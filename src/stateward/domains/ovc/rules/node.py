"""The rules of nodes: the last one that carries VMs stays."""

import msgspec
from msgspec.structs import replace

from stateward.domains.ovc.denials import LastNode
from stateward.domains.ovc.lifecycle import NODE, NodeState
from stateward.domains.ovc.manners import heed
from stateward.domains.ovc.model import NodeSeen, NodeSpec, VmAction, new_spec, text
from stateward.domains.ovc.nodes.options import check_options
from stateward.domains.ovc.rules.vm import args_of
from stateward.domains.ovc.writing import refuse_taken
from stateward.engine import Request
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.store.records import Object
from stateward.store.selection import Selector

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
            return replace(request, seen=text(NodeSeen(scoped=True)))
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
