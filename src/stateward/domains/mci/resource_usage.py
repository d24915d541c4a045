"""Usage of connections and resources: the VMs and resources that would be lost without them."""

from collections import defaultdict

from stateward.domains.mci import model
from stateward.domains.mci.lifecycle import SECURITY_GROUP, VM, VNET, VmState
from stateward.engine.queries import list_all
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.filters import Selector
from stateward.store.port import Reader
from stateward.store.records import Object

LIVING_STATES = tuple(state.word for state in VmState if state != VmState.TERMINATED)


async def objects_at_connection(uow: UnitOfWork, connection: str) -> list[str]:
    """Return the objects at a connection, in all namespaces: VMs that are not terminated, networks, groups, keys."""
    records: list[Object] = []
    for ns in await uow.tx.namespaces():
        vms = await uow.peek_selected(Selector(ns, VM.kind, labels=(("connection", connection),)))
        records += [vm for vm in vms if vm.state != VmState.TERMINATED]
        for lifecycle in model.RESOURCE_LIFECYCLES.values():
            parts = await uow.peek_selected(Selector(ns, lifecycle.kind))
            records += [part for part in parts if model.resource_identity(part).connection == connection]
    return [f"{record.ns}/{record.id}" for record in records]


Usage = dict[tuple[str, str], list[Object]]
"""The users of each resource, spec and image, by its type and name: VMs, and security groups of networks."""


async def usage_of(reader: Reader, ns: str) -> Usage:
    """Return the users of each resource of a namespace; terminated VMs use nothing."""
    usage: Usage = defaultdict(list)
    async for vm in list_all(reader, Selector(ns, VM.kind)):
        if vm.state != VmState.TERMINATED:
            for resource_type, names in model.named_resources(model.vm_of(vm)).items():
                for name in names:
                    usage[resource_type, name].append(vm)
    async for group in list_all(reader, Selector(ns, SECURITY_GROUP.kind)):
        usage["vNet", model.security_group_of(group).network].append(group)
    return usage


async def users_of(reader: Reader, resource: Object) -> list[Object]:
    """Return the users of one resource, as `usage_of` does, without those VMs that are elsewhere."""
    resource_type, identity = model.RESOURCE_TYPES[resource.kind], model.resource_identity(resource)
    place = (("provider", identity.provider), ("region", identity.region))
    vms = list_all(reader, Selector(resource.ns, VM.kind, states=LIVING_STATES, labels=place))
    users = [vm async for vm in vms if identity.name in model.named_resources(model.vm_of(vm))[resource_type]]
    if resource.kind == VNET.kind:
        groups = list_all(reader, Selector(resource.ns, SECURITY_GROUP.kind))
        users += [group async for group in groups if model.security_group_of(group).network == identity.name]
    return users
