"""Guards of MCIs, VMs, networks, security groups and keys, inside the accepting transaction.

Invariant: no VM outlives the record of its MCI. New VMs lock that record, and so does everything that removes it.
"""

from collections import Counter
from typing import Any

import msgspec
from msgspec.structs import replace

from stateward import naming
from stateward.domains.mci import model
from stateward.domains.mci.address_ranges import check_new_network
from stateward.domains.mci.control.orphan_machines import note_possible_orphan
from stateward.domains.mci.errors import SharedRules, VmsAdded, VmsAlive
from stateward.domains.mci.guards.spec_validation import (
    MAX_VMS,
    MCI_NAME,
    MCI_NAME_RULE,
    check_mci_spec,
    check_spec,
    check_user,
    decode_spec,
)
from stateward.domains.mci.guards.subgroups import SCALE_DIRECTIONS, WITH_MCI, drop_empty_subgroup, with_scaled_spec
from stateward.domains.mci.lifecycle import FORGET, MCI, TERMINATE_FIRST, VM, MciState, VmState
from stateward.domains.mci.provider.key_pairs import check_public_key
from stateward.domains.mci.vm_placement import deterministic_uid
from stateward.drivers.security_rules import wanted_rules
from stateward.engine import Request
from stateward.engine.errors import Occupied, blocker_of
from stateward.engine.protection import PEOPLE, require_no_flag
from stateward.engine.requests import EMPTY
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, to_json
from stateward.validation_texts import bad_input

DELETABLE_STATES = (VmState.TERMINATED, VmState.FAILED)


async def guard_mci(access_from: tuple[str, ...], uow: UnitOfWork, request: Request, mci: Object) -> Request | None:
    """Refuse a spec that cannot be carried out, and a delete that would leave VMs behind.

    A new MCI whose request does not say from where its VMs let in SSH gets the default, `access_from`. It gets it here,
    because a repeated request may come to a server with another default.
    """
    check_spec(request, mci)
    if request.action == "adopt":
        request = with_adopted_groups(request, mci)
        if request.creates is None:
            return request
    if request.creates is not None:
        want = decode_spec(mci.kind, request.spec or EMPTY)
        check_mci_spec(want)
        if want.access_from is None:
            want = replace(want, access_from=access_from)
            request = replace(request, spec=to_json(want))
        return with_own_uid(request, want) if request.parent is None else request
    if request.action == "delete":
        await _guard_delete(uow, request, mci)
    if request.action == "deregister":
        await check_deregistration(uow, request, mci)
    if request.action in SCALE_DIRECTIONS:
        return with_scaled_spec(request, mci)
    return None


def with_own_uid(request: Request, want: Any) -> Request:  # noqa: ANN401 - the record of the kind
    """Return the request for a new object with a uid that no caller has chosen.

    The provider finds machines, networks and keys by uid: an object with the uid of another one would take them over.
    """
    return replace(request, spec=to_json(replace(want, uid=deterministic_uid(request.op, request.object))))


async def _guard_delete(uow: UnitOfWork, request: Request, mci: Object) -> None:
    """Refuse to delete an MCI whose VMs stay, unless they are terminated first."""
    if TERMINATE_FIRST in request.facts and mci.state != MciState.TERMINATED:
        return
    left = await uow.select(Selector(mci.ns, VM.kind, mci.id))
    alive = {vm.id: vm.state for vm in left if vm.state not in DELETABLE_STATES}
    if alive and FORGET not in request.facts:
        raise VmsAlive(mci.id, alive)
    if left:
        raise VmsAdded(mci.id)


async def guard_vm(uow: UnitOfWork, request: Request, vm: Object) -> Request | None:
    """Refuse a VM outside the MCI of its spec: nobody would see it there, nor terminate it with the MCI."""
    check_spec(request, vm)
    if request.action == "remove":
        request = note_possible_orphan(uow, request, vm)
        if WITH_MCI not in request.facts:
            await drop_empty_subgroup(uow, request, vm)
    if request.creates is None:
        return request
    if request.action == "adopt" and request.parent is None:
        raise BadInput("action", "adopt", f"an action of its MCI, {vm.parent!r}: it names the machines")
    want = decode_spec(vm.kind, request.spec or EMPTY)
    if vm.id != model.vm_id(want.mci, want.name):
        raise BadInput("id", vm.id, f"{model.vm_id(want.mci, want.name)!r}, the id that follows from its spec")
    if vm.parent != want.mci:
        raise BadInput("parent", vm.parent, f"{want.mci!r}, the MCI in its spec")
    # not without an MCI, and not while that is being deleted: its deletion has chosen its VMs
    key = Key(vm.ns, want.mci)
    mci = uow.objects.get(key)
    if mci is None or mci.removed or mci.kind != MCI.kind:
        raise BadInput("parent", key.id, "an MCI that exists")
    holder = None if mci.op is None or mci.op == request.parent else uow.operations.get(Key(key.ns, mci.op))
    if holder is not None and holder.action in ("delete", "withdraw"):
        raise Occupied(request.action, blocker_of(holder))
    return request


