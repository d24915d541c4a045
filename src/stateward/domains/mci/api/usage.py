"""Usage: what stands on the resources of a namespace, read off all VMs and security groups in one pass."""

from collections import defaultdict

import msgspec

from stateward.domains.mci.catalogue import objects
from stateward.domains.mci.lifecycle import SECURITY_GROUP, VM, VmState
from stateward.domains.mci.model import GroupSpec, vm_of
from stateward.store.filters import Selector
from stateward.store.port import Reader

Usage = dict[tuple[str, str], list[str]]
"""What uses a resource, by its type and name."""


async def usage_of(reader: Reader, ns: str) -> Usage:
    """Return what uses each resource of a namespace; terminated VMs use nothing."""
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
        group = msgspec.json.decode(found.spec, type=GroupSpec)
        usage["vNet", group.network].append(f"/ns/{ns}/resources/securityGroup/{group.name}")
    return usage
