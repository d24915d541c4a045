"""The resources of EC2: networks, subnets, security groups and key pairs.

EC2 has no client tokens for these. A resource is searched by its tag, and created with the tag. Groups and key pairs
have names derived from their keys, so EC2 itself refuses a second one. Of networks EC2 would make two.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from stateward.drivers.aws.client import Ec2Client
from stateward.drivers.aws.listing import OWN_FILTER, PAGE_SIZE, key_filter
from stateward.drivers.aws.rules import complete_rules
from stateward.drivers.aws.states import client_token, key_of, tag_specifications
from stateward.drivers.cloud.errors import found_or_none
from stateward.drivers.cloud.networks import SearchedResources
from stateward.drivers.port import (
    CloudResource,
    ResourceKind,
)


class ResourceNames(Struct, frozen=True):
    """EC2's names for a kind of resource: in its calls, in the answers of `describe_...`, and of its id."""

    noun: str
    listed: str
    id: str


RESOURCE_NAMES = {
    ResourceKind.NETWORK:        ResourceNames("vpc",            "Vpcs",           "VpcId"),
    ResourceKind.SUBNET:         ResourceNames("subnet",         "Subnets",        "SubnetId"),
    ResourceKind.SECURITY_GROUP: ResourceNames("security_group", "SecurityGroups", "GroupId"),
    ResourceKind.SSH_KEY:        ResourceNames("key_pair",       "KeyPairs",       "KeyName"),
}  # fmt: skip
"""The id of a key pair is its name, because instances are created with that."""


class Ec2Resources(SearchedResources):
    """Finds, creates and removes resources."""

    doubled = (ResourceKind.NETWORK,)

    def __init__(self, calls: Ec2Client, zone: str) -> None:
        super().__init__()
        self._calls, self._zone = calls, zone

    async def _list(self) -> list[CloudResource]:
        return [resource for kind in RESOURCE_NAMES for resource in await self._list_kind(kind)]

    async def _list_kind(self, kind: ResourceKind) -> list[CloudResource]:
        names, limit = RESOURCE_NAMES[kind], {} if kind is ResourceKind.SSH_KEY else {"MaxResults": PAGE_SIZE}
        return [
            _listed_resource(kind, shown, str(shown[names.id]))
            async for page in self._calls.pages(f"describe_{names.noun}s", Filters=[OWN_FILTER], **limit)
            for shown in page.get(names.listed, ())
            if key_of(shown)
        ]

    async def _find(self, resource: CloudResource) -> list[Mapping[str, Any]]:
        names = RESOURCE_NAMES[resource.kind]
        answer = await self._calls.call(f"describe_{names.noun}s", Filters=[key_filter([resource.key])])
        matching = [shown for shown in answer.get(names.listed, ()) if key_of(shown) == resource.key]
        return sorted(matching, key=lambda shown: str(shown[names.id]))

    async def _make(self, resource: CloudResource) -> Mapping[str, Any]:
        call, parameters = create_call(resource, self._zone)
        made = await self._calls.call(call, **parameters)
        inner: Mapping[str, Any] = made.get("Vpc") or made.get("Subnet") or made
        return inner

    async def _delete(self, resource: CloudResource, shown: Mapping[str, Any]) -> bool:
        names = RESOURCE_NAMES[resource.kind]
        call = self._calls.call(f"delete_{names.noun}", **{names.id: shown[names.id]})
        return await found_or_none(call) is not None

    async def _complete_rules(self, resource: CloudResource, group: Mapping[str, Any]) -> bool:
        if "IpPermissions" not in group:  # it is new, and the answer to its create does not show its rules
            group = next(iter(await self._find(resource)), group)
        return await complete_rules(self._calls, resource, group)

    def _id_of(self, kind: ResourceKind, shown: Mapping[str, Any]) -> str:
        return str(shown[RESOURCE_NAMES[kind].id])


def _listed_resource(kind: ResourceKind, shown: Mapping[str, Any], native: str) -> CloudResource:
    """Return a resource as it is listed; a network is in no other."""
    within = "" if kind is ResourceKind.NETWORK else str(shown.get("VpcId", ""))
    return CloudResource(kind, key_of(shown), "", within, native_id=native)


def create_call(resource: CloudResource, zone: str) -> tuple[str, dict[str, object]]:
    """Return the call that creates a resource, and its parameters."""
    name, noun = unique_name(resource), RESOURCE_NAMES[resource.kind].noun
    tags = tag_specifications(noun.replace("_", "-"), resource.key, resource.name)
    parameters: dict[str, object] = {"TagSpecifications": tags}
    match resource.kind:
        case ResourceKind.NETWORK:
            parameters |= {"CidrBlock": resource.facts.get("cidr", "10.0.0.0/16")}
        case ResourceKind.SUBNET:
            parameters |= {"VpcId": resource.within, "CidrBlock": resource.facts.get("cidr", "10.0.0.0/24")}
            parameters |= {"AvailabilityZone": zone} if zone else {}
        case ResourceKind.SECURITY_GROUP:
            parameters |= {
                "VpcId": resource.within,
                "GroupName": name,
                "Description": "made by Stateward",
            }
        case ResourceKind.SSH_KEY if resource.facts.get("public_key"):
            parameters |= {"KeyName": name, "PublicKeyMaterial": resource.facts["public_key"].encode()}
            return "import_key_pair", parameters
        case ResourceKind.SSH_KEY:
            parameters |= {"KeyName": name, "KeyType": resource.facts.get("type", "ed25519")}
    return f"create_{noun}", parameters


def unique_name(resource: CloudResource) -> str:
    """Return the name of a resource in EC2, which no other resource has."""
    plain = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "-" for letter in resource.name
    )
    return f"stateward-{plain[:100]}-{client_token(resource.key)[:16]}"
