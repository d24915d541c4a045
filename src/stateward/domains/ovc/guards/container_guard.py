"""Guards of accounts and cloudspaces."""

from msgspec.structs import replace

from stateward.domains.ovc.errors import HasRunning, NoNode
from stateward.domains.ovc.guards.common_guard import (
    ACCOUNT_ACTIONS,
    check_request,
    put_in_bin,
    request_args,
    require_enabled,
    require_free_name,
    require_parent_not_binned,
    require_state,
)
from stateward.domains.ovc.guards.node_guard import choose_node, requested_node
from stateward.domains.ovc.lifecycle import ACCOUNT, CLOUDSPACE, VM, AccountState, OvcVmState
from stateward.domains.ovc.model import (
    AccountSpec,
    CloudspaceSpec,
    cloudspace_seen,
    machine_key,
    parse_spec,
    short_kind,
)
from stateward.domains.ovc.object_updates import update_seen
from stateward.engine import Request
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.lifecycle import USER, moving
from stateward.store.filters import Selector
from stateward.store.records import Object

RUNNING = (OvcVmState.RUNNING, OvcVmState.PAUSED, *moving(OvcVmState))
MAX_SHOWN = 5
POWERING = ("deploy", "restore", "resume", "reset")
"""The actions that start a cloudspace's firewall."""


async def guard_cloudspace(uow: UnitOfWork, request: Request, cloudspace: Object) -> Request | None:
    """Check a request about a cloudspace."""
    cloudspace = check_request(uow, request, cloudspace)
    ns, action = request.ns, request.action
    if action == "define":
        spec = parse_spec(request.spec, CloudspaceSpec)
        if cloudspace.parent != spec.account or cloudspace.queue != cloudspace.id:
            raise BadInput("parent", cloudspace.parent, f"the cloudspace's account, {spec.account}")
        require_state(uow, ns, spec.account, ACCOUNT, AccountState.CONFIRMED)
        await require_free_name(uow, ns, CLOUDSPACE, spec.name, parent=spec.account)
    elif action in ACCOUNT_ACTIONS:
        if action == "restore":
            require_parent_not_binned(uow, request, cloudspace.parent or "", ACCOUNT)
        require_enabled(uow, request, cloudspace.parent or "")
    elif action in ("delete", "destroy"):
        await _check_removal(uow, request, cloudspace, [cloudspace.id])
    if action in POWERING:
        await _place_firewall(uow, request, uow.objects[cloudspace.key])
    elif action == "place firewall":
        await _move_firewall(uow, request, cloudspace)
    return None


async def _place_firewall(uow: UnitOfWork, request: Request, cloudspace: Object) -> None:
    """Choose the node of a cloudspace's firewall; a running one that is only reset keeps its node."""
    seen = cloudspace_seen(cloudspace)
    if request.action == "reset" and seen.machine:
        return
    node = await choose_node(uow, cloudspace, present=seen.node)
    update_seen(uow, cloudspace, replace(seen, node=node, machine=machine_key(cloudspace.id, request.op)))


async def _move_firewall(uow: UnitOfWork, request: Request, cloudspace: Object) -> None:
    """Choose the new node of a firewall: its own if that is in service, another one, or none for now."""
    seen, node = cloudspace_seen(cloudspace), str(request_args(request).get("node", ""))
    try:
        to = await (
            requested_node(uow, cloudspace, node, back=True)
            if node
            else choose_node(uow, cloudspace, present=seen.node)
        )
    except NoNode:
        if not seen.machine:
            raise
        to = ""
    update_seen(uow, cloudspace, replace(seen, to=to))


async def guard_account(uow: UnitOfWork, request: Request, account: Object) -> Request | None:
    """Check a request about an account."""
    account = check_request(uow, request, account)
    if request.creates is not None:
        spec = parse_spec(request.spec, AccountSpec)
        if account.parent is not None or account.queue != account.id:
            raise BadInput("parent", account.parent, "left out: accounts are at the top")
        await require_free_name(uow, request.ns, ACCOUNT, spec.name)
    elif request.action in ("delete", "destroy"):
        below = await uow.select(Selector(request.ns, CLOUDSPACE.kind, account.id))
        await _check_removal(uow, request, account, [cloudspace.id for cloudspace in below])
    return None


async def _check_removal(uow: UnitOfWork, request: Request, container: Object, boxes: list[str]) -> None:
    if request.actor == USER:
        await _refuse_running(uow, request, container, boxes)
    if request.action == "delete":
        put_in_bin(uow, request, container)


async def _refuse_running(uow: UnitOfWork, request: Request, container: Object, boxes: list[str]) -> None:
    """Refuse a user's request that would stop running VMs; whatever starts one locks its cloudspace and account too."""
    for box in boxes:
        running = await uow.select(Selector(request.ns, VM.kind, box, RUNNING))
        if running:
            some = ", ".join(vm.id for vm in running[:MAX_SHOWN])
            raise HasRunning(kind=short_kind(container.kind), id=container.id, vms=some)
