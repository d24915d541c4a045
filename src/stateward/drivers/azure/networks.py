"""The resources of Azure: networks, subnets, security groups and public keys.

Each has the name of its key, so a repetition meets the same resource; what exists is never written again, except for
the rules of a group. Subnets have no tags: their keys are tags of the network. A call returns when a resource is
provisioned or gone, because the next call depends on it.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from stateward.drivers.azure.client import ArmClient
from stateward.drivers.azure.names import (
    SECURITY_GROUP,
    SSH_PUBLIC_KEY,
    SUBNET_TAG_PREFIX,
    VIRTUAL_NETWORK,
    WITHIN_TAG,
    ArmScope,
    arm_name,
    key_of,
    properties_of,
    subnet_tag,
    tag_of,
    tags_of,
)
from stateward.drivers.azure.rules import group_rules, missing_rules, surplus_rules
from stateward.drivers.cloud.errors import CloudCallFailed, refusal
from stateward.drivers.cloud.networks import CloudResources, key_pair_of, rules_of
from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CloudResource,
    Outcome,
    RefusalReason,
    ResourceKind,
)
from stateward.drivers.security_rules import SecurityRule

NETWORKS, SUBNETS = "network.virtual_networks", "network.subnets"
GROUPS, RULES = "network.network_security_groups", "network.security_rules"
KEYS = "compute.ssh_public_keys"

OPERATIONS = {
    ResourceKind.NETWORK:        (NETWORKS, VIRTUAL_NETWORK),
    ResourceKind.SECURITY_GROUP: (GROUPS,   SECURITY_GROUP),
    ResourceKind.SSH_KEY:        (KEYS,     SSH_PUBLIC_KEY),
}  # fmt: skip
"""The operations and the type of each kind that has tags; subnets are in their networks."""

CREATE_ONLY_HEADER = {"If-None-Match": "*"}
"""Where Azure reads it, two drivers that create the same resource at once cannot overwrite each other."""

EXISTS = 412
"""The status of an answer to a PUT that may only create."""


class AzureResources(CloudResources):
    """Finds, creates and removes resources; changes the tags of each network one after the other."""

    def __init__(self, calls: ArmClient) -> None:
        super().__init__()
        self._calls = calls

    async def _list(self) -> list[CloudResource]:
        scope = await self._calls.scope()
        resources = [network async for network in self._list_networks(scope)]
        resources += [group async for group in self._list_kind(scope, ResourceKind.SECURITY_GROUP)]
        return resources + [key async for key in self._list_kind(scope, ResourceKind.SSH_KEY)]

    async def _ensure(self, resource: CloudResource) -> Outcome:
        scope = await self._calls.scope()
        if resource.kind is ResourceKind.SUBNET:
            return await self._ensure_subnet(resource, scope)
        rules = rules_of(resource)  # bad ones are refused before anything is created
        operations, kind = OPERATIONS[resource.kind]
        name = arm_name(resource.key)
        existing = await self._calls.find(operations, scope.group, name)
        if existing is None:
            try:
                return await self._create(resource, scope)
            except CloudCallFailed as failed:
                if failed.status != EXISTS:
                    raise
            existing = await self._calls.call(f"{operations}.get", scope.group, name)
        _check_key(resource, existing)
        await self._calls.wait_until_provisioned(existing, operations, scope.group, name)
        is_changed = resource.kind is ResourceKind.SECURITY_GROUP and await self._set_rules(
            scope, name, rules, existing
        )
        return (CallAccepted if is_changed else AlreadyDone)(resource.key, scope.id(kind, name))

    async def _create(self, resource: CloudResource, scope: ArmScope) -> Outcome:
        operations, kind = OPERATIONS[resource.kind]
        name = arm_name(resource.key)
        body, secret = create_body(resource, scope)
        method = "create" if resource.kind is ResourceKind.SSH_KEY else "begin_create_or_update"
        made = await self._calls.call(f"{operations}.{method}", scope.group, name, body, headers=CREATE_ONLY_HEADER)
        await self._calls.wait_until_provisioned(made, operations, scope.group, name)
        return CallAccepted(resource.key, scope.id(kind, name), secret)

    async def _set_rules(self, scope: ArmScope, name: str, rules: set[SecurityRule], group: Mapping[str, Any]) -> bool:
        """Give a group exactly its rules; returns whether anything was changed."""
        surplus = surplus_rules(rules, group)
        for rule in surplus:
            await self._calls.remove(RULES, scope.group, name, rule)
        lacking = missing_rules(rules, group)
        for body in lacking:
            call = f"{RULES}.begin_create_or_update"
            made = await self._calls.call(call, scope.group, name, body["name"], body)
            await self._calls.wait_until_provisioned(made, RULES, scope.group, name, str(body["name"]))
        return bool(lacking or surplus)

    async def _remove(self, resource: CloudResource) -> Outcome:
        scope = await self._calls.scope()
        if resource.kind is ResourceKind.SUBNET:
            return await self._remove_subnet(resource, scope)
        operations, kind = OPERATIONS[resource.kind]
        name = arm_name(resource.key)
        native_id = scope.id(kind, name)
        existing = await self._calls.find(operations, scope.group, name)
        if existing is None:
            return AlreadyDone(resource.key, native_id)
        _check_key(resource, existing)
        if subnets := properties_of(existing).get("subnets"):  # Azure would remove them together with the network
            message = f"the network has {len(subnets)} subnets"
            return CallRefused(resource.key, RefusalReason.IN_USE, message)
        delete = "delete" if resource.kind is ResourceKind.SSH_KEY else "begin_delete"
        is_found = await self._calls.remove(operations, scope.group, name, delete=delete)
        return (CallAccepted if is_found else AlreadyDone)(resource.key, native_id)

    # --- subnets -----------------------------------------------------------------------------------------------------

    async def _ensure_subnet(self, resource: CloudResource, scope: ArmScope) -> Outcome:
        network, name = _network_name(resource.within, scope), arm_name(resource.key)
        native_id = scope.id(VIRTUAL_NETWORK, network, "subnets", name)
        await self._tag_network(scope, network, {subnet_tag(resource.key): resource.key})
        subnet = await self._calls.find(SUBNETS, scope.group, network, name)
        if subnet is not None:
            await self._calls.wait_until_provisioned(subnet, SUBNETS, scope.group, network, name)
            return AlreadyDone(resource.key, native_id)
        body = {"properties": {"addressPrefix": resource.facts.get("cidr", "10.0.0.0/24")}}
        made = await self._calls.call(f"{SUBNETS}.begin_create_or_update", scope.group, network, name, body)
        await self._calls.wait_until_provisioned(made, SUBNETS, scope.group, network, name)
        return CallAccepted(resource.key, native_id)

    async def _remove_subnet(self, resource: CloudResource, scope: ArmScope) -> Outcome:
        name = arm_name(resource.key)
        networks = [
            str(shown["name"])
            async for shown in self._calls.pages(f"{NETWORKS}.list", scope.group)
            if any(str(subnet.get("name")).lower() == name for subnet in properties_of(shown).get("subnets") or ())
        ]
        for network in networks:
            await self._calls.remove(SUBNETS, scope.group, network, name)
            await self._tag_network(scope, network, {subnet_tag(resource.key): None})
        return (CallAccepted if networks else AlreadyDone)(resource.key, resource.native_id)

    async def _tag_network(self, scope: ArmScope, network: str, changes: Mapping[str, str | None]) -> None:
        """Change tags of a network; raises `CloudCallFailed` if there is no network."""
        async with self._locks[f"tags of {network}"]:
            shown = await self._calls.call(f"{NETWORKS}.get", scope.group, network)
            tags = dict(shown.get("tags") or {})
            wanted = {tag: value for tag, value in {**tags, **changes}.items() if value is not None}
            if wanted != tags:
                await self._calls.call(f"{NETWORKS}.update_tags", scope.group, network, {"tags": wanted})

    # --- listings ----------------------------------------------------------------------------------------------------

    async def _list_networks(self, scope: ArmScope) -> AsyncIterator[CloudResource]:
        async for shown in self._calls.pages(f"{NETWORKS}.list", scope.group):
            if not scope.is_here(shown):
                continue
            native_id = scope.id(VIRTUAL_NETWORK, str(shown["name"]))
            if key := key_of(shown):
                yield CloudResource(ResourceKind.NETWORK, key, "", native_id=native_id)
            names = {str(entry.get("name")) for entry in properties_of(shown).get("subnets") or ()}
            keys = [value for tag, value in (shown.get("tags") or {}).items() if tag.startswith(SUBNET_TAG_PREFIX)]
            for key in sorted(key for key in keys if arm_name(key) in names):
                subnet = scope.id(VIRTUAL_NETWORK, str(shown["name"]), "subnets", arm_name(key))
                yield CloudResource(ResourceKind.SUBNET, key, "", native_id, native_id=subnet)

    async def _list_kind(self, scope: ArmScope, kind: ResourceKind) -> AsyncIterator[CloudResource]:
        operations, arm_type = OPERATIONS[kind]
        listing = "list_by_resource_group" if kind is ResourceKind.SSH_KEY else "list"
        async for shown in self._calls.pages(f"{operations}.{listing}", scope.group):
            if scope.is_here(shown) and (key := key_of(shown)):
                native_id = scope.id(arm_type, arm_name(key))
                yield CloudResource(kind, key, "", tag_of(shown, WITHIN_TAG), native_id=native_id)


def create_body(resource: CloudResource, scope: ArmScope) -> tuple[dict[str, object], str]:
    """Return the body that creates a resource, and the private key if it is a new pair."""
    within = {WITHIN_TAG: resource.within} if resource.within else {}
    tags, secret = tags_of(resource.key, resource.name, within), ""
    properties: dict[str, object] = {}
    match resource.kind:
        case ResourceKind.NETWORK:
            properties = {"addressSpace": {"addressPrefixes": [resource.facts.get("cidr", "10.0.0.0/16")]}}
        case ResourceKind.SECURITY_GROUP:
            properties = {"securityRules": group_rules(rules_of(resource))}
        case ResourceKind.SSH_KEY:
            pair = key_pair_of(resource)
            properties, secret = {"publicKey": pair.public}, pair.private
    return {"location": scope.location, "tags": tags, "properties": properties}, secret


def _check_key(resource: CloudResource, existing: Mapping[str, Any]) -> None:
    """Refuse to touch a resource of the same name that is not ours."""
    if key_of(existing) != resource.key:
        message = f"{existing.get('name')} does not carry the key {resource.key!r}"
        raise refusal("key", RefusalReason.CONFLICT, message)


def _network_name(native_id: str, scope: ArmScope) -> str:
    names = scope.child_names(native_id, VIRTUAL_NETWORK)
    if names is None or len(names) != 1:
        message = f"{native_id!r} is no network of the resource group {scope.group}"
        raise refusal("network", RefusalReason.INVALID, message)
    return names[0]
