"""What machines stand on: networks, subnets, security groups, key pairs.

EC2 has no client tokens for these. A part is found by its tag first, then made with its tag on it, then looked for
again. Groups and key pairs get names that follow from their keys, so that EC2 itself refuses a second one. Of networks
it would make two: who finds another beside the one just made takes the own one away again, and is asked once more.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from stateward.drivers.aws.describe import OURS, PAGE, having
from stateward.drivers.aws.ec2_client import Calls
from stateward.drivers.aws.errors import CallFailed
from stateward.drivers.aws.machines import client_token, key_of, tagged
from stateward.drivers.aws.security_groups import Walls
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


class Sort(Struct, frozen=True):
    """How EC2 calls a kind of part."""

    describe: str
    shown: str
    create: str
    delete: str
    id: str
    tags: str


SORTS = {
    ResourceKind.NETWORK: Sort("describe_vpcs", "Vpcs", "create_vpc", "delete_vpc", "VpcId", "vpc"),
    ResourceKind.SUBNET: Sort("describe_subnets", "Subnets", "create_subnet", "delete_subnet", "SubnetId", "subnet"),
    ResourceKind.SECURITY_GROUP: Sort(
        "describe_security_groups",
        "SecurityGroups",
        "create_security_group",
        "delete_security_group",
        "GroupId",
        "security-group",
    ),
    # Machines are made with the name of a key pair, so that is its id here.
    ResourceKind.SSH_KEY: Sort(
        "describe_key_pairs", "KeyPairs", "create_key_pair", "delete_key_pair", "KeyName", "key-pair"
    ),
}


class Parts:
    """Finds, makes and removes parts; one at a time for each key."""

    def __init__(self, calls: Calls, place: ProviderRegion) -> None:
        self._calls = calls
        self._place = place
        self._walls = Walls(calls)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def ensure(self, part: CloudResource) -> Outcome:
        """Find a part by its key, or make it."""
        async with self._locks[part.key]:
            try:
                return await self._ensure(part)
            except CallFailed as failed:
                return failed.to(part.key)

    async def remove(self, part: CloudResource) -> Outcome:
        """Remove what carries a part's key."""
        async with self._locks[part.key]:
            try:
                gone = [await self._delete(part, one) for one in await self._find(part)]
            except CallFailed as failed:
                return failed.to(part.key)
        return CallAccepted(part.key, part.native_id) if any(gone) else AlreadyDone(part.key, part.native_id)

    async def listing(self) -> ResourceListing:
        """List what carries a key of ours, one call for each kind."""
        try:
            each = [await self._shown(kind) for kind in SORTS]
        except CallFailed as failed:
            return ResourceListing((), complete=False, problem=str(failed))
        return ResourceListing([part for parts in each for part in parts], complete=True)

    async def _shown(self, kind: ResourceKind) -> list[CloudResource]:
        sort, asked = SORTS[kind], {"Filters": [OURS]} | ({} if kind is ResourceKind.SSH_KEY else {"MaxResults": PAGE})
        found: list[CloudResource] = []
        while True:
            page = await self._calls.call(sort.describe, **asked)
            shown = [one for one in page.get(sort.shown, ()) if key_of(one)]
            found += [_part(kind, one, str(one[sort.id])) for one in shown]
            if not page.get("NextToken"):
                return found
            asked["NextToken"] = page["NextToken"]

    async def _ensure(self, part: CloudResource) -> Outcome:
        if part.kind is ResourceKind.SECURITY_GROUP:
            self._walls.check(part)
        found = await self._find(part)
        if found:
            return await self._settled(part, found[0])
        try:
            made = await self._make(part)
        except CallFailed as failed:
            found = await self._find(part) if failed.code.endswith(".Duplicate") else []
            if not found:
                raise
            return await self._settled(part, found[0])
        return await self._alone(part, made)

    async def _settled(self, part: CloudResource, found: Mapping[str, Any]) -> Outcome:
        native = str(found[SORTS[part.kind].id])
        if part.kind is ResourceKind.SECURITY_GROUP and await self._walls.complete(part, found):
            return CallAccepted(part.key, native)
        return AlreadyDone(part.key, native)

    async def _alone(self, part: CloudResource, made: Mapping[str, Any]) -> Outcome:
        """See whether somebody else has made the same one meanwhile."""
        native = str(made[SORTS[part.kind].id])
        if part.kind is ResourceKind.NETWORK and await self._rivals(part, native):
            await self._delete(part, made)
            return TransientFailure(part.key, "somebody else was just making it too")
        if part.kind is ResourceKind.SECURITY_GROUP:
            await self._fill(part, made)
        return CallAccepted(part.key, native, made.get("KeyMaterial", ""))

    async def _rivals(self, part: CloudResource, native: str) -> bool:
        try:
            return any(one[SORTS[part.kind].id] != native for one in await self._find(part))
        except CallFailed:
            return False  # it is made, whatever else there may be

    async def _fill(self, part: CloudResource, made: Mapping[str, Any]) -> None:
        """Give a new group its rules; one whose rules are refused is not left behind."""
        try:
            fresh = await self._find(part)
            await self._walls.complete(part, fresh[0] if fresh else made)
        except CallFailed as failed:
            if failed.why is not None:
                await self._delete(part, made)
            raise

    async def _find(self, part: CloudResource) -> list[Mapping[str, Any]]:
        sort = SORTS[part.kind]
        shown = (await self._calls.call(sort.describe, Filters=[having([part.key])])).get(sort.shown, ())
        return sorted((one for one in shown if key_of(one) == part.key), key=lambda one: str(one[sort.id]))

    async def _make(self, part: CloudResource) -> Mapping[str, Any]:
        call, asked = wish(part, self._place.zone)
        made = await self._calls.call(call, **asked)
        inner: Mapping[str, Any] = made.get("Vpc") or made.get("Subnet") or made
        return inner

    async def _delete(self, part: CloudResource, found: Mapping[str, Any]) -> bool:
        sort = SORTS[part.kind]
        try:
            await self._calls.call(sort.delete, **{sort.id: found[sort.id]})
        except CallFailed as failed:
            if failed.why is RefusalReason.NOT_FOUND:
                return False
            raise
        return True


