"""The resources of Neutron: networks, subnets and security groups.

Neutron has no client tokens. The key of a resource is in its description, which a create can set and a listing can
filter by. Only resources of the own project count, because everybody may share a network with any description.
"""

from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from stateward.drivers import port
from stateward.drivers.cloud.errors import CloudCallFailed, found_or_none, refusal
from stateward.drivers.cloud.networks import SearchedResources, key_pair_of
from stateward.drivers.openstack.client import ApiCall, OpenStackClient
from stateward.drivers.openstack.rules import complete_rules
from stateward.drivers.openstack.states import KEY_TEXT, MAX_TEXT, described_key
from stateward.drivers.port import (
    CloudResource,
    Outcome,
    RefusalReason,
    ResourceKind,
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


class OpenStackResources(SearchedResources):
    """Finds, creates and removes resources. Key pairs are Nova's."""

    def __init__(self, calls: OpenStackClient) -> None:
        super().__init__()
        self._calls = calls
        self._keypairs = Keypairs(calls)

    async def _list(self) -> list[CloudResource]:
        resources = [resource for kind in NEUTRON_NAMES for resource in await self._list_kind(kind)]
        return [*resources, *await self._keypairs.listing()]

    async def network_of(self, subnet: str) -> str:
        """Return the network of a subnet; refuses one of several, because Nova would choose among them."""
        call = ApiCall("GetSubnet", "network", "GET", f"/subnets/{quote(subnet, safe='')}")
        record = await self._calls.record(call, "subnet")
        network, version = str(record["network_id"]), record["ip_version"]
        beside = await self._listed(ResourceKind.SUBNET, network_id=network)
        if sum(other["ip_version"] == version for other in beside) > 1:
            text = (
                f"the network {network} has several subnets, and Nova chooses one by itself: use one subnet a network"
            )
            raise refusal("GetSubnet", RefusalReason.UNABLE, text)
        return network

    async def _ensure(self, resource: CloudResource) -> Outcome:
        if resource.kind is ResourceKind.SSH_KEY:
            return await self._keypairs.ensure(resource)
        return await super()._ensure(resource)

    async def _remove(self, resource: CloudResource) -> Outcome:
        if resource.kind is ResourceKind.SSH_KEY:
            return await self._keypairs.remove(resource)
        return await super()._remove(resource)

    async def _make(self, resource: CloudResource) -> Mapping[str, Any]:
        names, body = NEUTRON_NAMES[resource.kind], create_resource_body(resource)
        return await self._calls.record(ApiCall(f"Create{names.noun}", "network", "POST", names.path, body), names.one)

    async def _delete(self, resource: CloudResource, shown: Mapping[str, Any]) -> bool:
        names, native = NEUTRON_NAMES[resource.kind], str(shown["id"])
        if resource.kind is ResourceKind.NETWORK:
            await self._refuse_used_network(native)
        call = ApiCall(f"Delete{names.noun}", "network", "DELETE", f"{names.path}/{native}")
        return await found_or_none(self._calls.call(call)) is not None

    async def _complete_rules(self, resource: CloudResource, group: Mapping[str, Any]) -> bool:
        return await complete_rules(self._calls, resource, group)

    def _id_of(self, kind: ResourceKind, shown: Mapping[str, Any]) -> str:  # noqa: ARG002 - it is the same for all
        return str(shown["id"])

    async def _refuse_used_network(self, network: str) -> None:
        """Refuse to remove a network that has subnets: Neutron would delete them with it."""
        if subnets := await self._listed(ResourceKind.SUBNET, network_id=network):
            text = f"the network {network} has the subnet {subnets[0]['id']}"
            raise refusal("DeleteNetwork", RefusalReason.IN_USE, text)

    async def _find(self, resource: CloudResource) -> list[Mapping[str, Any]]:
        listed = await self._listed(resource.kind, description=f"{KEY_TEXT}{resource.key}")
        return sorted(
            (shown for shown in listed if described_key(shown) == resource.key), key=lambda shown: str(shown["id"])
        )

    async def _listed(self, kind: ResourceKind, **filters: str) -> list[Mapping[str, Any]]:
        """List the resources of a kind in our own project."""
        names, project = NEUTRON_NAMES[kind], await self._calls.project_id()
        call = ApiCall(f"List{names.noun}s", "network", "GET", names.path, params={**filters, "project_id": project})
        pages = self._calls.pages(call, names.many)
        return [shown async for page in pages for shown in page if shown.get("project_id") == project]

    async def _list_kind(self, kind: ResourceKind) -> list[CloudResource]:
        return [
            CloudResource(
                kind, described_key(shown), "", str(shown.get("network_id") or ""), native_id=str(shown["id"])
            )
            for shown in await self._listed(kind)
            if described_key(shown)
        ]


def create_resource_body(resource: CloudResource) -> dict[str, object]:
    """Return the document that creates a resource; a network has no addresses of its own, its subnets have."""
    body: dict[str, object] = {"name": resource.name, "description": f"{KEY_TEXT}{resource.key}"}
    if resource.kind is ResourceKind.SUBNET:
        cidr = resource.facts.get("cidr", DEFAULT_CIDR)
        try:
            version = ip_network(cidr).version
        except ValueError:
            raise BadInput("cidr", cidr, "a range of addresses") from None
        body |= {"network_id": resource.within, "cidr": cidr, "ip_version": version}
    return {NEUTRON_NAMES[resource.kind].one: body}


# --- key pairs -------------------------------------------------------------------------------------------------------

# A key pair of Nova belongs to the user of the login. It has no field for a key of ours, so its name contains it. Nova
# refuses a second one of the same name. The driver makes the pair itself, because newer Novas make none. The private
# key leaves this process in the outcome only.

START = "stateward-"


def keypair_name(resource: port.CloudResource) -> str:
    """Return the name of a key pair: for people first, and with the key in hexadecimal at its end."""
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in resource.name)
    return f"{START}{plain[:60]}-{resource.key.encode().hex()}"


