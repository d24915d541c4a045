"""The resources of Neutron: networks, subnets and security groups.

Neutron has no client tokens. The key of a resource is in its description, which a create can set and a listing can
filter by. A resource is searched by its description, then created, then searched again: a driver that finds another one
removes its own, and reports a transient failure. Only resources of the own project count, because everybody may share a
network with any description.
"""

from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from stateward.aio.named_locks import NamedLocks
from stateward.drivers.cloud.errors import CloudCallFailed, refusal
from stateward.drivers.openstack.cloud_client import ApiCall, OpenStackClient
from stateward.drivers.openstack.keypairs import Keypairs
from stateward.drivers.openstack.neutron_rules import complete_rules, rules_of
from stateward.drivers.openstack.servers import KEY_TEXT, described_key
from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CloudResource,
    Outcome,
    RefusalReason,
    ResourceKind,
    ResourceListing,
    TransientFailure,
)
from stateward.errors import BadInput

DEFAULT_CIDR = "10.0.0.0/24"


class NeutronNames(Struct, frozen=True):
    """Neutron's names for a kind of resource: in calls, in paths, and of one and several in documents."""

    noun: str
    path: str
    one: str
    many: str


NEUTRON_NAMES = {
    ResourceKind.NETWORK:        NeutronNames("Network",       "/networks",        "network",        "networks"),
    ResourceKind.SUBNET:         NeutronNames("Subnet",        "/subnets",         "subnet",         "subnets"),
    ResourceKind.SECURITY_GROUP: NeutronNames("SecurityGroup", "/security-groups", "security_group", "security_groups"),
}  # fmt: skip


