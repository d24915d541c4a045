"""The parts of a simulated region: networks, subnets, security groups and keys, and who stands on what."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from stateward.drivers.port import Accepted, Already, Outcome, Part, PartKind, Refused, Why

PREFIXES = {
    PartKind.NETWORK: "net",
    PartKind.SUBNET: "subnet",
    PartKind.SECURITY_GROUP: "sg",
    PartKind.SSH_KEY: "key",
}

SECRET = "-----BEGIN SIMULATED PRIVATE KEY-----\n{}\n-----END SIMULATED PRIVATE KEY-----\n"  # noqa: S105 - opens nothing


class Shelf:
    """All parts of a region, by kind and key."""

    def __init__(self, parts: Sequence[Part] = ()) -> None:
        self._parts = {(part.kind, part.key): part for part in parts}
        self._ids = {part.native_id for part in parts}

    def get(self, kind: PartKind, key: str) -> Part | None:
        """Return a part that is there."""
        return self._parts.get((kind, key))

    def all(self) -> list[Part]:
        """Return all parts."""
        return list(self._parts.values())

    def missing(self, ids: Collection[str]) -> list[str]:
        """Return those of some ids that no part has."""
        return [one for one in ids if one not in self._ids]

    def ensure(self, part: Part, number: int) -> Outcome:
        """Find a part by its key, or make it with this number."""
        there = self.get(part.kind, part.key)
        if there is not None:
            return Already(part.key, there.native_id)
        if _needs_network(part) and self.missing([part.within]):
            return Refused(part.key, Why.NOT_FOUND, f"there is no network {part.within!r}")
        made = replace(part, native_id=f"{PREFIXES[part.kind]}-{number:08x}")
        self._parts[part.kind, part.key] = made
        self._ids.add(made.native_id)
        return Accepted(part.key, made.native_id, _secret(made))

    def drop(self, kind: PartKind, key: str) -> Part:
        """Take a part away, whatever is in it or stands on it."""
        gone = self._parts.pop((kind, key))
        self._ids.discard(gone.native_id)
        return gone

    def remove(self, part: Part, stood_on: bool) -> Outcome:
        """Remove a part, unless other parts are inside it or machines stand on it."""
        there = self.get(part.kind, part.key)
        if there is None:
            return Already(part.key, part.native_id)
        inside = [one.key for one in self._parts.values() if one.within == there.native_id]
        if inside or stood_on:
            who = f"{inside[0]!r} is in it" if inside else "machines stand on it"
            return Refused(part.key, Why.IN_USE, f"{part.kind} {there.native_id} cannot be removed: {who}")
        del self._parts[part.kind, part.key]
        self._ids.discard(there.native_id)
        return Accepted(part.key, there.native_id)


def _needs_network(part: Part) -> bool:
    """Tell whether a part is inside a network: a subnet always is, others where they say so."""
    return part.kind is PartKind.SUBNET or bool(part.within)


def _secret(part: Part) -> str:
    """Return the secret of a new key pair; who brought a public key has it already."""
    if part.kind is not PartKind.SSH_KEY or part.facts.get("public_key"):
        return ""
    return SECRET.format(part.native_id)
