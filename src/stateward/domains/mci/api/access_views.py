"""Views of the access to the VMs of an MCI (addresses, users, keys), and of its associated resources."""

from collections.abc import Iterable

from stateward.domains.mci.api.schemas import Associated, GroupAccess, MciAccess, VmAccess
from stateward.domains.mci.api.views import Views
from stateward.domains.mci.model import mci_of, vm_of, vm_seen
from stateward.drivers import ResourceKind
from stateward.store.records import Object


async def vm_access(look: Views, found: Object) -> VmAccess:
    """Return the access data of a VM."""
    vm, seen = vm_of(found), vm_seen(found)
    connection = await look.connection(vm.connection)
    key = vm.key if seen.ssh_port else ""  # without a login there is no use for a key
    return VmAccess(vm.name, seen.public_ip, seen.private_ip, seen.ssh_port, vm.user, key, connection)


async def access_of(look: Views, mci: Object) -> MciAccess:
    """Return the access data of the VMs of an MCI, by subgroup."""
    groups: dict[str, list[VmAccess]] = {}
    for one in await look.vms(mci):
        groups.setdefault(vm_of(one).group, []).append(await vm_access(look, one))
    return MciAccess(mci.id, [GroupAccess(name, "", vms) for name, vms in groups.items()])


async def associated_of(look: Views, mci: Object) -> Associated:
    """Return the names of all objects that an MCI is associated with."""
    vms = await look.vms(mci)
    specs, infos = [vm_of(one) for one in vms], await look.vm_infos(mci, vms)
    return Associated(
        connection_names=_each(one.connection for one in specs),
        provider_names=_each(one.provider for one in specs),
        sub_group_ids=_each(one.name for one in mci_of(mci).groups),
        vm_ids=_each(one.name for one in specs),
        csp_vm_names=_each(one.csp_resource_name for one in infos),
        csp_vm_ids=_each(one.csp_resource_id for one in infos),
        image_ids=_each(one.image for one in specs),
        spec_ids=_each(one.spec for one in specs),
        v_net_ids=_each(one.network for one in specs),
        csp_v_net_ids=_each(one.parts.get(ResourceKind.NETWORK, "") for one in specs),
        subnet_ids=_each(one.subnet for one in specs),
        csp_subnet_ids=_each(one.parts.get(ResourceKind.SUBNET, "") for one in specs),
        security_group_ids=_each(name for one in specs for name in one.groups),
        data_disk_ids=[],
        ssh_key_ids=_each(one.key for one in specs),
    )


def _each(names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name]
