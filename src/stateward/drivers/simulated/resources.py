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

    def __init__(self, parts: Sequence[CloudResource] = ()) -> None:
        self._resources = {(part.kind, part.key): part for part in parts}
        self._ids = {part.native_id for part in parts}

    def get(self, kind: ResourceKind, key: str) -> CloudResource | None:
        """Return a part that is there."""
        return self._resources.get((kind, key))

    def all(self) -> list[CloudResource]:
        """Return all parts."""
        return list(self._resources.values())

    def missing(self, ids: Collection[str]) -> list[str]:
        """Return those of some ids that no part has."""
        return [one for one in ids if one not in self._ids]

    def ensure(self, part: CloudResource, number: int) -> Outcome:
        """Find a part by its key, or make it with this number."""
        there = self.get(part.kind, part.key)
        if there is not None:
            return AlreadyDone(part.key, there.native_id)
        if _needs_network(part) and self.missing([part.within]):
            return CallRefused(part.key, RefusalReason.NOT_FOUND, f"there is no network {part.within!r}")
        made = replace(part, native_id=f"{PREFIXES[part.kind]}-{number:08x}")
        self._resources[part.kind, part.key] = made
        self._ids.add(made.native_id)
        return CallAccepted(part.key, made.native_id, _secret(made))

    def drop(self, kind: ResourceKind, key: str) -> CloudResource:
        """Take a part away, whatever is in it or stands on it."""
        gone = self._resources.pop((kind, key))
        self._ids.discard(gone.native_id)
        return gone

    def remove(self, part: CloudResource, stood_on: bool) -> Outcome:
        """Remove a part, unless other parts are inside it or machines stand on it."""
        there = self.get(part.kind, part.key)
        if there is None:
            return AlreadyDone(part.key, part.native_id)
        inside = [one.key for one in self._resources.values() if one.within == there.native_id]
        if inside or stood_on:
            who = f"{inside[0]!r} is in it" if inside else "machines stand on it"
            return CallRefused(
                part.key, RefusalReason.IN_USE, f"{part.kind} {there.native_id} cannot be removed: {who}"
            )
        del self._resources[part.kind, part.key]
        self._ids.discard(there.native_id)
        return CallAccepted(part.key, there.native_id)


def _needs_network(part: CloudResource) -> bool:
    """Tell whether a part is inside a network: a subnet always is, others where they say so."""
    return part.kind is ResourceKind.SUBNET or bool(part.within)


def _secret(part: CloudResource) -> str:
    """Return the secret of a new key pair; who brought a public key has it already."""
    if part.kind is not ResourceKind.SSH_KEY or part.facts.get("public_key"):
        return ""
    return PRIVATE_KEY_TEXT.format(part.native_id)
