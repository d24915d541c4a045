"""Usage of connections and resources: the VMs and resources that would be lost without them.

Without its connection a VM could be neither observed nor terminated, so a connection in use cannot be removed.
"""

from collections import defaultdict

from stateward.domains.mci.errors import InUse
from stateward.domains.mci.lifecycle import SECURITY_GROUP, VM, VmState
from stateward.domains.mci.model import (
    RESOURCE_LIFECYCLES,
    CloudConnection,
    named_resources,
    resource_identity,
    security_group_of,
    vm_of,
)
from stateward.domains.mci.provider.catalogue import Catalogue
from stateward.engine.queries import list_all
from stateward.store.filters import Selector
from stateward.store.port import Reader
from stateward.store.records import Object


async def check_connection_unused(
    catalogue: Catalogue, reader: Reader, name: str, becomes: CloudConnection | None
) -> None:
    """Refuse to remove a connection in use, or to point it elsewhere."""
    was = next((one for one in await catalogue.all_connections() if one.name == name), None)
    if was is None or (becomes is not None and (was.lane, was.driver) == (becomes.lane, becomes.driver)):
        return
    users = await objects_at_connection(reader, name)  # their machines could no longer be found
    if users:
        raise InUse(f"connection {name!r}", users)


async def objects_at_connection(reader: Reader, connection: str) -> list[str]:
    """Return the objects at a connection, in all namespaces: VMs that are not terminated, networks, groups, keys."""
    found: list[str] = []
    for ns in await reader.namespaces():
        vms = list_all(reader, Selector(ns, VM.kind, labels=(("connection", connection),)))
        found += [f"{ns}/{one.id}" async for one in vms if one.state != VmState.TERMINATED]
        for lifecycle in RESOURCE_LIFECYCLES.values():
            parts = list_all(reader, Selector(ns, lifecycle.kind))
            found += [f"{ns}/{one.id}" async for one in parts if resource_identity(one).connection == connection]
    return found


Usage = dict[tuple[str, str], list[Object]]
"""The users of each resource, spec and image, by its type and name: VMs, and security groups of networks."""


async def usage_of(reader: Reader, ns: str) -> Usage:
    """Return the users of each resource of a namespace; terminated VMs use nothing."""
    usage: Usage = defaultdict(list)
    async for vm in list_all(reader, Selector(ns, VM.kind)):
        if vm.state != VmState.TERMINATED:
            for resource_type, names in named_resources(vm_of(vm)).items():
                for name in names:
                    usage[resource_type, name].append(vm)
    async for group in list_all(reader, Selector(ns, SECURITY_GROUP.kind)):
        usage["vNet", security_group_of(group).network].append(group)
    return usage
