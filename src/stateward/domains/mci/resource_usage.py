"""Usage of connections and resources: the VMs and resources that would be lost without them.

Without its connection a VM could be neither observed nor terminated, so a connection in use cannot be removed.
"""

from collections import defaultdict

import msgspec

from stateward.domains.mci.errors import InUse
from stateward.domains.mci.lifecycle import SECURITY_GROUP, VM, VmState
from stateward.domains.mci.model import (
    RESOURCE_LIFECYCLES,
    CloudConnection,
    SecurityGroupSpec,
    resource_identity,
    vm_of,
)
from stateward.domains.mci.provider.catalogue import Catalogue, objects
from stateward.store.filters import Selector
from stateward.store.port import Reader


async def check_connection_unused(
    catalogue: Catalogue, reader: Reader, name: str, becomes: CloudConnection | None
) -> None:
    """Refuse to remove a connection in use, or to point it elsewhere."""
    was = next((one for one in await catalogue.all_connections() if one.name == name), None)
    if was is not None and changes_target(was, becomes):
        users = await objects_at_connection(reader, name)
        if users:
            raise InUse(f"connection {name!r}", users)


def changes_target(was: CloudConnection, becomes: CloudConnection | None) -> bool:
    """Tell whether the machines of a connection could no longer be found after a change."""
    return becomes is None or (was.lane, was.driver) != (becomes.lane, becomes.driver)


async def objects_at_connection(reader: Reader, connection: str) -> list[str]:
    """Return the objects at a connection, in all namespaces: VMs that are not terminated, networks, groups, keys."""
    found: list[str] = []
    for ns in await reader.namespaces():
        vms = objects(reader, Selector(ns, VM.kind, labels=(("connection", connection),)))
        found += [f"{ns}/{one.id}" async for one in vms if one.state != VmState.TERMINATED]
        for lifecycle in RESOURCE_LIFECYCLES.values():
            parts = objects(reader, Selector(ns, lifecycle.kind))
            found += [f"{ns}/{one.id}" async for one in parts if resource_identity(one).connection == connection]
    return found


Usage = dict[tuple[str, str], list[str]]
"""The users of each resource, by its type and name."""


async def usage_of(reader: Reader, ns: str) -> Usage:
    """Return the users of each resource of a namespace; terminated VMs use nothing."""
    usage: Usage = defaultdict(list)
    async for found in objects(reader, Selector(ns, VM.kind)):
        if found.state == VmState.TERMINATED:
            continue
        vm = vm_of(found)
        where = f"/ns/{ns}/mci/{vm.mci}/vm/{vm.name}"
        used = [("vNet", vm.network), ("sshKey", vm.key), ("spec", vm.spec), ("image", vm.image)]
        for resource in (*used, *(("securityGroup", name) for name in vm.groups)):
            usage[resource].append(where)
    async for found in objects(reader, Selector(ns, SECURITY_GROUP.kind)):
        group = msgspec.json.decode(found.spec, type=SecurityGroupSpec)
        usage["vNet", group.network].append(f"/ns/{ns}/resources/securityGroup/{group.name}")
    return usage