class NeutronResources:
    """Finds, creates and removes resources; one at a time for each key. Key pairs are Nova's."""

    def __init__(self, calls: OpenStackClient) -> None:
        self._calls = calls
        self._keypairs = Keypairs(calls)
        self._locks = NamedLocks()

    async def ensure(self, resource: CloudResource) -> Outcome:
        """Find a resource by its key, or create it."""
        async with self._locks[resource.key]:
            try:
                if resource.kind is ResourceKind.SSH_KEY:
                    return await self._keypairs.ensure(resource)
                return await self._ensure(resource)
            except CloudCallFailed as failed:
                return failed.outcome_for(resource.key)

    async def remove(self, resource: CloudResource) -> Outcome:
        """Remove what carries a resource's key."""
        async with self._locks[resource.key]:
            try:
                if resource.kind is ResourceKind.SSH_KEY:
                    return await self._keypairs.remove(resource)
                return await self._remove(resource)
            except CloudCallFailed as failed:
                return failed.outcome_for(resource.key)

    async def listing(self) -> ResourceListing:
        """List what carries one of our keys, kind by kind."""
        try:
            kinds = [await self._list_kind(kind) for kind in NEUTRON_NAMES]
            kinds.append(await self._keypairs.listing())
        except CloudCallFailed as failed:
            return ResourceListing((), complete=False, problem=str(failed))
        return ResourceListing([resource for resources in kinds for resource in resources], complete=True)

    async def network_of(self, subnet: str) -> str:
        """Return the network of a subnet; refuses one of several, because Nova would choose among them."""
        call = ApiCall("GetSubnet", "network", "GET", f"/subnets/{quote(subnet, safe='')}")
        found = await self._calls.record(call, "subnet")
        network, version = str(found["network_id"]), found["ip_version"]
        beside = await self._list(ResourceKind.SUBNET, network_id=network)
        if sum(one["ip_version"] == version for one in beside) > 1:
            text = (
                f"the network {network} has several subnets, and Nova chooses one by itself: use one subnet a network"
            )
            raise refusal("GetSubnet", RefusalReason.UNABLE, text)
        return network

    async def _ensure(self, resource: CloudResource) -> Outcome:
        if resource.kind is ResourceKind.SECURITY_GROUP:
            rules_of(resource)  # bad rules are refused before anything is created
        if found := await self._find(resource):
            return await self._complete_existing(resource, found[0])
        names, body = NEUTRON_NAMES[resource.kind], create_resource_body(resource)
        call = ApiCall(f"Create{names.noun}", "network", "POST", names.path, body)
        made = await self._calls.record(call, names.one)
        if any(one["id"] != made["id"] for one in await self._find_or_nothing(resource)):
            await self._delete(resource.kind, made)
            return TransientFailure(resource.key, "somebody else was just making it too")
        if resource.kind is ResourceKind.SECURITY_GROUP:
            await self._add_rules(resource, made)
        return CallAccepted(resource.key, str(made["id"]))

    async def _complete_existing(self, resource: CloudResource, found: Mapping[str, Any]) -> Outcome:
        native = str(found["id"])
        if resource.kind is ResourceKind.SECURITY_GROUP and await complete_rules(self._calls, resource, found):
            return CallAccepted(resource.key, native)
        return AlreadyDone(resource.key, native)

    async def _add_rules(self, resource: CloudResource, made: Mapping[str, Any]) -> None:
        """Add the rules of a new group; if Neutron refuses them, the group is deleted."""
        try:
            await complete_rules(self._calls, resource, made)
        except CloudCallFailed as failed:
            if failed.why is not None:
                await self._delete(resource.kind, made)
            raise

    async def _remove(self, resource: CloudResource) -> Outcome:
        found = await self._find(resource)
        if resource.kind is ResourceKind.NETWORK:
            for one in found:
                await self._refuse_used_network(str(one["id"]))
        deleted = [await self._delete(resource.kind, one) for one in found]
        return (CallAccepted if any(deleted) else AlreadyDone)(resource.key, resource.native_id)

    async def _refuse_used_network(self, network: str) -> None:
        """Refuse to remove a network that has subnets: Neutron would delete them with it."""
        if subnets := await self._list(ResourceKind.SUBNET, network_id=network):
            text = f"the network {network} has the subnet {subnets[0]['id']}"
            raise refusal("DeleteNetwork", RefusalReason.IN_USE, text)

    async def _delete(self, kind: ResourceKind, found: Mapping[str, Any]) -> bool:
        names = NEUTRON_NAMES[kind]
        try:
            await self._calls.call(ApiCall(f"Delete{names.noun}", "network", "DELETE", f"{names.path}/{found['id']}"))
        except CloudCallFailed as failed:
            if failed.why is RefusalReason.NOT_FOUND:
                return False
            raise
        return True

    async def _find(self, resource: CloudResource) -> list[Mapping[str, Any]]:
        found = await self._list(resource.kind, description=f"{KEY_TEXT}{resource.key}")
        return sorted((one for one in found if described_key(one) == resource.key), key=lambda one: str(one["id"]))

    async def _find_or_nothing(self, resource: CloudResource) -> list[Mapping[str, Any]]:
        try:
            return await self._find(resource)
        except CloudCallFailed:
            return []  # it is created; a duplicate is found the next time

    async def _list(self, kind: ResourceKind, **filters: str) -> list[Mapping[str, Any]]:
        """List the resources of a kind in our own project."""
        names, project = NEUTRON_NAMES[kind], await self._calls.project_id()
        call = ApiCall(f"List{names.noun}s", "network", "GET", names.path, params={**filters, "project_id": project})
        pages = self._calls.pages(call, names.many)
        return [one async for page in pages for one in page if one.get("project_id") == project]

    async def _list_kind(self, kind: ResourceKind) -> list[CloudResource]:
        return [
            CloudResource(kind, described_key(one), "", str(one.get("network_id") or ""), native_id=str(one["id"]))
            for one in await self._list(kind)
            if described_key(one)
        ]


def create_resource_body(resource: CloudResource) -> dict[str, object]:
    """Return the document that creates a resource; a network has no addresses of its own, its subnets have."""
    body: dict[str, object] = {"name": resource.name, "description": f"{KEY_TEXT}{resource.key}"}
    if resource.kind is ResourceKind.SUBNET:
        cidr = resource.facts.get("cidr", DEFAULT_CIDR)
        try:
            version = ip_network(cidr).version
        except ValueError:
            text = str(BadInput("cidr", cidr, "a range of addresses"))
            raise refusal("cidr", RefusalReason.INVALID, text) from None
        body |= {"network_id": resource.within, "cidr": cidr, "ip_version": version}
    return {NEUTRON_NAMES[resource.kind].one: body}
