"""Names, ids and tags of resources in Azure Resource Manager: pure functions.

A resource is addressed by its name within a resource group. The name is derived from our key alone, so a repeated PUT
always meets the same resource. Ids are compared and returned in one spelling: Azure returns the same id with the
resource group in capitals or in small letters.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from msgspec import Struct

from stateward.drivers.cloud.machines import KEY_TAG

NAME_TAG = "stateward:name"
WITHIN_TAG = "stateward:within"
SUBNET_TAG_PREFIX = "stateward:subnet:"
"""Tags of a network with the keys of its subnets: subnets have no tags."""

MAX_TAG_VALUE = 256
FORBIDDEN_IN_TAGS = "<>%&\\?/"

VIRTUAL_MACHINE = "Microsoft.Compute/virtualMachines"
SSH_PUBLIC_KEY = "Microsoft.Compute/sshPublicKeys"
NETWORK_INTERFACE = "Microsoft.Network/networkInterfaces"
PUBLIC_ADDRESS = "Microsoft.Network/publicIPAddresses"
VIRTUAL_NETWORK = "Microsoft.Network/virtualNetworks"
SECURITY_GROUP = "Microsoft.Network/networkSecurityGroups"


class ArmScope(Struct, frozen=True):
    """Where the resources of a driver are: a resource group of a subscription, and a location."""

    subscription: str
    group: str
    location: str

    def id(self, kind: str, name: str, *child: str) -> str:
        """Return the id of a resource, or of a child such as `subnets`, name."""
        path = "/".join((kind, name, *child))
        return f"/subscriptions/{self.subscription}/resourceGroups/{self.group}/providers/{path}"

    def child_names(self, native_id: str, kind: str) -> tuple[str, ...] | None:
        """Return the name in an id of this group and kind, then its child's kind and name; None for another id."""
        start = self.id(kind, "")
        if not native_id.lower().startswith(start.lower()):
            return None
        names = tuple(native_id[len(start) :].split("/"))
        return names if all(names) else None

    def is_here(self, shown: Mapping[str, Any]) -> bool:
        """Tell whether a listed resource is in the location: a resource group may span several."""
        return normal_location(str(shown.get("location", ""))) == normal_location(self.location)


def normal_location(location: str) -> str:
    """Return a location in one spelling: `Korea Central` is `koreacentral`."""
    return location.replace(" ", "").lower()


def arm_name(key: str) -> str:
    """Return the name of the resource of a key: 42 characters that every kind of resource allows."""
    return f"stateward-{sha256(key.encode()).hexdigest()[:32]}"


def tags_of(key: str, name: str, others: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the tags of a new resource; others cannot replace ours."""
    pairs = {**(others or {}), NAME_TAG: name, KEY_TAG: key}
    return {_tag_name(tag): value if tag == KEY_TAG else value[:MAX_TAG_VALUE] for tag, value in pairs.items()}


def key_of(shown: Mapping[str, Any]) -> str:
    """Return the key of a resource; empty if it is not ours."""
    return tag_of(shown, KEY_TAG)


def tag_of(shown: Mapping[str, Any], tag: str) -> str:
    """Return the value of a tag, or an empty text; Azure does not distinguish capitals in the names of tags."""
    tags = shown.get("tags") or {}
    return next((str(value) for name, value in tags.items() if name.lower() == tag), "")


def subnet_tag(key: str) -> str:
    """Return the tag of a network that holds the key of a subnet."""
    return f"{SUBNET_TAG_PREFIX}{arm_name(key).removeprefix('stateward-')}"


def _tag_name(tag: str) -> str:
    return "".join("-" if letter in FORBIDDEN_IN_TAGS else letter for letter in tag)


def provisioning_of(shown: Mapping[str, Any] | None) -> str:
    """Return the provisioning state of a resource."""
    return str(properties_of(shown).get("provisioningState") or "")


def properties_of(shown: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the properties of a resource, which may be missing."""
    return (shown or {}).get("properties") or {}
