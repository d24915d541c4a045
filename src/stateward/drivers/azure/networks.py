"""The resources of Azure: networks, subnets, security groups and public keys.

Each has the name of its key, so a repetition meets the same resource; what exists is never written again, except for
the rules of a group. Subnets have no tags: their keys are tags of the network. A call returns when a resource is
provisioned or gone, because the next call depends on it.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from stateward.drivers import port
from stateward.drivers.azure import names
from stateward.drivers.azure.client import ArmClient
from stateward.drivers.azure.rules import group_rules, missing_rules, surplus_rules
from stateward.drivers.cloud.errors import CloudCallFailed, refusal
from stateward.drivers.cloud.networks import CloudResources, key_pair_of, rules_of
from stateward.drivers.security_rules import SecurityRule

NETWORKS, SUBNETS = "network.virtual_networks", "network.subnets"
GROUPS, RULES = "network.network_security_groups", "network.security_rules"
KEYS = "compute.ssh_public_keys"

OPERATIONS = {
    port.ResourceKind.NETWORK:        (NETWORKS, names.VIRTUAL_NETWORK),
    port.ResourceKind.SECURITY_GROUP: (GROUPS,   names.SECURITY_GROUP),
    port.ResourceKind.SSH_KEY:        (KEYS,     names.SSH_PUBLIC_KEY),
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

    async def _list(self) -> list[port.CloudResource]:
        scope = await self._calls.scope()
        resources = [network async for network in self._list_networks(scope)]
        resources += [group async for group in self._list_kind(scope, port.ResourceKind.SECURITY_GROUP)]
        return resources + [key async for key in self._list_kind(scope, port.ResourceKind.SSH_KEY)]

    async def _ensure(self, resource: port.CloudResource) -> port.Outcome:
        scope = await self._calls.scope()
        if resource.kind is port.ResourceKind.SUBNET:
            return await self._ensure_subnet(resource, scope)
        rules = rules_of(resource)  # bad ones are refused before anything is created
        operations, kind = OPERATIONS[resource.kind]
        name = names.arm_name(resource.key)
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
        is_changed = resource.kind is port.ResourceKind.SECURITY_GROUP and await self._set_rules(
            scope, name, rules, existing
        )
        return (port.CallAccepted if is_changed else port.AlreadyDone)(resource.key, scope.id(kind, name))

    async def _create(self, resource: port.CloudResource, scope: names.ArmScope) -> port.Outcome:
        operations, kind = OPERATIONS[resource.kind]
        name = names.arm_name(resource.key)
        body, secret = create_body(resource, scope)
        method = "create" if resource.kind is port.ResourceKind.SSH_KEY else "begin_create_or_update"
        made = await self._calls.call(f"{operations}.{method}", scope.group, name, body, headers=CREATE_ONLY_HEADER)
        await self._calls.wait_until_provisioned(made, operations, scope.group, name)
        return port.CallAccepted(resource.key, scope.id(kind, name), secret)

    async def _set_rules(
        self, scope: names.ArmScope, name: str, rules: set[SecurityRule], group: Mapping[str, Any]
    ) -> bool:
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

    async def _remove(self, resource: port.CloudResource) -> port.Outcome:
        scope = await self._calls.scope()
        if resource.kind is port.ResourceKind.SUBNET:
            return await self._remove_subnet(resource, scope)
        operations, kind = OPERATIONS[resource.kind]
        name = names.arm_name(resource.key)
        native_id = scope.id(kind, name)
        existing = await self._calls.find(operations, scope.group, name)
        if existing is None:
            return port.AlreadyDone(resource.key, native_id)
        _check_key(resource, existing)
        if subnets := names.properties_of(existing).get("subnets"):  # Azure would remove them together with the network
            message = f"the network has {len(subnets)} subnets"
            return port.CallRefused(resource.key, port.RefusalReason.IN_USE, message)
        delete = "delete" if resource.kind is port.ResourceKind.SSH_KEY else "begin_delete"
        is_found = await self._calls.remove(operations, scope.group, name, delete=delete)
        return (port.CallAccepted if is_found else port.AlreadyDone)(resource.key, native_id)

    # --- subnets -----------------------------------------------------------------------------------------------------

    async def _ensure_subnet(self, resource: port.CloudResource, scope: names.ArmScope) -> port.Outcome:
        inside = scope.child_names(resource.within, names.VIRTUAL_NETWORK)
        if inside is None or len(inside) != 1:
            message = f"{resource.within!r} is no network of the resource group {scope.group}"
            raise refusal("network", port.RefusalReason.INVALID, message)
        network, name = inside[0], names.arm_name(resource.key)
        native_id = scope.id(names.VIRTUAL_NETWORK, network, "subnets", name)
        await self._tag_network(scope, network, {names.subnet_tag(resource.key): resource.key})
        subnet = await self._calls.find(SUBNETS, scope.group, network, name)
        if subnet is not None:
            await self._calls.wait_until_provisioned(subnet, SUBNETS, scope.group, network, name)
            return port.AlreadyDone(resource.key, native_id)
        body = {"properties": {"addressPrefix": resource.facts.get("cidr", "10.0.0.0/24")}}
        made = await self._calls.call(f"{SUBNETS}.begin_create_or_update", scope.group, network, name, body)
        await self._calls.wait_until_provisioned(made, SUBNETS, scope.group, network, name)
        return port.CallAccepted(resource.key, native_id)

    async def _remove_subnet(self, resource: port.CloudResource, scope: names.ArmScope) -> port.Outcome:
        name = names.arm_name(resource.key)
        networks = [
            str(shown["name"])
            async for shown in self._calls.pages(f"{NETWORKS}.list", scope.group)
            if any(
                str(subnet.get("name")).lower() == name for subnet in names.properties_of(shown).get("subnets") or ()
            )
        ]
        for network in networks:
            await self._calls.remove(SUBNETS, scope.group, network, name)
            await self._tag_network(scope, network, {names.subnet_tag(resource.key): None})
        return (port.CallAccepted if networks else port.AlreadyDone)(resource.key, resource.native_id)

    async def _tag_network(self, scope: names.ArmScope, network: str, changes: Mapping[str, str | None]) -> None:
        """Change tags of a network; raises `CloudCallFailed` if there is no network."""
        async with self._locks[f"tags of {network}"]:
            shown = await self._calls.call(f"{NETWORKS}.get", scope.group, network)
            tags = dict(shown.get("tags") or {})
            wanted = {tag: value for tag, value in {**tags, **changes}.items() if value is not None}
            if wanted != tags:
                await self._calls.call(f"{NETWORKS}.update_tags", scope.group, network, {"tags": wanted})

    # --- listings ----------------------------------------------------------------------------------------------------

    async def _list_networks(self, scope: names.ArmScope) -> AsyncIterator[port.CloudResource]:
        async for shown in self._calls.pages(f"{NETWORKS}.list", scope.group):
            if not scope.is_here(shown):
                continue
            native_id = scope.id(names.VIRTUAL_NETWORK, str(shown["name"]))
            if key := names.key_of(shown):
                yield port.CloudResource(port.ResourceKind.NETWORK, key, "", native_id=native_id)
            known = {str(entry.get("name")) for entry in names.properties_of(shown).get("subnets") or ()}
            keys = [
                value for tag, value in (shown.get("tags") or {}).items() if tag.startswith(names.SUBNET_TAG_PREFIX)
            ]
            for key in sorted(key for key in keys if names.arm_name(key) in known):
                subnet = scope.id(names.VIRTUAL_NETWORK, str(shown["name"]), "subnets", names.arm_name(key))
                yield port.CloudResource(port.ResourceKind.SUBNET, key, "", native_id, native_id=subnet)

    async def _list_kind(self, scope: names.ArmScope, kind: port.ResourceKind) -> AsyncIterator[port.CloudResource]:
        operations, arm_type = OPERATIONS[kind]
        listing = "list_by_resource_group" if kind is port.ResourceKind.SSH_KEY else "list"
        async for shown in self._calls.pages(f"{operations}.{listing}", scope.group):
            if scope.is_here(shown) and (key := names.key_of(shown)):
                native_id = scope.id(arm_type, names.arm_name(key))
                yield port.CloudResource(kind, key, "", names.tag_of(shown, names.WITHIN_TAG), native_id=native_id)


def create_body(resource: port.CloudResource, scope: names.ArmScope) -> tuple[dict[str, object], str]:
    """Return the body that creates a resource, and the private key if it is a new pair."""
    within = {names.WITHIN_TAG: resource.within} if resource.within else {}
    tags, secret = names.tags_of(resource.key, resource.name, within), ""
    properties: dict[str, object] = {}
    match resource.kind:
        case port.ResourceKind.NETWORK:
            properties = {"addressSpace": {"addressPrefixes": [resource.facts.get("cidr", "10.0.0.0/16")]}}
        case port.ResourceKind.SECURITY_GROUP:
            properties = {"securityRules": group_rules(rules_of(resource))}
        case port.ResourceKind.SSH_KEY:
            pair = key_pair_of(resource)
            properties, secret = {"publicKey": pair.public}, pair.private
    return {"location": scope.location, "tags": tags, "properties": properties}, secret


def _check_key(resource: port.CloudResource, existing: Mapping[str, Any]) -> None:
    """Refuse to touch a resource of the same name that is not ours."""
    if names.key_of(existing) != resource.key:
        message = f"{existing.get('name')} does not carry the key {resource.key!r}"
        raise refusal("key", port.RefusalReason.CONFLICT, message)
