"""Control routes: actions on an MCI or a VM, as POST and in Tumblebug's form (GET)."""

from litestar import get, post

from stateward.domains.mci.api.context import TumblebugRequest, adds_object_state, mci_in_path, vm_in_path
from stateward.domains.mci.api.lenient_json import parse_flag
from stateward.domains.mci.api.operation_replies import OperationReply, SkippedVm, operation_id, wait_for_end
from stateward.domains.mci.api.tumblebug_params import (
    ACT,
    ControlAction,
    Force,
    Mci,
    Ns,
    Vm,
    Wait,
    check_choice,
    normalize_id,
)
from stateward.domains.mci.service import GROUP_ACTIONS
from stateward.engine import Denied, Refused
from stateward.errors import BadInput, StatewardError

MESSAGES = {
    "suspend": "Suspending the MCI",
    "resume": "Resuming the MCI",
    "reboot": "Rebooting the MCI",
    "terminate": "Terminated the MCI",
    "continue": "Continue the holding MCI",
    "withdraw": "Withdraw the holding MCI",
    "refine": "Refined the MCI",
    "reconcile": "Reconciling the MCI",
}
"""The message of each action, in Tumblebug's words."""

VM_ACTIONS = (*GROUP_ACTIONS, "reconcile")


@post("/ns/{ns:str}/mci/{mci:str}", opt=ACT, status_code=200)
@adds_object_state(mci_in_path)
async def control_mci(
    request: TumblebugRequest, ns: Ns, mci: Mci, action: ControlAction = None, force: Force = None, wait: Wait = None
) -> OperationReply:
    """Run an action on an MCI."""
    return await control_whole_mci(request, ns, mci, _required_action(action, *MESSAGES), force, wait)


@get("/ns/{ns:str}/control/mci/{mci:str}", opt=ACT)
@adds_object_state(mci_in_path)
async def control_mci_by_get(
    request: TumblebugRequest, ns: Ns, mci: Mci, action: ControlAction = None, force: Force = None, wait: Wait = None
) -> OperationReply:
    """Run an action on an MCI, in Tumblebug's form."""
    return await control_whole_mci(request, ns, mci, _required_action(action, *MESSAGES), force, wait)


@post("/ns/{ns:str}/mci/{mci:str}/vm/{vm:str}", opt=ACT, status_code=200)
@adds_object_state(vm_in_path)
async def control_vm(
    request: TumblebugRequest,
    ns: Ns,
    mci: Mci,
    vm: Vm,
    action: ControlAction = None,
    force: Force = None,
    wait: Wait = None,
) -> OperationReply:
    """Run an action on a VM."""
    return await control_one_vm(request, ns, mci, vm, _required_action(action, *VM_ACTIONS), force, wait)


@get("/ns/{ns:str}/control/mci/{mci:str}/vm/{vm:str}", opt=ACT)
@adds_object_state(vm_in_path)
async def control_vm_by_get(
    request: TumblebugRequest,
    ns: Ns,
    mci: Mci,
    vm: Vm,
    action: ControlAction = None,
    force: Force = None,
    wait: Wait = None,
) -> OperationReply:
    """Run an action on a VM, in Tumblebug's form."""
    return await control_one_vm(request, ns, mci, vm, _required_action(action, *VM_ACTIONS), force, wait)


def _required_action(action: str | None, *allowed: str) -> str:
    if not action:
        raise BadInput("action", action, f"one of {', '.join(allowed)}")
    return check_choice("action", action, *allowed)


async def control_whole_mci(
    request: TumblebugRequest, ns: str, mci: str, action: str, force: str | None = None, wait: float | None = None
) -> OperationReply:
    """Run an action on an MCI; the reply names the operation and the skipped VMs."""
    service, skipped = request.service, None
    if action in GROUP_ACTIONS:
        verdict = await service.control(ns, mci, action, request.caller, force=parse_flag("force", force))
        skipped = [_skipped(name, why) for name, why in verdict.skipped.items()] or None
        op = None if verdict.whole is None else operation_id(verdict.whole)
    elif action in ("continue", "withdraw"):
        op = operation_id(await service.continue_or_withdraw(ns, mci, action, request.caller))
    else:
        does = {"refine": service.refine, "reconcile": service.reconcile}[action]
        op = operation_id(await does(ns, mci, request.caller))
    return await reply_to(request, ns, op, MESSAGES[action], wait, skipped)


async def control_one_vm(
    request: TumblebugRequest,
    ns: str,
    mci: str,
    vm: str,
    action: str,
    force: str | None = None,
    wait: float | None = None,
) -> OperationReply:
    """Run an action on a VM; the reply names the operation."""
    service, name = request.service, normalize_id(vm)
    if action == "reconcile":
        accepted = await service.reconcile_vm(ns, mci, name, request.caller)
    else:
        accepted = await service.control_vm(ns, mci, name, action, request.caller, force=parse_flag("force", force))
    return await reply_to(request, ns, operation_id(accepted), f"Working on {action}", wait)


async def reply_to(
    request: TumblebugRequest,
    ns: str,
    op: str | None,
    message: str,
    wait: float | None,
    skipped: list[SkippedVm] | None = None,
) -> OperationReply:
    """Return the reply to an accepted action, after its end if the caller waits."""
    request.link_operation(ns, op)
    over = await wait_for_end(request.service.engine, ns, op, wait)
    if over is None:
        return OperationReply(message, op, None if op is None else "running", skipped=skipped)
    return OperationReply(message, op, over.status, over.error, skipped)


def _skipped(object_: str, why: StatewardError) -> SkippedVm:
    name = object_.partition(".")[2]
    if isinstance(why, Refused):
        return SkippedVm(name, why.refusal.state.word, str(why.refusal.reason), str(why))
    return SkippedVm(name, "", why.code if isinstance(why, Denied) else "refused", str(why))


ROUTES = (control_mci, control_mci_by_get, control_vm, control_vm_by_get)
