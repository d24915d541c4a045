"""Routes of subgroups and VMs: add and scale subgroups, read VMs, delete VMs."""

from collections.abc import Collection

from litestar import Response, delete, get, post
from msgspec.structs import replace

from stateward.domains.mci.api import mci_bodies
from stateward.domains.mci.api.context import AnyResponse, TumblebugRequest, adds_object_state, mci_in_path, vm_in_path
from stateward.domains.mci.api.lenient_json import parse_flag
from stateward.domains.mci.api.operation_replies import OperationReply, operation_id, with_possible_orphans
from stateward.domains.mci.api.routes.mci_routes import (
    delete_option,
    pair_view,
    views,
    wait_and_show,
    wait_until_deleted,
)
from stateward.domains.mci.api.schemas import MciInfo, VmIds
from stateward.domains.mci.api.tumblebug_params import (
    ACT,
    READ,
    DeleteOption,
    Force,
    Fresh,
    Group,
    Mci,
    Ns,
    Vm,
    VmOption,
    Wait,
    check_choice,
    normalize_id,
)
from stateward.domains.mci.api.views import vm_access
from stateward.domains.mci.guards.object_guards import DELETABLE_STATES
from stateward.domains.mci.lifecycle import VmState
from stateward.domains.mci.model import mci_of, vm_of, vm_seen
from stateward.domains.mci.provider.key_pairs import with_pair_for
from stateward.domains.mci.vm_placement import free_numbers
from stateward.engine import NotFound
from stateward.engine.errors import VersionMismatch
from stateward.errors import BadInput
from stateward.plugin.route_options import reads

DELETED = "Deleted the VM info"
MAX_ATTEMPTS = 5
"""Attempts of a scaling if other requests change the MCI at the same time."""


# --- subgroups -------------------------------------------------------------------------------------------------------


@post("/ns/{ns:str}/mci/{mci:str}/vm", opt=ACT | reads(mci_bodies.A_GROUP), status_code=200)
@adds_object_state(mci_in_path)
async def add_group(request: TumblebugRequest, ns: Ns, mci: Mci, wait: Wait = None) -> MciInfo:
    """Add a subgroup on existing resources."""
    return await _add(request, ns, mci, wait, dynamic=False)


@post(
    ["/ns/{ns:str}/mci/{mci:str}/subGroupDynamic", "/ns/{ns:str}/mci/{mci:str}/vmDynamic"],
    opt=ACT | reads(mci_bodies.A_DYNAMIC_GROUP),
    status_code=200,
)
@adds_object_state(mci_in_path)
async def add_group_dynamic(request: TumblebugRequest, ns: Ns, mci: Mci, wait: Wait = None) -> MciInfo:
    """Add a subgroup and the resources that it needs."""
    return await _add(request, ns, mci, wait, dynamic=True)


def free_group_name(taken: Collection[str]) -> str:
    """Return the name of a further subgroup that the caller has not named."""
    return next(name for number in range(1, len(taken) + 2) if (name := f"g{number}") not in taken)


async def _add(request: TumblebugRequest, ns: str, mci: str, wait: float | None, *, dynamic: bool) -> MciInfo:
    taken = {subgroup.name for subgroup in mci_of(await request.service.mci(ns, mci)).groups}
    otherwise = free_group_name(taken)
    body = await request.fields()
    recipient = mci_bodies.parse_recipient(body)
    group = mci_bodies.parse_subgroup(body, otherwise, dynamic=dynamic)
    group = replace(group, post_phases=mci_bodies.parse_phases(body, [group.name]))
    groups, pair = with_pair_for(mci_bodies.with_public_key(body, (group,)), mci)
    accepted = await request.service.add_group(ns, mci, groups[0], request.caller)
    new = [f"{groups[0].name}-{number}" for number in range(1, groups[0].size + 1)]
    made = await wait_and_show(request, ns, mci, operation_id(accepted), wait, new)
    return replace(made, new_key_pair=pair_view(pair, recipient))


@get("/ns/{ns:str}/mci/{mci:str}/subgroup", opt=READ)
async def list_groups(request: TumblebugRequest, ns: Ns, mci: Mci) -> dict[str, list[str]]:
    """Return the subgroups of an MCI."""
    record = await request.service.mci(ns, mci)
    return {"output": [group.name for group in mci_of(record).groups]}


@get("/ns/{ns:str}/mci/{mci:str}/subgroup/{group:str}", opt=READ)
async def list_vms(request: TumblebugRequest, ns: Ns, mci: Mci, group: Group) -> dict[str, list[str]]:
    """Return the VMs of a subgroup."""
    return {"output": await names_in(request, ns, mci, normalize_id(group))}


