"""Requests to adopt machines that others have created at a provider, and to deregister VMs.

An adoption is refused before anything starts if a machine does not exist, has a VM already, or carries a key of another
server. A repeated request finds its machines adopted, or its operation running, and starts nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from stateward.domains.mci import model
from stateward.domains.mci.control.machine_claims import has_machine, machine_of
from stateward.domains.mci.errors import MachineHeld, NotDone
from stateward.domains.mci.guards.connection_grants import check_adoption, is_granted, unknown_connection
from stateward.domains.mci.lifecycle import MCI, VM
from stateward.domains.mci.provider.provider_client import CANNOT_ADOPT
from stateward.domains.mci.service import Service
from stateward.drivers import MachineAdopter, MachineListing
from stateward.engine import Accepted, NotFound
from stateward.engine.queries import list_all
from stateward.errors import BadInput, UnknownName
from stateward.naming import new_id
from stateward.schemas.caller import Caller
from stateward.store.filters import Selector
from stateward.store.records import Key, Object

SeesNamespace = Callable[[str], bool]
"""Tells whether the caller may see a namespace; others are not named to him."""


class AdoptionRequest(Struct, frozen=True):
    """Machines for an MCI, which is created if it does not exist."""

    mci: str
    machines: tuple[model.MachineToAdopt, ...]
    label: dict[str, str] = {}
    description: str = ""


async def adopt_machines(
    service: Service, ns: str, request: AdoptionRequest, by: Caller, sees: SeesNamespace
) -> tuple[str | None, list[model.MachineToAdopt]]:
    """Adopt machines into an MCI; returns the operation, and the machines that are new. None: all were adopted before.

    With the operation of an equal request that is still running, nothing is started.
    """
    await service.namespace(ns)
    # each connection must let the namespace adopt, and its driver must be able to
    places: dict[str, model.CloudConnection] = {}
    for number, machine in enumerate(request.machines):
        if machine.connection not in places:
            try:
                place = places[machine.connection] = await service.catalogue.connection(machine.connection)
            except UnknownName as error:
                granted = [known.name for known in await service.catalogue.connections() if is_granted(known, ns)]
                raise unknown_connection(f"subGroups[{number}].connectionName", machine.connection, granted) from error
            check_adoption(place, ns)
            if not isinstance(await service.clients.driver_for(place), MachineAdopter):
                raise NotDone(f"adoption at connection {place.name!r}", CANNOT_ADOPT)
    record = await service.engine.store.reader.object(Key(ns, request.mci))
    exists = record is not None and not record.removed
    if record is not None and exists and record.kind != MCI.kind:
        raise NotFound(ns, request.mci)
    running = await _same_adoption(service, record, request.machines) if record is not None and exists else None
    if running is not None:
        return running, list(request.machines)
    holders = await _holders(service)
    new: list[model.MachineToAdopt] = []
    for machine in request.machines:
        holder = holders.get((places[machine.connection].lane, machine.native_id))
        if holder is None:
            new.append(machine)
        elif (holder.ns, holder.parent) != (ns, request.mci):
            raise MachineHeld(machine.native_id, _holder_text(holder, sees))
    if not new:
        return None, []
    await _check_shown(service, places, request, new)
    accepted = await _submit(service, ns, request, model.Adoption(tuple(new)), by, exists=exists)
    return accepted.op.id, new


async def _submit(
    service: Service, ns: str, request: AdoptionRequest, adoption: model.Adoption, by: Caller, *, exists: bool
) -> Accepted:
    how: dict[str, Any] = {"actor": by.actor, "who": by.who, "args": adoption}
    if exists:
        return await service.engine.act(ns, request.mci, "adopt", **how)
    spec = model.MciSpec(
        request.mci, new_id(), (), dynamic=False, label=request.label, description=request.description, access_from=()
    )
    return await service.engine.create(ns, request.mci, MCI.kind, "adopt", spec=spec, labels=request.label, **how)


async def list_unmarked(service: Service, ns: str, connection: model.CloudConnection) -> MachineListing:
    """List the machines at a connection that carry no key; for a namespace that may adopt them."""
    check_adoption(connection, ns)
    client = await service.clients.for_connection(connection)
    if not isinstance(client.driver, MachineAdopter):
        raise NotDone(f"adoption at connection {connection.name!r}", CANNOT_ADOPT)
    return await client.list_unmarked()


async def deregister_vms(service: Service, ns: str, mci: str, vms: Sequence[str], by: Caller) -> Accepted:
    """Take our keys off the machines of VMs, which stay as they are, and remove the records of the VMs."""
    for name in vms:
        vm = await service.vm(ns, mci, name)
        driver = (await service.clients.for_lane(model.vm_of(vm).connection, model.vm_of(vm).lane)).driver
        if not isinstance(driver, MachineAdopter):
            raise NotDone(f"deregistration of {vm.id!r}", f"{CANNOT_ADOPT}; force=true removes the record alone")
        if vm.op is not None:
            raise NotDone(f"deregistration of {vm.id!r}", f"operation {vm.op} is running")
    args = model.Deregistration(tuple(vms))
    return await service.engine.act(ns, mci, "deregister", args=args, actor=by.actor, who=by.who)


async def _same_adoption(service: Service, mci: Object, machines: Iterable[model.MachineToAdopt]) -> str | None:
    """Return the operation on an MCI if it adopts the same machines."""
    operation = None if mci.op is None else await service.engine.store.reader.operation(Key(mci.ns, mci.op))
    if operation is None or operation.action != "adopt":
        return None
    running = msgspec.json.decode(operation.args, type=model.Adoption).machines
    return operation.id if {_id(machine) for machine in running} >= {_id(machine) for machine in machines} else None


def _id(machine: model.MachineToAdopt) -> tuple[str, str]:
    return machine.connection, machine.native_id


async def _holders(service: Service) -> dict[tuple[str, str], Object]:
    """Return the VM of each machine, by its lane and native id, of all namespaces."""
    reader = service.engine.store.reader
    holders: dict[tuple[str, str], Object] = {}
    for ns in await reader.namespaces():
        async for vm in list_all(reader, Selector(ns, VM.kind)):
            if has_machine(vm):
                holders[machine_of(vm)] = vm
    return holders


def _holder_text(vm: Object, sees: SeesNamespace) -> str:
    spec = model.vm_of(vm)
    if not sees(vm.ns):
        return "it is a VM of another namespace"
    return f"it is the VM {spec.name!r} of MCI {spec.mci!r} in namespace {vm.ns!r}"


async def _check_shown(
    service: Service,
    places: dict[str, model.CloudConnection],
    request: AdoptionRequest,
    new: Sequence[model.MachineToAdopt],
) -> None:
    """Refuse machines that do not exist or carry a key; a listing that is not complete refuses nothing."""
    for name, place in places.items():
        wanted = [machine for machine in new if machine.connection == name]
        client = await service.clients.for_connection(place)
        unmarked = await client.list_unmarked() if wanted else MachineListing((), complete=False)
        absent = {machine.native_id for machine in wanted} - {machine.native_id for machine in unmarked.machines}
        if not absent or not unmarked.complete:
            continue
        marked = await client.list_now()
        keys = {machine.native_id: machine.key for machine in marked.machines}
        for machine in wanted:
            if machine.native_id in absent and machine.native_id in keys:
                raise MachineHeld(machine.native_id, _key_text(keys[machine.native_id]))
            if machine.native_id in absent and marked.complete:
                number = request.machines.index(machine)
                raise BadInput(
                    f"subGroups[{number}].cspResourceId", machine.native_id, f"the id of a machine at {name} that lives"
                )


def _key_text(key: str) -> str:
    return (
        f"it carries the key {key!r} of another server, or of a VM that this server has forgotten"
        " (`stateward mci orphans` lists those)"
    )
