"""The parts of a simulated region: networks, subnets, security groups and keys, and who stands on what."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CloudResource,
    Outcome,
    RefusalReason,
    ResourceKind,
)

PREFIXES = {
    ResourceKind.NETWORK: "net",
    ResourceKind.SUBNET: "subnet",
    ResourceKind.SECURITY_GROUP: "sg",
    ResourceKind.SSH_KEY: "key",
}

PRIVATE_KEY_TEXT = "-----BEGIN SIMULATED PRIVATE KEY-----\n{}\n-----END SIMULATED PRIVATE KEY-----\n"


class ResourceTable:
    """All parts of a region, by kind and key."""

    def __init__(self, resources: Sequence[CloudResource] = ()) -> None:
        self._resources = {(resource.kind, resource.key): resource for resource in resources}
        self._ids = {resource.native_id for resource in resources}

    def get(self, kind: ResourceKind, key: str) -> CloudResource | None:
        """Return a part that is there."""
        return self._resources.get((kind, key))

    def all(self) -> list[CloudResource]:
        """Return all parts."""
        return list(self._resources.values())

    def missing(self, ids: Collection[str]) -> list[str]:
        """Return those of some ids that no part has."""
        return [one for one in ids if one not in self._ids]

    def ensure(self, resource: CloudResource, number: int) -> Outcome:
        """Find a part by its key, or make it with this number."""
        there = self.get(resource.kind, resource.key)
        if there is not None:
            return AlreadyDone(resource.key, there.native_id)
        if _needs_network(resource) and self.missing([resource.within]):
            return CallRefused(resource.key, RefusalReason.NOT_FOUND, f"there is no network {resource.within!r}")
        made = replace(resource, native_id=f"{PREFIXES[resource.kind]}-{number:08x}")
        self._resources[resource.kind, resource.key] = made
        self._ids.add(made.native_id)
        return CallAccepted(resource.key, made.native_id, _secret(made))

    def drop(self, kind: ResourceKind, key: str) -> CloudResource:
        """Take a part away, whatever is in it or stands on it."""
        gone = self._resources.pop((kind, key))
        self._ids.discard(gone.native_id)
        return gone

    def remove(self, resource: CloudResource, in_use: bool) -> Outcome:
        """Remove a part, unless other parts are inside it or machines stand on it."""
        there = self.get(resource.kind, resource.key)
        if there is None:
            return AlreadyDone(resource.key, resource.native_id)
        inside = [one.key for one in self._resources.values() if one.within == there.native_id]
        if inside or in_use:
            who = f"{inside[0]!r} is in it" if inside else "machines stand on it"
            return CallRefused(
                resource.key, RefusalReason.IN_USE, f"{resource.kind} {there.native_id} cannot be removed: {who}"
            )
        del self._resources[resource.kind, resource.key]
        self._ids.discard(there.native_id)
        return CallAccepted(resource.key, there.native_id)


def _needs_network(resource: CloudResource) -> bool:
    """Tell whether a part is inside a network: a subnet always is, others where they say so."""
    return resource.kind is ResourceKind.SUBNET or bool(resource.within)


def _secret(resource: CloudResource) -> str:
    """Return the secret of a new key pair; who brought a public key has it already."""
    if resource.kind is not ResourceKind.SSH_KEY or resource.facts.get("public_key"):
        return ""
    return PRIVATE_KEY_TEXT.format(resource.native_id)
