"""Subgroups of adopted machines: the spec of an MCI after an adoption, and the checks of its arguments."""

from collections import Counter

import msgspec
from msgspec.structs import replace

from stateward import naming
from stateward.domains.mci.guards.spec_validation import (
    MAX_VMS,
    MCI_NAME,
    MCI_NAME_RULE,
    check_user,
    decode_spec,
)
from stateward.domains.mci.model import Adoption, Deregistration, MachineToAdopt, MciSpec, SubGroup, mci_of, vm_id
from stateward.engine import Request, UnitOfWork
from stateward.engine.protection import PEOPLE, require_no_flag
from stateward.engine.requests import EMPTY
from stateward.errors import BadInput
from stateward.store.records import Key, Object, to_json
from stateward.validation_texts import bad_input


def with_adopted_groups(request: Request, mci: Object) -> Request:
    """Return the request of an adoption, completed with the MCI's spec: a subgroup for each that the machines name."""
    state = None if request.creates is not None else mci.state
    try:
        adoption = msgspec.json.decode(request.args, type=Adoption)
    except msgspec.ValidationError as error:
        raise bad_input(error, Adoption, "args", state=state) from error
    _check_machines(adoption, state)
    was: MciSpec = decode_spec(mci.kind, request.spec or EMPTY) if request.creates is not None else mci_of(mci)
    known = {group.name: group for group in was.groups}
    for name, count in Counter(machine.group for machine in adoption.machines).items():
        first = next(machine for machine in adoption.machines if machine.group == name)
        group = known.get(name) or SubGroup(name, 0, "", "", first.connection, user=first.user)
        if any(machine.connection != group.connection for machine in adoption.machines if machine.group == name):
            allowed = f"of one connection: subgroup {name!r} is at {group.connection!r}"
            raise BadInput("args.machines", name, allowed, state=state)
        known[name] = replace(group, size=group.size + count)
    return replace(request, spec=to_json(replace(was, groups=tuple(known.values()))))


def _check_machines(adoption: Adoption, state: str | None) -> None:
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


def _machine(machine: MachineToAdopt) -> tuple[str, str]:
    return machine.connection, machine.native_id


async def check_deregistration(uow: UnitOfWork, request: Request, mci: Object) -> None:
    """Refuse a deregistration that names no VMs, or a protected one: its machine would be released all the same."""
    try:
        wanted = msgspec.json.decode(request.args, type=Deregistration)
    except msgspec.ValidationError as error:
        raise bad_input(error, Deregistration, "args", state=mci.state) from error
    if not wanted.vms:
        raise BadInput("args.vms", [], f"the names of VMs of {mci.id!r}", state=mci.state)
    for vm in await uow.peek([Key(mci.ns, vm_id(mci.id, name)) for name in wanted.vms]):
        if vm is not None and request.actor in PEOPLE:
            await require_no_flag(uow, request.action, vm)
