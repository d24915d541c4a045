"""The resources of EC2: networks, subnets, security groups and key pairs.

EC2 has no client tokens for these. A resource is searched by its tag, then created with the tag, then searched again.
Groups and key pairs have names derived from their keys, so EC2 itself refuses a second one. Of networks EC2 would make
two: a driver that finds another one removes its own, and reports a transient failure.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from stateward.drivers.aws.ec2_client import Ec2Client
from stateward.drivers.aws.errors import Ec2CallFailed
from stateward.drivers.aws.instance_listing import OWN_FILTER, PAGE_SIZE, key_filter
from stateward.drivers.aws.machines import client_token, key_of, tag_specifications
from stateward.drivers.aws.security_groups import SecurityGroupRules
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


class ResourceCalls(Struct, frozen=True):
    """How EC2 calls a kind of part."""

    describe: str
    shown: str
    create: str
    delete: str
    id: str
    tags: str


RESOURCE_CALLS = {
    ResourceKind.NETWORK: ResourceCalls("describe_vpcs", "Vpcs", "create_vpc", "delete_vpc", "VpcId", "vpc"),
    ResourceKind.SUBNET: ResourceCalls(
        "describe_subnets", "Subnets", "create_subnet", "delete_subnet", "SubnetId", "subnet"
    ),
    ResourceKind.SECURITY_GROUP: ResourceCalls(
        "describe_security_groups",
        "SecurityGroups",
        "create_security_group",
        "delete_security_group",
        "GroupId",
        "security-group",
    ),
    # Machines are made with the name of a key pair, so that is its id here.
    ResourceKind.SSH_KEY: ResourceCalls(
        "describe_key_pairs", "KeyPairs", "create_key_pair", "delete_key_pair", "KeyName", "key-pair"
    ),
}


class Ec2Resources:
    """Finds, makes and removes parts; one at a time for each key."""

    def __init__(self, calls: Ec2Client, provider_region: ProviderRegion) -> None:
        self._calls = calls
        self._place = provider_region
        self._walls = SecurityGroupRules(calls)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def ensure(self, resource: CloudResource) -> Outcome:
        """Find a part by its key, or make it."""
        async with self._locks[resource.key]:
            try:
                return await self._ensure(resource)
            except Ec2CallFailed as failed:
                return failed.outcome_for(resource.key)

    async def remove(self, resource: CloudResource) -> Outcome:
        """Remove what carries a part's key."""
        async with self._locks[resource.key]:
            try:
                gone = [await self._delete(resource, one) for one in await self._find(resource)]
            except Ec2CallFailed as failed:
                return failed.outcome_for(resource.key)
        return (
            CallAccepted(resource.key, resource.native_id)
            if any(gone)
            else AlreadyDone(resource.key, resource.native_id)
        )

    async def listing(self) -> ResourceListing:
        """List what carries a key of ours, one call for each kind."""
        try:
            each = [await self._list_kind(kind) for kind in RESOURCE_CALLS]
        except Ec2CallFailed as failed:
            return ResourceListing((), complete=False, problem=str(failed))
        return ResourceListing([resource for resources in each for resource in resources], complete=True)

    async def _list_kind(self, kind: ResourceKind) -> list[CloudResource]:
        sort, asked = (
            RESOURCE_CALLS[kind],
            {"Filters": [OWN_FILTER]} | ({} if kind is ResourceKind.SSH_KEY else {"MaxResults": PAGE_SIZE}),
        )
        found: list[CloudResource] = []
        while True:
            page = await self._calls.call(sort.describe, **asked)
            shown = [one for one in page.get(sort.shown, ()) if key_of(one)]
            found += [_listed_resource(kind, one, str(one[sort.id])) for one in shown]
            if not page.get("NextToken"):
                return found
            asked["NextToken"] = page["NextToken"]

    async def _ensure(self, resource: CloudResource) -> Outcome:
        if resource.kind is ResourceKind.SECURITY_GROUP:
            self._walls.check(resource)
        found = await self._find(resource)
        if found:
            return await self._complete_existing(resource, found[0])
        try:
            made = await self._make(resource)
        except Ec2CallFailed as failed:
            found = await self._find(resource) if failed.code.endswith(".Duplicate") else []
            if not found:
                raise
            return await self._complete_existing(resource, found[0])
        return await self._check_duplicate(resource, made)

    async def _complete_existing(self, resource: CloudResource, found: Mapping[str, Any]) -> Outcome:
        native = str(found[RESOURCE_CALLS[resource.kind].id])
        if resource.kind is ResourceKind.SECURITY_GROUP and await self._walls.add_missing(resource, found):
            return CallAccepted(resource.key, native)
        return AlreadyDone(resource.key, native)

    async def _check_duplicate(self, resource: CloudResource, made: Mapping[str, Any]) -> Outcome:
        """See whether somebody else has made the same one meanwhile."""
        native = str(made[RESOURCE_CALLS[resource.kind].id])
        if resource.kind is ResourceKind.NETWORK and await self._has_duplicates(resource, native):
            await self._delete(resource, made)
            return TransientFailure(resource.key, "somebody else was just making it too")
        if resource.kind is ResourceKind.SECURITY_GROUP:
            await self._add_rules(resource, made)
        return CallAccepted(resource.key, native, made.get("KeyMaterial", ""))

    async def _has_duplicates(self, resource: CloudResource, native: str) -> bool:
        try:
            return any(one[RESOURCE_CALLS[resource.kind].id] != native for one in await self._find(resource))
        except Ec2CallFailed:
            return False  # it is made, whatever else there may be

    async def _add_rules(self, resource: CloudResource, made: Mapping[str, Any]) -> None:
        """Give a new group its rules; one whose rules are refused is not left behind."""
        try:
            fresh = await self._find(resource)
            await self._walls.add_missing(resource, fresh[0] if fresh else made)
        except Ec2CallFailed as failed:
            if failed.why is not None:
                await self._delete(resource, made)
            raise

    async def _find(self, resource: CloudResource) -> list[Mapping[str, Any]]:
        sort = RESOURCE_CALLS[resource.kind]
        shown = (await self._calls.call(sort.describe, Filters=[key_filter([resource.key])])).get(sort.shown, ())
        return sorted((one for one in shown if key_of(one) == resource.key), key=lambda one: str(one[sort.id]))

    async def _make(self, resource: CloudResource) -> Mapping[str, Any]:
        call, asked = create_call(resource, self._place.zone)
        made = await self._calls.call(call, **asked)
        inner: Mapping[str, Any] = made.get("Vpc") or made.get("Subnet") or made
        return inner

    async def _delete(self, resource: CloudResource, found: Mapping[str, Any]) -> bool:
        sort = RESOURCE_CALLS[resource.kind]
        try:
            await self._calls.call(sort.delete, **{sort.id: found[sort.id]})
        except Ec2CallFailed as failed:
            if failed.why is RefusalReason.NOT_FOUND:
                return False
            raise
        return True


