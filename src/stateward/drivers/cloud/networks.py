"""The resources of a cloud (networks, subnets, security groups and keys): one call at a time for each key."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, TypeAlias

from stateward.aio.named_locks import NamedLocks
from stateward.drivers import port
from stateward.drivers.cloud.errors import CloudCallFailed, outcome_of
from stateward.drivers.security_rules import SecurityRule, wanted_rules
from stateward.drivers.ssh_keys import SshKeyPair, new_ssh_key_pair
from stateward.errors import BadInput

Shown: TypeAlias = Mapping[str, Any]
"""A resource as the cloud shows it."""


class CloudResources:
    """Finds, creates and removes resources; a call that fails is an outcome, or an incomplete listing."""

    def __init__(self) -> None:
        self._locks = NamedLocks()

    async def ensure(self, resource: port.CloudResource) -> port.Outcome:
        """Find a resource by its key, or create it. A private key whose answer was lost cannot be fetched again."""
        return await self._one_at_a_time(resource, self._ensure)

    async def remove(self, resource: port.CloudResource) -> port.Outcome:
        """Remove what carries a resource's key."""
        return await self._one_at_a_time(resource, self._remove)

    async def listing(self) -> port.ResourceListing:
        """List what carries one of our keys, kind by kind."""
        try:
            return port.ResourceListing([*await self._list()], complete=True)
        except CloudCallFailed as failed:
            return port.ResourceListing((), complete=False, problem=str(failed))

    async def _ensure(self, resource: port.CloudResource) -> port.Outcome:
        """Find a resource by its key, or create it; may raise `CloudCallFailed` and `BadInput`."""
        raise NotImplementedError

    async def _remove(self, resource: port.CloudResource) -> port.Outcome:
        """Remove what carries a resource's key; may raise `CloudCallFailed`."""
        raise NotImplementedError

    async def _list(self) -> Iterable[port.CloudResource]:
        """List what carries one of our keys; may raise `CloudCallFailed`."""
        raise NotImplementedError

    async def _one_at_a_time(
        self, resource: port.CloudResource, work: Callable[[port.CloudResource], Awaitable[port.Outcome]]
    ) -> port.Outcome:
        async with self._locks[resource.key]:
            return await outcome_of(resource.key, work(resource))


class SearchedResources(CloudResources):
    """The resources of a cloud that would make two of them for one key.

    A resource is searched by its key, then created, then searched again: a driver that finds another one removes its
    own, and reports a transient failure. A security group that cannot get its rules is removed, too.
    """

    doubled: Collection[port.ResourceKind] = tuple(port.ResourceKind)
    """The kinds of which the cloud itself does not refuse a second one."""

    async def _find(self, resource: port.CloudResource) -> list[Shown]:
        """Return what carries a resource's key, always in the same order."""
        raise NotImplementedError

    async def _make(self, resource: port.CloudResource) -> Shown:
        """Create a resource."""
        raise NotImplementedError

    async def _delete(self, resource: port.CloudResource, shown: Shown) -> bool:
        """Delete what was found; returns whether it was still there."""
        raise NotImplementedError

    async def _complete_rules(self, resource: port.CloudResource, group: Shown) -> bool:
        """Give a security group exactly its rules; returns whether that changed anything."""
        raise NotImplementedError

    def _id_of(self, kind: port.ResourceKind, shown: Shown) -> str:
        """Return the cloud's id of what was found or made."""
        raise NotImplementedError

    async def _ensure(self, resource: port.CloudResource) -> port.Outcome:
        if resource.kind is port.ResourceKind.SECURITY_GROUP:
            rules_of(resource)  # bad rules are refused before anything is created
        if existing := await self._find(resource):
            return await self._complete_existing(resource, existing[0])
        try:
            made = await self._make(resource)
        except CloudCallFailed as failed:
            if failed.why is port.RefusalReason.CONFLICT and (existing := await self._find(resource)):
                return await self._complete_existing(resource, existing[0])
            raise
        if resource.kind in self.doubled and await self._has_duplicates(resource, made):
            await self._delete(resource, made)
            return port.TransientFailure(resource.key, "somebody else was just making it too")
        if resource.kind is port.ResourceKind.SECURITY_GROUP:
            try:
                await self._complete_rules(resource, made)
            except CloudCallFailed as failed:
                if failed.why is not None:
                    await self._delete(resource, made)
                raise
        return port.CallAccepted(resource.key, self._id_of(resource.kind, made), made.get("KeyMaterial", ""))

    async def _remove(self, resource: port.CloudResource) -> port.Outcome:
        deleted = [await self._delete(resource, shown) for shown in await self._find(resource)]
        return (port.CallAccepted if any(deleted) else port.AlreadyDone)(resource.key, resource.native_id)

    async def _complete_existing(self, resource: port.CloudResource, shown: Shown) -> port.Outcome:
        is_group = resource.kind is port.ResourceKind.SECURITY_GROUP
        is_changed = is_group and await self._complete_rules(resource, shown)
        return (port.CallAccepted if is_changed else port.AlreadyDone)(resource.key, self._id_of(resource.kind, shown))

    async def _has_duplicates(self, resource: port.CloudResource, made: Shown) -> bool:
        own = self._id_of(resource.kind, made)
        try:
            return any(self._id_of(resource.kind, shown) != own for shown in await self._find(resource))
        except CloudCallFailed:
            return False  # it is created; a duplicate is found the next time


def rules_of(resource: port.CloudResource) -> set[SecurityRule]:
    """Read the rules that a security group must have; raises `BadInput` for bad ones."""
    return wanted_rules(resource.facts.get("rules", ""))


def key_pair_of(resource: port.CloudResource) -> SshKeyPair:
    """Return the public key that a resource names, or else a new pair; raises `BadInput` for more than one line."""
    given = resource.facts.get("public_key", "").strip()
    if not given.isprintable():
        raise BadInput("public_key", f"a text of {len(given)} characters", "an OpenSSH public key in one line")
    return SshKeyPair(given, "") if given else new_ssh_key_pair()
