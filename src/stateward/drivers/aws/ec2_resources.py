"""The resources of EC2: networks, subnets, security groups and key pairs.

EC2 has no client tokens for these. A resource is searched by its tag, then created with the tag, then searched again.
Groups and key pairs have names derived from their keys, so EC2 itself refuses a second one. Of networks EC2 would make
two: a driver that finds another one removes its own, and reports a transient failure.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from stateward.aio.named_locks import NamedLocks
from stateward.drivers.aws.ec2_client import Ec2Client
from stateward.drivers.aws.instances import OWN_FILTER, PAGE_SIZE, key_filter
from stateward.drivers.aws.machines import client_token, key_of, tag_specifications
from stateward.drivers.aws.security_groups import complete_rules, rules_of
from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CloudResource,
    Outcome,
    ProviderRegion,
    RefusalReason,
    ResourceKind,
    ResourceListing,
    TransientFailure,
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


class Ec2Resources:
    """Finds, creates and removes resources; one at a time for each key."""

    def __init__(self, calls: Ec2Client, provider_region: ProviderRegion) -> None:
        self._calls = calls
        self._region = provider_region
        self._locks = NamedLocks()

    async def ensure(self, resource: CloudResource) -> Outcome:
        """Find a resource by its key, or create it."""
        return await self._one_at_a_time(resource, self._ensure)

    async def remove(self, resource: CloudResource) -> Outcome:
        """Remove what carries a resource's key."""
        return await self._one_at_a_time(resource, self._remove)

    async def _one_at_a_time(
        self, resource: CloudResource, work: Callable[[CloudResource], Awaitable[Outcome]]
    ) -> Outcome:
        async with self._locks[resource.key]:
            try:
                return await work(resource)
            except CloudCallFailed as failed:
                return failed.outcome_for(resource.key)

    async def listing(self) -> ResourceListing:
        """List what carries one of our keys, kind by kind."""
        try:
            kinds = [await self._list_kind(kind) for kind in RESOURCE_NAMES]
        except CloudCallFailed as failed:
            return ResourceListing((), complete=False, problem=str(failed))
        return ResourceListing([resource for resources in kinds for resource in resources], complete=True)

    async def _list_kind(self, kind: ResourceKind) -> list[CloudResource]:
        names, limit = RESOURCE_NAMES[kind], {} if kind is ResourceKind.SSH_KEY else {"MaxResults": PAGE_SIZE}
        return [
            _listed_resource(kind, one, str(one[names.id]))
            async for page in self._calls.pages(f"describe_{names.noun}s", Filters=[OWN_FILTER], **limit)
            for one in page.get(names.listed, ())
            if key_of(one)
        ]

    async def _remove(self, resource: CloudResource) -> Outcome:
        deleted = [await self._delete(resource, one) for one in await self._find(resource)]
        return (CallAccepted if any(deleted) else AlreadyDone)(resource.key, resource.native_id)

    async def _ensure(self, resource: CloudResource) -> Outcome:
        if resource.kind is ResourceKind.SECURITY_GROUP:
            rules_of(resource)  # bad rules are refused before anything is created
        if found := await self._find(resource):
            return await self._complete_existing(resource, found[0])
        try:
            made = await self._make(resource)
        except CloudCallFailed as failed:
            if failed.code.endswith(".Duplicate") and (found := await self._find(resource)):
                return await self._complete_existing(resource, found[0])
            raise
        return await self._check_duplicate(resource, made)

    async def _complete_existing(self, resource: CloudResource, found: Mapping[str, Any]) -> Outcome:
        native = str(found[RESOURCE_NAMES[resource.kind].id])
        if resource.kind is ResourceKind.SECURITY_GROUP and await complete_rules(self._calls, resource, found):
            return CallAccepted(resource.key, native)
        return AlreadyDone(resource.key, native)

    async def _check_duplicate(self, resource: CloudResource, made: Mapping[str, Any]) -> Outcome:
        """Finish a new resource, unless another driver has created the same one meanwhile."""
        native = str(made[RESOURCE_NAMES[resource.kind].id])
        if resource.kind is ResourceKind.NETWORK and await self._has_duplicates(resource, native):
            await self._delete(resource, made)
            return TransientFailure(resource.key, "somebody else was just making it too")
        if resource.kind is ResourceKind.SECURITY_GROUP:
            await self._add_rules(resource, made)
        return CallAccepted(resource.key, native, made.get("KeyMaterial", ""))

    async def _has_duplicates(self, resource: CloudResource, native: str) -> bool:
        try:
            return any(one[RESOURCE_NAMES[resource.kind].id] != native for one in await self._find(resource))
        except CloudCallFailed:
            return False  # it is created; a duplicate is found the next time

    async def _add_rules(self, resource: CloudResource, made: Mapping[str, Any]) -> None:
        """Give a new group its rules; if EC2 refuses them, the group is deleted."""
        try:
            fresh = await self._find(resource)
            await complete_rules(self._calls, resource, fresh[0] if fresh else made)
        except CloudCallFailed as failed:
            if failed.why is not None:
                await self._delete(resource, made)
            raise

    async def _find(self, resource: CloudResource) -> list[Mapping[str, Any]]:
        names = RESOURCE_NAMES[resource.kind]
        answer = await self._calls.call(f"describe_{names.noun}s", Filters=[key_filter([resource.key])])
        found = [one for one in answer.get(names.listed, ()) if key_of(one) == resource.key]
        return sorted(found, key=lambda one: str(one[names.id]))

    async def _make(self, resource: CloudResource) -> Mapping[str, Any]:
        call, parameters = create_call(resource, self._region.zone)
        made = await self._calls.call(call, **parameters)
        inner: Mapping[str, Any] = made.get("Vpc") or made.get("Subnet") or made
        return inner

    async def _delete(self, resource: CloudResource, found: Mapping[str, Any]) -> bool:
        names = RESOURCE_NAMES[resource.kind]
        try:
            await self._calls.call(f"delete_{names.noun}", **{names.id: found[names.id]})
        except CloudCallFailed as failed:
            if failed.why is RefusalReason.NOT_FOUND:
                return False
            raise
        return True


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
