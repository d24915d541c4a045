"""Requests on networks, security groups, keys, specs and images of a namespace.

VMs use these resources. A resource is deleted only if nothing uses it. A network is changed as a whole: each change of
its subnets is one atomic step on the latest record.
"""

from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from ipaddress import IPv4Network
from typing import TypeVar

from msgspec.structs import replace

from stateward.domains.mci import model
from stateward.domains.mci.address_ranges import check_subnets_fit
from stateward.domains.mci.deployment_records import DeploymentRecords
from stateward.domains.mci.errors import VmsAdded
from stateward.domains.mci.lifecycle import FORGET, IMAGE, SPEC
from stateward.domains.mci.provider.key_pairs import KeyPair, new_pair
from stateward.engine import Accepted, AlreadyExists, NotFound
from stateward.engine.errors import VersionMismatch
from stateward.engine.queries import list_all
from stateward.lifecycle import FORCE, NO_FACTS
from stateward.schemas.caller import Caller
from stateward.store.filters import Selector
from stateward.store.records import Object, Operation

T = TypeVar("T")

RuleChange = Callable[[tuple[model.FirewallRule, ...]], tuple[model.FirewallRule, ...]]
"""Returns the new rules of a security group from the present ones; may raise."""

MAX_ATTEMPTS = 10
"""Attempts of a change that reads an object, if other requests change the object at the same time."""


class ResourceService(DeploymentRecords):
    """Creates, changes and deletes the resources of namespaces."""

    async def create_resource(
        self, ns: str, resource_type: str, want: model.ResourceSpec, by: Caller, wait: float = 30.0
    ) -> tuple[Object, KeyPair | None]:
        """Create a resource and wait a while for it; returns it, and the key pair if one was created."""
        await self.namespace(ns)
        pair = None
        if isinstance(want, model.KeySpec) and not want.public_key:
            pair = new_pair(want.name)
            want = replace(want, public_key=pair.public)
        id_, kind = model.record_id(resource_type, want.name), model.RESOURCE_LIFECYCLES[resource_type].kind
        accepted = await self.engine.create(ns, id_, kind, spec=want, actor=by.actor, who=by.who)
        with suppress(TimeoutError):
            await self.engine.wait_record(ns, accepted.op.id, wait)
        return await self.resource(ns, resource_type, want.name), pair

    async def delete_resource(
        self, ns: str, resource_type: str, name: str, by: Caller, *, force: bool = False
    ) -> Accepted:
        """Delete an unused resource; with force, remove its record only."""
        resource = await self.resource(ns, resource_type, name)
        if force:
            return await self._act(ns, resource.id, "forget", by, facts={FORCE})
        return await self._act(ns, resource.id, "delete", by)

    async def resource(self, ns: str, resource_type: str, name: str) -> Object:
        """Return a resource, or raise."""
        return await self.engine.record(ns, model.record_id(resource_type, name))

    async def resources(self, ns: str, resource_type: str) -> list[Object]:
        """Return the resources of one type."""
        chosen = Selector(ns, model.RESOURCE_LIFECYCLES[resource_type].kind)
        return [resource async for resource in list_all(self.engine.store.reader, chosen)]

    # --- what is only written down -----------------------------------------------------------------------------------

    async def register(self, ns: str, what: model.SpecRecord | model.ImageRecord, by: Caller) -> Accepted:
        """Register a spec or an image in a namespace."""
        await self.namespace(ns)
        resource_type, kind = ("spec", SPEC.kind) if isinstance(what, model.SpecRecord) else ("image", IMAGE.kind)
        if what.connection:
            await self.catalogue.connection(what.connection)
        return await self.engine.create(
            ns, model.record_id(resource_type, what.id), kind, "register", spec=what, actor=by.actor, who=by.who
        )

    async def change_record(self, ns: str, what: model.SpecRecord | model.ImageRecord, by: Caller) -> Accepted:
        """Change a registered spec or image; VMs keep what they were created from."""
        resource_type = "spec" if isinstance(what, model.SpecRecord) else "image"
        record = await self.engine.record(ns, model.record_id(resource_type, what.id))
        return await self._act(ns, record.id, "change", by, spec=what)

    async def describe_resource(self, ns: str, resource_type: str, want: model.ResourceSpec, by: Caller) -> Accepted:
        """Change the description of a resource; nothing changes at its provider."""
        resource = await self.resource(ns, resource_type, want.name)
        return await self._act(ns, resource.id, "describe", by, spec=want, version=resource.version)

    async def unregister(self, ns: str, resource_type: str, name: str, by: Caller) -> None:
        """Remove the record of a spec or an image that no VM uses."""
        record = await self.engine.record(ns, model.record_id(resource_type, name))
        await self._act(ns, record.id, "remove", by)

    # --- subnets ------------------------------------------------------------------------------------------------------

    async def add_subnet(self, ns: str, network: str, subnet: model.Subnet, by: Caller) -> Accepted:
        """Add a subnet that fits to a network."""

        async def added() -> Accepted:
            resource = await self.resource(ns, "vNet", network)
            want = model.network_of(resource)
            if any(other.name == subnet.name for other in want.subnets):
                raise AlreadyExists(ns, f"{network}/{subnet.name}", resource.state)
            check_subnets_fit(IPv4Network(want.cidr), (*want.subnets, subnet))
            return await self._reshape(resource, replace(want, subnets=(*want.subnets, subnet)), by)

        return await retry_on_change(added)

    async def remove_subnet(self, ns: str, network: str, subnet: str, by: Caller, *, force: bool = False) -> Accepted:
        """Remove a subnet from a network; one with VMs only with force, and if the provider allows it."""

        async def removed() -> Accepted:
            resource = await self.resource(ns, "vNet", network)
            want = model.network_of(resource)
            left = tuple(other for other in want.subnets if other.name != subnet)
            if len(left) == len(want.subnets):
                raise NotFound(ns, f"{network}/{subnet}")
            facts = {FORGET} if force else NO_FACTS
            return await self._reshape(resource, replace(want, subnets=left), by, facts)

        return await retry_on_change(removed)

    async def _reshape(
        self, resource: Object, want: model.NetworkSpec, by: Caller, facts: Collection[str] = NO_FACTS
    ) -> Accepted:
        return await self._act(
            resource.ns, resource.id, "reshape", by, spec=want, facts=facts, version=resource.version
        )

    # --- rules of security groups ------------------------------------------------------------------------------------

    async def change_rules(
        self, ns: str, group: str, change: RuleChange, by: Caller
    ) -> tuple[Object, Operation | None]:
        """Change the rules of a security group; returns the group as it was, and the operation if there is one."""

        async def changed() -> tuple[Object, Operation | None]:
            resource = await self.resource(ns, "securityGroup", group)
            was = model.security_group_of(resource)
            want = replace(was, rules=change(was.rules))
            if set(model.single_rules(want.rules)) == set(model.single_rules(was.rules)):
                return resource, None
            accepted = await self._act(ns, resource.id, "reshape", by, spec=want, version=resource.version)
            return resource, accepted.op

        return await retry_on_change(changed)


async def retry_on_change(attempt: Callable[[], Awaitable[T]]) -> T:
    """Retry a change if the object has changed since it was read."""
    for _ in range(MAX_ATTEMPTS):
        with suppress(VersionMismatch, VmsAdded):
            return await attempt()
    return await attempt()
