"""Requests to adopt machines that others have created at a provider, and to deregister VMs.

An adoption is refused before anything starts if a machine does not exist, has a VM already, or carries a key of another
server. A repeated request finds its machines adopted, or its operation running, and starts nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from stateward.domains.mci.control.machine_claims import has_machine, machine_of
from stateward.domains.mci.errors import MachineHeld, NotDone
from stateward.domains.mci.guards.connection_grants import check_adoption, is_granted, unknown_connection
from stateward.domains.mci.lifecycle import MCI, VM
from stateward.domains.mci.model import (
    Adoption,
    CloudConnection,
    Deregistration,
    MachineToAdopt,
    MciSpec,
    vm_of,
)
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
    machines: tuple[MachineToAdopt, ...]
    label: dict[str, str] = {}
    description: str = ""


async def adopt_machines(
    service: Service, ns: str, request: AdoptionRequest, by: Caller, sees: SeesNamespace
) -> tuple[str | None, list[MachineToAdopt]]:
    """Adopt machines into an MCI; returns the operation, and the machines that are new. None: all were adopted before.

    With the operation of an equal request that is still running, nothing is started.
    """
    await service.namespace(ns)
    places = await _places(service, ns, request)
    found = await service.engine.store.reader.object(Key(ns, request.mci))
    exists = found is not None and not found.removed
    if found is not None and exists and found.kind != MCI.kind:
        raise NotFound(ns, request.mci)
    running = await _same_adoption(service, found, request.machines) if found is not None and exists else None
    if running is not None:
        return running, list(request.machines)
    holders = await _holders(service)
    new: list[MachineToAdopt] = []
    for one in request.machines:
        holder = holders.get((places[one.connection].lane, one.native_id))
        if holder is None:
            new.append(one)
        elif (holder.ns, holder.parent) != (ns, request.mci):
            raise MachineHeld(one.native_id, _holder_text(holder, sees))
    if not new:
        return None, []
    await _check_shown(service, places, request, new)
    accepted = await _submit(service, ns, request, Adoption(tuple(new)), by, exists=exists)
    return accepted.op.id, new


async def _submit(
    service: Service, ns: str, request: AdoptionRequest, adoption: Adoption, by: Caller, *, exists: bool
) -> Accepted:
    how: dict[str, Any] = {"actor": by.actor, "who": by.who, "args": adoption}
    if exists:
        return await service.engine.act(ns, request.mci, "adopt", **how)
    spec = MciSpec(
        request.mci, new_id(), (), dynamic=False, label=request.label, description=request.description, access_from=()
    )
    return await service.engine.create(ns, request.mci, MCI.kind, "adopt", spec=spec, labels=request.label, **how)


async def list_unmarked(service: Service, ns: str, connection: CloudConnection) -> MachineListing:
    """List the machines at a connection that carry no key; for a namespace that may adopt them."""
    check_adoption(connection, ns)
    client = await service.clients.for_connection(connection)
    if not isinstance(client.driver, MachineAdopter):
        raise NotDone(f"adoption at connection {connection.name!r}", CANNOT_ADOPT)
    return await client.list_unmarked()


async def deregister_vms(service: Service, ns: str, mci: str, vms: Sequence[str], by: Caller) -> Accepted:
    """Take our keys off the machines of VMs, which stay as they are, and remove the records of the VMs."""
    for name in vms:
        found = await service.vm(ns, mci, name)
        driver = (await service.clients.for_lane(vm_of(found).connection, vm_of(found).lane)).driver
        if not isinstance(driver, MachineAdopter):
            raise NotDone(f"deregistration of {found.id!r}", f"{CANNOT_ADOPT}; force=true removes the record alone")
        if found.op is not None:
            raise NotDone(f"deregistration of {found.id!r}", f"operation {found.op} is running")
    args = Deregistration(tuple(vms))
    return await service.engine.act(ns, mci, "deregister", args=args, actor=by.actor, who=by.who)


async def _places(service: Service, ns: str, request: AdoptionRequest) -> dict[str, CloudConnection]:
    """Return the connections of the machines; each must let the namespace adopt, and its driver must be able to."""
    places: dict[str, CloudConnection] = {}
    for number, one in enumerate(request.machines):
        if one.connection not in places:
            try:
                place = places[one.connection] = await service.catalogue.connection(one.connection)
            except UnknownName as error:
                granted = [known.name for known in await service.catalogue.connections() if is_granted(known, ns)]
                raise unknown_connection(f"subGroups[{number}].connectionName", one.connection, granted) from error
            check_adoption(place, ns)
            if not isinstance(await service.clients.driver_for(place), MachineAdopter):
                raise NotDone(f"adoption at connection {place.name!r}", CANNOT_ADOPT)
    return places


async def _same_adoption(service: Service, found: Object, machines: Iterable[MachineToAdopt]) -> str | None:
    """Return the operation on an MCI if it adopts the same machines."""
    operation = None if found.op is None else await service.engine.store.reader.operation(Key(found.ns, found.op))
    if operation is None or operation.action != "adopt":
        return None
    running = msgspec.json.decode(operation.args, type=Adoption).machines
    return operation.id if {_id(one) for one in running} >= {_id(one) for one in machines} else None


def _id(one: MachineToAdopt) -> tuple[str, str]:
    return one.connection, one.native_id


async def _holders(service: Service) -> dict[tuple[str, str], Object]:
    """Return the VM of each machine, by its lane and native id, of all namespaces."""
    reader = service.engine.store.reader
    found: dict[tuple[str, str], Object] = {}
    for ns in await reader.namespaces():
        async for vm in list_all(reader, Selector(ns, VM.kind)):
            if has_machine(vm):
                found[machine_of(vm)] = vm
    return found


def _holder_text(vm: Object, sees: SeesNamespace) -> str:
    spec = vm_of(vm)
    if not sees(vm.ns):
        return "it is a VM of another namespace"
    return f"it is the VM {spec.name!r} of MCI {spec.mci!r} in namespace {vm.ns!r}"


async def _check_shown(
    service: Service, places: dict[str, CloudConnection], request: AdoptionRequest, new: Sequence[MachineToAdopt]
) -> None:
    """Refuse machines that do not exist or carry a key; a listing that is not complete refuses nothing."""
    for name, place in places.items():
        wanted = [one for one in new if one.connection == name]
        client = await service.clients.for_connection(place)
        unmarked = await client.list_unmarked() if wanted else MachineListing((), complete=False)
        absent = {one.native_id for one in wanted} - {one.native_id for one in unmarked.machines}
        if not absent or not unmarked.complete:
            continue
        marked = await client.list_now()
        keys = {one.native_id: one.key for one in marked.machines}
        for one in wanted:
            if one.native_id in absent and one.native_id in keys:
                raise MachineHeld(one.native_id, _key_text(keys[one.native_id]))
            if one.native_id in absent and marked.complete:
                number = request.machines.index(one)
                raise BadInput(
                    f"subGroups[{number}].cspResourceId", one.native_id, f"the id of a machine at {name} that lives"
                )


def _key_text(key: str) -> str:
    return (
        f"it carries the key {key!r} of another server, or of a VM that this server has forgotten"
        " (`stateward mci orphans` lists those)"
    )
