"""Effects of actions on MCIs and VMs, for previews: which VMs an action touches, and what that saves or costs.

Guards and handlers decide at the time of the action; a preview reads the same records, and writes nothing.
"""

from collections.abc import Sequence

import msgspec

from stateward.domains.mci.handlers.mci_handlers import BAD_STATES, choose_leaving
from stateward.domains.mci.lifecycle import MCI, TERMINATE_FIRST, VM, MciState, VmState
from stateward.domains.mci.model import EVERYBODY, WORLD, Deregistration, MciSpec, Scale, vm_cost, vm_id
from stateward.engine import Request
from stateward.engine.queries import list_all
from stateward.lifecycle import FORCE
from stateward.plugin.runtime import ExpectedChange, PartAction
from stateward.store.filters import Selector
from stateward.store.port import Reader
from stateward.store.records import Object

FORCED = frozenset({FORCE})
ALIVE = tuple(state.word for state in VmState if state != VmState.TERMINATED)
PAID_STATE = VmState.RUNNING
"""The state in which a provider charges for a VM by the hour."""


async def removed_vms(reader: Reader, request: Request, mci: Object) -> list[PartAction]:
    """Return the actions on VMs to which an action leads that removes some of an MCI's VMs, with their records."""
    whole = Selector(mci.ns, VM.kind, mci.id)
    match request.action:
        case "delete" if TERMINATE_FIRST in request.facts and mci.state != MciState.TERMINATED:
            return _remove(whole)
        case "refine":
            return _remove(Selector(mci.ns, VM.kind, mci.id, tuple(state.word for state in BAD_STATES)))
        case "scale in":
            scale = msgspec.json.decode(request.args, type=Scale)
            vms = [vm async for vm in list_all(reader, whole)]
            return _remove(Selector(mci.ns, VM.kind, ids=tuple(choose_leaving(vms, scale))))
        case "deregister":
            leaving = msgspec.json.decode(request.args, type=Deregistration).vms
            ids = tuple(vm_id(mci.id, name) for name in leaving)
            return [PartAction(Selector(mci.ns, VM.kind, ids=ids), "remove", FORCED)]
        case _:
            return []


def _remove(vms: Selector) -> list[PartAction]:
    """Return the actions that remove VMs: those that are terminated already have only a record left."""
    alive = ALIVE if vms.states is None else vms.states
    actions = [PartAction(msgspec.structs.replace(vms, states=alive), "delete", FORCED)]
    if vms.states is None:
        terminated = (VmState.TERMINATED.word,)
        actions.append(PartAction(msgspec.structs.replace(vms, states=terminated), "remove", FORCED))
    return actions


def describe_access(request: Request) -> str:
    """Return who may connect to the VMs of a new MCI as a sentence, where it gets shared security groups."""
    if request.creates is None or request.creates.kind != MCI.kind or request.spec is None:
        return ""
    mci = msgspec.json.decode(request.spec, type=MciSpec)
    if not mci.dynamic or all(group.network for group in mci.groups):
        return ""
    return access_text(mci)


def access_text(mci: MciSpec) -> str:
    """Return who may connect to the VMs of an MCI as a sentence."""
    if mci.access_from is None:
        return "no accessFrom is given: its VMs let in SSH from where the setting mci_access_from says"
    allowed = mci.access_from
    if EVERYBODY in allowed:
        return "every port of its VMs is open to the whole Internet"
    if any(source in WORLD for source in allowed):
        return "SSH to its VMs is open to the whole Internet"
    return f"its VMs let in SSH from {', '.join(allowed)}" if allowed else "its VMs let nobody in: accessFrom is empty"


def describe_cost_change(changes: Sequence[ExpectedChange]) -> str:
    """Return the change of the cost of VMs as a sentence; empty if no spec knows a cost, or nothing changes."""
    sign = {True: 1, False: -1}
    change = sum(
        sign[expected.desired == PAID_STATE] * vm_cost(expected.object).cost
        for expected in changes
        if expected.object.kind == VM.kind and (expected.desired == PAID_STATE) != (expected.object.state == PAID_STATE)
    )
    if abs(change) < 0.005:
        return ""
    return f"about ${abs(change):,.2f} an hour {'more' if change > 0 else 'less'}"
