"""Guard of resources, specs and images: what VMs use, or are about to use, is neither deleted nor taken from a network.

An MCI that is about to create VMs uses everything that its subgroups name. New objects of a namespace and MCIs that
grow share the record of the namespace (`in_namespace`). A removal excludes that record while it looks for users, so it
overlooks none. The VMs of an MCI's operation need no lock, because the MCI is a user until they are stored.
"""

from stateward.domains.mci import model
from stateward.domains.mci.errors import InUse
from stateward.domains.mci.guards.connection_grants import homes_of
from stateward.domains.mci.guards.deployment_guard import namespace_key
from stateward.domains.mci.guards.spec_validation import decode_spec
from stateward.domains.mci.handlers.prerequisites import with_prerequisite_names
from stateward.domains.mci.lifecycle import FORGET, MCI, SECURITY_GROUP, VM, VNET, MciState
from stateward.domains.mci.resource_usage import LIVING_STATES
from stateward.engine import Request
from stateward.engine.kinds import Guard
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.filters import Selector
from stateward.store.records import Object

GROWING_STATES = tuple(state.word for state in (MciState.PREPARING, MciState.PREPARED, MciState.CREATING))
"""The states of MCIs that are about to create VMs."""

Users = list[tuple[str, model.SubGroup | model.VmSpec]]
"""VMs, and subgroups of MCIs that are about to create VMs; with the id of the VM or the MCI."""


def only_unused(guard: Guard) -> Guard:
    """Return a guard that also refuses to remove what is in use: a resource, a spec, an image, or a subnet."""

    async def both(uow: UnitOfWork, request: Request, record: Object) -> Request | None:
        completed = await guard(uow, request, record)
        if request.action in ("delete", "remove"):
            resource_type, _, name = record.id.partition(":")
            users = [
                id_
                for id_, user in await _find_users(uow, request, record)
                if name in model.named_resources(user)[resource_type]
            ]
            if record.kind == VNET.kind:
                groups = await uow.peek_selected(Selector(record.ns, SECURITY_GROUP.kind))
                users += [group.id for group in groups if model.security_group_of(group).network == name]
            if users:
                raise InUse(f"{resource_type} {name!r}", list(dict.fromkeys(users)))
        elif request.action == "reshape" and record.kind == VNET.kind and FORGET not in request.facts:
            await _require_unused_subnets(uow, request, record)
        return completed

    return both


async def _require_unused_subnets(uow: UnitOfWork, request: Request, network: Object) -> None:
    """Refuse to remove subnets with VMs; a VM that names no subnet is in the first one."""
    was, becomes = model.network_of(network), decode_spec(network.kind, request.spec or network.spec, network.state)
    kept = {planned.name for planned in becomes.subnets}
    removed = [former.name for former in was.subnets if former.name not in kept]
    if not removed:
        return
    inside = [user for user in await _find_users(uow, request, network) if user[1].network == was.name]
    for subnet in removed:
        users = [id_ for id_, user in inside if (user.subnet or was.subnets[0].name) == subnet]
        if users:
            raise InUse(f"subnet {subnet!r} of vNet {was.name!r}", list(dict.fromkeys(users)))


async def _find_users(uow: UnitOfWork, request: Request, record: Object) -> Users:
    """Return what may use a resource: the VMs of its region, and all MCIs that are growing.

    MCIs come first: one that is no longer growing has stored its VMs.
    """
    await uow.exclude([namespace_key(record.ns)])
    mcis = await uow.peek_selected(Selector(record.ns, MCI.kind, states=GROWING_STATES))
    users: Users = []
    for mci in mcis:
        if _counts(mci, request):
            users += [(mci.id, group) for group in await _named_groups(uow, mci)]
    place = model.resource_identity(record) if record.kind in model.RESOURCE_TYPES else None
    labels = () if place is None else (("provider", place.provider), ("region", place.region))
    vms = await uow.peek_selected(Selector(record.ns, VM.kind, states=LIVING_STATES, labels=labels))
    return users + [(vm.id, model.vm_of(vm)) for vm in vms]


def _counts(growing: Object, request: Request) -> bool:
    """Tell whether an MCI keeps a resource: not from its own operation, nor from people while it is on hold.

    A creation on hold checks its resources again when it continues, and creates missing ones.
    """
    if request.parent is not None:
        return growing.op != request.parent
    return growing.state != MciState.PREPARED or not model.mci_of(growing).hold


async def _named_groups(uow: UnitOfWork, record: Object) -> list[model.SubGroup]:
    """Return the subgroups of an MCI with the names of all resources that their VMs use; adopted machines use none."""
    mci = model.mci_of(record)
    groups = [group for group in mci.groups if group.spec]
    homes = await homes_of(uow, record.ns, groups)
    return [with_prerequisite_names(record.ns, mci, group, group.connection or homes[group.spec]) for group in groups]
