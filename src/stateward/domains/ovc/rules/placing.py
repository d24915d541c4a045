"""Which node a VM is to be on. The nodes are locked meanwhile, so none of them can leave service in between."""

from hashlib import blake2b

from stateward.domains.ovc.denials import NodeNotReady, NoNode
from stateward.domains.ovc.lifecycle import NODE, NodeState
from stateward.domains.ovc.writing import known
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.records import Key, Object
from stateward.store.selection import Selector

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
