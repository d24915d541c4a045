"""Guards of accounts and cloudspaces."""

from msgspec.structs import replace

from stateward.domains.ovc import model
from stateward.domains.ovc.errors import HasRunning, NoNode
from stateward.domains.ovc.guards import common_guard
from stateward.domains.ovc.guards.node_guard import choose_node, requested_node
from stateward.domains.ovc.lifecycle import ACCOUNT, CLOUDSPACE, VM, AccountState, OvcVmState
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
    cloudspace = common_guard.check_request(uow, request, cloudspace)
    ns, action = request.ns, request.action
    if action == "define":
        spec = model.parse_spec(request.spec, model.CloudspaceSpec)
        if cloudspace.parent != spec.account or cloudspace.queue != cloudspace.id:
            raise BadInput("parent", cloudspace.parent, f"the cloudspace's account, {spec.account}")
        common_guard.require_state(uow, ns, spec.account, ACCOUNT, AccountState.CONFIRMED)
        await common_guard.require_free_name(uow, ns, CLOUDSPACE, spec.name, parent=spec.account)
    elif action in common_guard.ACCOUNT_ACTIONS:
        if action == "restore":
            common_guard.require_parent_not_binned(uow, request, cloudspace.parent or "", ACCOUNT)
        common_guard.require_enabled(uow, request, cloudspace.parent or "")
    elif action in ("delete", "destroy"):
        await _check_removal(uow, request, cloudspace, [cloudspace.id])
    if action in POWERING:
        cloudspace = uow.objects[cloudspace.key]
        seen = model.cloudspace_seen(cloudspace)
        if not (action == "reset" and seen.machine):  # a running one that is only reset keeps its node
            node = await choose_node(uow, cloudspace, present=seen.node)
            machine = model.machine_key(cloudspace.id, request.op)
            update_seen(uow, cloudspace, replace(seen, node=node, machine=machine))
    elif action == "place firewall":
        # Choose the new node of a firewall: its own if that is in service, another one, or none for now.
        seen, node = model.cloudspace_seen(cloudspace), str(common_guard.request_args(request).get("node", ""))
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
    return None


async def guard_account(uow: UnitOfWork, request: Request, account: Object) -> Request | None:
    """Check a request about an account."""
    account = common_guard.check_request(uow, request, account)
    if request.creates is not None:
        spec = model.parse_spec(request.spec, model.AccountSpec)
        if account.parent is not None or account.queue != account.id:
            raise BadInput("parent", account.parent, "left out: accounts are at the top")
        await common_guard.require_free_name(uow, request.ns, ACCOUNT, spec.name)
    elif request.action in ("delete", "destroy"):
        below = await uow.select(Selector(request.ns, CLOUDSPACE.kind, account.id))
        await _check_removal(uow, request, account, [cloudspace.id for cloudspace in below])
    return None


async def _check_removal(uow: UnitOfWork, request: Request, container: Object, boxes: list[str]) -> None:
    if request.actor == USER:
        # Refuse a user's request that would stop running VMs; whatever starts one locks its cloudspace and account too.
        for box in boxes:
            running = await uow.select(Selector(request.ns, VM.kind, box, RUNNING))
            if running:
                some = ", ".join(vm.id for vm in running[:MAX_SHOWN])
                raise HasRunning(kind=model.short_kind(container.kind), id=container.id, vms=some)
    if request.action == "delete":
        common_guard.put_in_bin(uow, request, container)