def _part(kind: ResourceKind, shown: Mapping[str, Any], native: str) -> CloudResource:
    """Return a part as it is listed; a network is within none."""
    within = "" if kind is ResourceKind.NETWORK else str(shown.get("VpcId", ""))
    return CloudResource(kind, key_of(shown), "", within, native_id=native)


def wish(part: CloudResource, zone: str) -> tuple[str, dict[str, object]]:
    """Return the call that makes a part, and its parameters."""
    sort = SORTS[part.kind]
    asked: dict[str, object] = {"TagSpecifications": tagged(sort.tags, part.key, part.name)}
    match part.kind:
        case ResourceKind.NETWORK:
            asked |= {"CidrBlock": part.facts.get("cidr", "10.0.0.0/16")}
        case ResourceKind.SUBNET:
            asked |= {"VpcId": part.within, "CidrBlock": part.facts.get("cidr", "10.0.0.0/24")}
            asked |= {"AvailabilityZone": zone} if zone else {}
        case ResourceKind.SECURITY_GROUP:
            asked |= {"VpcId": part.within, "GroupName": unique_name(part), "Description": "made by Stateward"}
        case ResourceKind.SSH_KEY if part.facts.get("public_key"):
            asked |= {"KeyName": unique_name(part), "PublicKeyMaterial": part.facts["public_key"].encode()}
            return "import_key_pair", asked
        case ResourceKind.SSH_KEY:
            asked |= {"KeyName": unique_name(part), "KeyType": part.facts.get("type", "ed25519")}
    return sort.create, asked


def unique_name(part: CloudResource) -> str:
    """Return a name that no other part has, and that the same part always gets."""
    plain = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "-" for letter in part.name
    )
    return f"stateward-{plain[:100]}-{client_token(part.key)[:16]}"
