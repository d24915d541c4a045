"""The resources of a simulated region: networks, subnets, security groups and keys."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from stateward.drivers import port
from stateward.drivers.security_rules import wanted_rules
from stateward.errors import BadInput

PREFIXES = {
    port.ResourceKind.NETWORK: "net",
    port.ResourceKind.SUBNET: "subnet",
    port.ResourceKind.SECURITY_GROUP: "sg",
    port.ResourceKind.SSH_KEY: "key",
}

PRIVATE_KEY_TEXT = "-----BEGIN SIMULATED PRIVATE KEY-----\n{}\n-----END SIMULATED PRIVATE KEY-----\n"


def row_key(kind: port.ResourceKind, key: str) -> str:
    """Return the key of a resource among those of all kinds."""
    return f"{kind}/{key}"


class ResourceTable:
    """All resources of a region, by their row keys."""

    def __init__(self, resources: Sequence[port.CloudResource] = ()) -> None:
        self._resources = {row_key(resource.kind, resource.key): resource for resource in resources}
        self._ids = {resource.native_id for resource in resources}

    def row(self, key: str) -> port.CloudResource | None:
        """Return the resource under a row key, or None."""
        return self._resources.get(key)

    def get(self, kind: port.ResourceKind, key: str) -> port.CloudResource | None:
        """Return a resource, or None."""
        return self.row(row_key(kind, key))

    def all(self) -> list[port.CloudResource]:
        """Return all resources."""
        return list(self._resources.values())

    def missing(self, ids: Collection[str]) -> list[str]:
        """Return the ids that no resource has."""
        return [id_ for id_ in ids if id_ not in self._ids]

    def ensure(self, resource: port.CloudResource, number: int) -> port.Outcome:
        """Find a resource by its key, or create it with this number."""
        try:
            rules = wanted_rules(resource.facts.get("rules", ""))
        except BadInput as error:
            return port.CallRefused(resource.key, port.RefusalReason.INVALID, str(error))
        there = self.get(resource.kind, resource.key)
        if there is not None:
            # a security group gets exactly the wanted rules; other resources stay as they are
            if (
                there.kind is not port.ResourceKind.SECURITY_GROUP
                or wanted_rules(there.facts.get("rules", "")) == rules
            ):
                return port.AlreadyDone(there.key, there.native_id)
            self._resources[row_key(there.kind, there.key)] = replace(there, facts=resource.facts)
            return port.CallAccepted(there.key, there.native_id)
        if (resource.kind is port.ResourceKind.SUBNET or bool(resource.within)) and self.missing([resource.within]):
            return port.CallRefused(
                resource.key, port.RefusalReason.NOT_FOUND, f"there is no network {resource.within!r}"
            )
        made = replace(resource, native_id=f"{PREFIXES[resource.kind]}-{number:08x}")
        self._resources[row_key(resource.kind, resource.key)] = made
        self._ids.add(made.native_id)
        return port.CallAccepted(resource.key, made.native_id, _secret(made))

    def drop(self, key: str) -> None:
        """Remove the resource under a row key, even if it is used."""
        self._ids.discard(self._resources.pop(key).native_id)

    def remove(self, resource: port.CloudResource, in_use: bool) -> port.Outcome:
        """Remove a resource, unless it contains other resources or machines use it."""
        there = self.get(resource.kind, resource.key)
        if there is None:
            return port.AlreadyDone(resource.key, resource.native_id)
        inside = [part.key for part in self._resources.values() if part.within == there.native_id]
        if inside or in_use:
            user = f"{inside[0]!r} is in it" if inside else "machines stand on it"
            return port.CallRefused(
                resource.key, port.RefusalReason.IN_USE, f"{resource.kind} {there.native_id} cannot be removed: {user}"
            )
        self.drop(row_key(resource.kind, resource.key))
        return port.CallAccepted(resource.key, there.native_id)


def _secret(resource: port.CloudResource) -> str:
    """Return the private key of a new key pair; empty if the caller brought the public key."""
    if resource.kind is not port.ResourceKind.SSH_KEY or resource.facts.get("public_key"):
        return ""
    return PRIVATE_KEY_TEXT.format(resource.native_id)