async def names_in(request: TumblebugRequest, ns: str, mci: str, group: str) -> list[str]:
    """Return the VMs of a subgroup, or raise if it does not exist."""
    record = await request.service.mci(ns, mci)
    names = [vm.name for member in await views(request).vms(record) if (vm := vm_of(member)).group == group]
    if not names and all(subgroup.name != group for subgroup in mci_of(record).groups):
        raise NotFound(ns, f"{mci}/{group}")
    return names


@post("/ns/{ns:str}/mci/{mci:str}/subgroup/{group:str}", opt=ACT | reads(mci_bodies.A_CHANGE), status_code=200)
@adds_object_state(mci_in_path)
async def scale_group(request: TumblebugRequest, ns: Ns, mci: Mci, group: Group, wait: Wait = None) -> MciInfo:
    """Scale a subgroup: `numVMsToAdd`, `numVMsToRemove` or `size`."""
    return await scale(request, ns, mci, group, wait)


async def scale(request: TumblebugRequest, ns: str, mci: str, group: str, wait: float | None) -> MciInfo:
    """Scale a subgroup."""
    wanted, name = mci_bodies.parse_scale(await request.fields()), normalize_id(group)
    for left in reversed(range(MAX_ATTEMPTS)):
        record = await request.service.mci(ns, mci)
        names = await names_in(request, ns, mci, name)
        now = len(names)
        change = wanted.count - now if wanted.how == "to" else wanted.count
        if now + change < 0:
            raise BadInput("numVMsToRemove", -change, f"a number of VMs that there are ({now})")
        if change == 0:
            return await wait_and_show(request, ns, mci, None, None)
        version = record.version if wanted.how == "to" else None
        try:
            accepted = await request.service.scale(ns, mci, name, change, request.caller, version)
            break
        except VersionMismatch:
            if not left:
                raise
    new = [f"{name}-{number}" for number in free_numbers(names, name, max(0, change))]
    return await wait_and_show(request, ns, mci, operation_id(accepted), wait, new)


# --- VMs -------------------------------------------------------------------------------------------------------------


@get("/ns/{ns:str}/mci/{mci:str}/vm/{vm:str}", opt=READ)
@adds_object_state(vm_in_path)
async def get_vm(
    request: TumblebugRequest, ns: Ns, mci: Mci, vm: Vm, option: VmOption = None, fresh: Fresh = None
) -> AnyResponse:
    """Return a VM, its status, all its names, or its access data."""
    whole = await request.service.mci(ns, mci)
    record, view = await request.service.vm(ns, mci, normalize_id(vm)), views(request)
    match check_choice("option", option, "status", "idsInDetail", "accessinfo"):
        case "status":
            return Response((await view.vm_statuses(whole, [record], fresh=parse_flag("fresh", fresh)))[0])
        case "idsInDetail":
            seen, wanted = vm_seen(record), vm_of(record)
            return Response(VmIds(wanted.name, wanted.uid, seen.native_id, seen.name or wanted.uid))
        case "accessinfo":
            return Response(await vm_access(view, record, await view.vms(whole)))
        case _:
            return Response((await view.vm_infos(whole, [record]))[0])


@delete("/ns/{ns:str}/mci/{mci:str}/vm/{vm:str}", opt=ACT, status_code=200)
@adds_object_state(vm_in_path)
async def delete_vm(
    request: TumblebugRequest,
    ns: Ns,
    mci: Mci,
    vm: Vm,
    option: DeleteOption = None,
    force: Force = None,
    wait: Wait = None,
) -> AnyResponse:
    """Delete a VM; one that may run is terminated at its provider first.

    With `force`, the record is removed in any state; the response names the machine that may be left.
    """
    service, name, word = request.service, normalize_id(vm), delete_option(option, force)
    record = await service.vm(ns, mci, name)
    kept = {"": DELETABLE_STATES, "terminate": (VmState.TERMINATED,)}
    if word in kept and record.state not in kept[word]:
        op = operation_id(await service.terminate_and_delete_vm(ns, mci, name, request.caller))
        request.link_operation(ns, op)
        if not await wait_until_deleted(request, record, op, wait):
            return Response(OperationReply("Terminating and deleting the VM", op, "running"), status_code=202)
        return Response(OperationReply(DELETED))
    _, left = await service.delete_vm(ns, mci, name, request.caller, force=word == "force")
    return Response(with_possible_orphans({"message": DELETED}, left))


ROUTES = (add_group, add_group_dynamic, list_groups, list_vms, scale_group, get_vm, delete_vm)