def _listed_resource(kind: ResourceKind, shown: Mapping[str, Any], native: str) -> CloudResource:
    """Return a part as it is listed; a network is within none."""
    within = "" if kind is ResourceKind.NETWORK else str(shown.get("VpcId", ""))
    return CloudResource(kind, key_of(shown), "", within, native_id=native)


def create_call(resource: CloudResource, zone: str) -> tuple[str, dict[str, object]]:
    """Return the call that makes a part, and its parameters."""
    sort = RESOURCE_CALLS[resource.kind]
    asked: dict[str, object] = {"TagSpecifications": tag_specifications(sort.tags, resource.key, resource.name)}
    match resource.kind:
        case ResourceKind.NETWORK:
            asked |= {"CidrBlock": resource.facts.get("cidr", "10.0.0.0/16")}
        case ResourceKind.SUBNET:
            asked |= {"VpcId": resource.within, "CidrBlock": resource.facts.get("cidr", "10.0.0.0/24")}
            asked |= {"AvailabilityZone": zone} if zone else {}
        case ResourceKind.SECURITY_GROUP:
            asked |= {"VpcId": resource.within, "GroupName": unique_name(resource), "Description": "made by Stateward"}
        case ResourceKind.SSH_KEY if resource.facts.get("public_key"):
            asked |= {"KeyName": unique_name(resource), "PublicKeyMaterial": resource.facts["public_key"].encode()}
            return "import_key_pair", asked
        case ResourceKind.SSH_KEY:
            asked |= {"KeyName": unique_name(resource), "KeyType": resource.facts.get("type", "ed25519")}
    return sort.create, asked


def unique_name(resource: CloudResource) -> str:
    """Return a name that no other part has, and that the same part always gets."""
    plain = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "-" for letter in resource.name
    )
    return f"stateward-{plain[:100]}-{client_token(resource.key)[:16]}"