async def guard_key(_uow: UnitOfWork, request: Request, key: Object) -> None:
    """Refuse a public key that OpenSSH cannot read: nobody could log in to its VMs."""
    check_spec(request, key)
    if request.spec is not None:
        public = decode_spec(key.kind, request.spec, key.state).public_key
        if public:
            check_public_key("spec.public_key", public)


async def guard_security_group(_uow: UnitOfWork, request: Request, group: Object) -> None:
    """Refuse bad rules, rules that only the record would get, and other rules of a group that MCIs share."""
    check_spec(request, group)
    if request.spec is None:
        if request.action == "reshape":
            raise BadInput("spec", None, f"a spec with the rules that {group.id!r} is to have", state=group.state)
        return
    want: model.SecurityGroupSpec = decode_spec(group.kind, request.spec, group.state)
    try:
        wanted_rules(to_json(want.rules))
    except BadInput as error:
        raise BadInput(f"spec.rules.{error.field}", error.value, error.allowed, state=group.state) from error
    if request.creates is not None or want.rules == model.security_group_of(group).rules:
        return
    if request.action != "reshape":
        raise BadInput("spec.rules", None, "left out: only reshape changes the rules", state=group.state)
    if model.SHARED in msgspec.json.decode(group.labels):
        raise SharedRules(want.name)


async def guard_network(_uow: UnitOfWork, request: Request, network: Object) -> None:
    """Refuse ranges of addresses that cannot be, and to reshape a network without a spec."""
    check_spec(request, network)
    if request.spec is not None:
        former = None if request.creates is not None else model.network_of(network)
        check_new_network(decode_spec(network.kind, request.spec, network.state), former)
    if request.action == "reshape" and request.spec is None:
        allowed = f"a spec with the subnets that {network.id!r}, which is {network.state}, is to have"
        raise BadInput("spec", None, allowed, state=network.state)


# --- adopted machines ------------------------------------------------------------------------------------------------


def with_adopted_groups(request: Request, mci: Object) -> Request:
    """Return the request of an adoption, completed with the MCI's spec: a subgroup for each that the machines name."""
    state = None if request.creates is not None else mci.state
    try:
        adoption = msgspec.json.decode(request.args, type=model.Adoption)
    except msgspec.ValidationError as error:
        raise bad_input(error, model.Adoption, "args", state=state) from error
    if not 1 <= len(adoption.machines) <= MAX_VMS:
        raise BadInput("args.machines", len(adoption.machines), f"from 1 to {MAX_VMS} machines", state=state)
    seen: set[tuple[str, str]] = set()
    for number, machine in enumerate(adoption.machines):
        field = f"args.machines[{number}]"
        naming.check_text(f"{field}.native_id", machine.native_id, 1, 500)
        check_user(f"{field}.user", machine.user, state)
        if MCI_NAME.match(machine.group) is None or machine.group != machine.group.lower():
            raise BadInput(f"{field}.group", machine.group, f"{MCI_NAME_RULE}, in lower case", state=state)
        if _machine(machine) in seen:
            raise BadInput(f"{field}.native_id", machine.native_id, "named once", state=state)
        seen.add(_machine(machine))
    was: model.MciSpec = (
        decode_spec(mci.kind, request.spec or EMPTY) if request.creates is not None else model.mci_of(mci)
    )
    known = {group.name: group for group in was.groups}
    for name, count in Counter(machine.group for machine in adoption.machines).items():
        first = next(machine for machine in adoption.machines if machine.group == name)
        group = known.get(name) or model.SubGroup(name, 0, "", "", first.connection, user=first.user)
        if any(machine.connection != group.connection for machine in adoption.machines if machine.group == name):
            allowed = f"of one connection: subgroup {name!r} is at {group.connection!r}"
            raise BadInput("args.machines", name, allowed, state=state)
        known[name] = replace(group, size=group.size + count)
    return replace(request, spec=to_json(replace(was, groups=tuple(known.values()))))


def _machine(machine: model.MachineToAdopt) -> tuple[str, str]:
    return machine.connection, machine.native_id


async def check_deregistration(uow: UnitOfWork, request: Request, mci: Object) -> None:
    """Refuse a deregistration that names no VMs, or a protected one: its machine would be released all the same."""
    try:
        wanted = msgspec.json.decode(request.args, type=model.Deregistration)
    except msgspec.ValidationError as error:
        raise bad_input(error, model.Deregistration, "args", state=mci.state) from error
    if not wanted.vms:
        raise BadInput("args.vms", [], f"the names of VMs of {mci.id!r}", state=mci.state)
    for vm in await uow.peek([Key(mci.ns, model.vm_id(mci.id, name)) for name in wanted.vms]):
        if vm is not None and request.actor in PEOPLE:
            await require_no_flag(uow, request.action, vm)
