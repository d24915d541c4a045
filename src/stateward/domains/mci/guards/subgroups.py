"""Subgroups in the record of an MCI: their sizes after scaling, and their removal with the last VM.

VMs are removed by refine, by scale in, by a policy, or one by one. A subgroup without VMs would stay in all views, and
its name could not be used again. The transaction that removes the last VM therefore removes the subgroup.
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from stateward.domains.mci.guards.spec_validation import MAX_VMS, check_new_subgroups, decode_spec
from stateward.domains.mci.lifecycle import MCI, VM
from stateward.domains.mci.model import Adoption, MciSpec, Scale, mci_of, vm_of
from stateward.engine import Request
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.lifecycle import CONTROLLER
from stateward.store.changes import Ended
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, Operation, Status, to_json
from stateward.validation_texts import bad_input

SCALE_DIRECTIONS = {"scale out": 1, "scale in": -1}


def with_scaled_spec(request: Request, mci: Object) -> Request:
    """Return the request to scale an MCI, completed with the spec after scaling; incomplete requests are refused.

    A spec in the request may add a subgroup, and must be the one that follows from the arguments.
    """
    scale, was = _scale(request, mci), mci_of(mci)
    given: MciSpec | None = None if request.spec is None else decode_spec(mci.kind, request.spec, mci.state)
    want = _scaled(was, given, scale, SCALE_DIRECTIONS[request.action])
    if want is None:
        names = ", ".join(group.name for group in was.groups) or "none"
        allowed = f"a subgroup of {mci.id!r}, which is {mci.state} and has {names}"
        raise BadInput("args.group", scale.group, allowed, state=mci.state)
    if request.action == "scale out" and not next(group.spec for group in want.groups if group.name == scale.group):
        allowed = f"a subgroup with a spec: the machines of {scale.group!r} were adopted; add another subgroup"
        raise BadInput("args.group", scale.group, allowed, state=mci.state)
    if given not in (None, want):
        allowed = f"the spec of {mci.id!r} with only {scale.group!r} changed, by {scale.count} VMs"
        raise BadInput("spec", request.spec, allowed, state=mci.state)
    if len(want.groups) > len(was.groups):
        check_new_subgroups(want.groups[len(was.groups) :], mci.state)
    return replace(request, spec=to_json(want))


def _scale(request: Request, mci: Object) -> Scale:
    how = f"{{group, count}}, to {request.action} {mci.id!r}, which is {mci.state}"
    try:
        scale = msgspec.json.decode(request.args, type=Scale)
    except msgspec.ValidationError as error:
        wrong = bad_input(error, Scale, "args")
        raise BadInput(wrong.field, None, f"{wrong.allowed} in {how}", state=mci.state) from error
    if not 1 <= scale.count <= MAX_VMS:
        raise BadInput("args.count", scale.count, f"from 1 to {MAX_VMS} in {how}", state=mci.state)
    return scale


def _scaled(was: MciSpec, given: MciSpec | None, scale: Scale, sign: int) -> MciSpec | None:
    if any(group.name == scale.group for group in was.groups):
        sizes = {scale.group: sign * scale.count}
        grown = tuple(replace(group, size=max(0, group.size + sizes.get(group.name, 0))) for group in was.groups)
        return replace(was, groups=grown)
    new = [group for group in given.groups if group.name == scale.group] if given is not None and sign > 0 else []
    return replace(was, groups=(*was.groups, replace(new[0], size=scale.count))) if new else None


WITH_MCI = "with its MCI"
"""The fact of a removal of all VMs with their MCI: the record of the MCI stays unchanged."""


def mci_lock_set(request: Request, record: Object | None) -> Iterable[Key]:
    """Return the key of the MCI that a new VM needs, or whose record changes when a VM is removed."""
    if request.creates is not None:
        return (Key(request.ns, request.creates.parent),) if request.creates.parent else ()
    removed = record is not None and request.action == "remove" and WITH_MCI not in request.facts
    return (Key(record.ns, record.parent),) if removed and record is not None and record.parent else ()


async def drop_subgroup_on_end(uow: UnitOfWork, operation: Operation, ended: Ended) -> None:
    """Remove the subgroup of a deleted VM from the record of the MCI, if the VM was its last one."""
    vm = uow.objects.get(Key(operation.ns, operation.object)) if operation.action == "delete" else None
    if vm is None or not vm.removed or ended.status is not Status.SUCCEEDED:
        return
    mci = Key(vm.ns, vm.parent or "")
    await uow.load([mci])
    holder = uow.objects[mci].op if mci in uow.objects else None
    await uow.load_operations([Key(vm.ns, holder)] if holder else [])
    await drop_empty_subgroup(uow, operation, vm)


async def drop_empty_subgroup(uow: UnitOfWork, removal: Request | Operation, vm: Object) -> None:
    """Remove the subgroup of a removed VM from the record of the MCI, if the VM was its last one."""
    mci = uow.objects.get(Key(vm.ns, vm.parent or ""))
    if mci is None or mci.kind != MCI.kind or mci.removed:
        return
    group, wanted = vm_of(vm).group, mci_of(mci)
    if await _count_others(uow, vm, group) or _is_growing(uow, mci, group, removal):
        return
    left = tuple(other for other in wanted.groups if other.name != group)
    if len(left) < len(wanted.groups):
        spec = to_json(replace(wanted, groups=left))
        uow.save_object(mci.key, replace(mci, spec=spec, version=uow.next_version(mci.key)))
        reason = f"subgroup {group} has no VM left"
        journal(uow, mci, None, CONTROLLER, removal.who, "subgroup removed", reason=reason, spec=spec)


async def _count_others(uow: UnitOfWork, vm: Object, group: str) -> int:
    """Return the number of other VMs in the subgroup of a removed VM; one read serves a batch.

    The MCI is locked, so no other transaction adds or removes one. A VM that is about to be removed was counted, and is
    subtracted at its own turn; one that is removed already was not.
    """
    counted = ("VMs of", vm.ns, vm.parent or "")
    if counted not in uow.admission_counts:
        uow.admission_counts[counted] = 1
        for other in await uow.select(Selector(vm.ns, VM.kind, vm.parent)):
            key = (*counted, vm_of(other).group)
            uow.admission_counts[key] = uow.admission_counts.get(key, 0) + 1
    left = uow.admission_counts.get((*counted, group), 0) - (not vm.removed)
    uow.admission_counts[*counted, group] = left
    return left


def _is_growing(uow: UnitOfWork, mci: Object, group: str, removal: Request | Operation) -> bool:
    """Tell whether a scale out or an adoption is adding VMs to a subgroup: it needs the subgroup in the record.

    An adoption that removes VMs itself has failed for them, and adds no others.
    """
    operation = None if mci.op is None else uow.operations.get(Key(mci.ns, mci.op))
    if operation is not None and operation.action == "adopt" and operation.id != removal.parent:
        return any(machine.group == group for machine in msgspec.json.decode(operation.args, type=Adoption).machines)
    if operation is None or operation.action != "scale out":
        return False
    return msgspec.json.decode(operation.args, type=Scale).group == group