def key_in_name(name: str) -> str:
    """Return the key in the name of a key pair; empty if it is not ours."""
    if not name.startswith(START):
        return ""
    try:
        return bytes.fromhex(name.rpartition("-")[2]).decode()
    except ValueError:
        return ""


class Keypairs:
    """Finds, creates and removes key pairs."""

    def __init__(self, calls: OpenStackClient) -> None:
        self._calls = calls

    async def ensure(self, resource: port.CloudResource) -> port.Outcome:
        """Create a key pair, unless there is one of its name; a secret whose answer was lost is lost."""
        name = keypair_name(resource)
        if len(name) > MAX_TEXT:
            return port.CallRefused(
                resource.key, port.RefusalReason.INVALID, "the key is too long for the name of a key pair"
            )
        if any(other.native_id == name for other in await self.listing()):
            return port.AlreadyDone(resource.key, name)
        pair = key_pair_of(resource)
        body = {"keypair": {"name": name, "type": "ssh", "public_key": pair.public}}
        try:
            await self._calls.call(ApiCall("CreateKeypair", "compute", "POST", "/os-keypairs", body))
        except CloudCallFailed as failed:
            if failed.why is port.RefusalReason.CONFLICT:  # somebody else has just made it
                return port.AlreadyDone(resource.key, name)
            raise
        return port.CallAccepted(resource.key, name, pair.private)

    async def remove(self, resource: port.CloudResource) -> port.Outcome:
        """Remove the key pairs that carry a key."""
        names = [pair.native_id for pair in await self.listing() if pair.key == resource.key]
        deleted = [await self._delete(name) for name in names]
        return (port.CallAccepted if any(deleted) else port.AlreadyDone)(resource.key, resource.native_id)

    async def listing(self) -> list[port.CloudResource]:
        """List our key pairs."""
        call = ApiCall("ListKeypairs", "compute", "GET", "/os-keypairs")
        names = [str(pair["keypair"]["name"]) async for page in self._calls.pages(call, "keypairs") for pair in page]
        pairs = [(key_in_name(name), name) for name in names]
        return [port.CloudResource(port.ResourceKind.SSH_KEY, key, "", native_id=name) for key, name in pairs if key]

    async def _delete(self, name: str) -> bool:
        path = f"/os-keypairs/{quote(name, safe='')}"
        call = self._calls.call(ApiCall("DeleteKeypair", "compute", "DELETE", path))
        return await found_or_none(call) is not None
