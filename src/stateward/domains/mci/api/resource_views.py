"""Views of networks, security groups and keys. Only the response to the creation of a key has its private key."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from stateward.domains.mci.lifecycle import ResourceState
from stateward.domains.mci.model import ResourceSpec, key_of, network_of, resource_seen, security_group_of
from stateward.domains.mci.shared_schemas import NewKeyPair
from stateward.domains.mci.tumblebug_keys import tumblebug_key
from stateward.store.records import Object

IN_USE = "InUse"


class SubnetView(Struct, frozen=True, rename="camel", kw_only=True):
    """A subnet."""

    resource_type: str = "subnet"
    id: str
    name: str
    status: str
    ipv4_cidr: str = field(name="ipv4_CIDR")
    zone: str
    description: str
    csp_resource_id: str


class RuleView(Struct, frozen=True, rename="pascal"):
    """A firewall rule."""

    ports: str
    protocol: str
    direction: str
    cidr: str = field(name="CIDR")


class ResourceView(Struct, frozen=True, rename="camel", kw_only=True):
    """The fields that all resources show."""

    resource_type: str
    id: str
    uid: str
    name: str
    connection_name: str
    csp_resource_name: str
    csp_resource_id: str
    status: str
    description: str
    system_message: str
    associated_object_list: list[str]


class NetworkView(ResourceView, frozen=True, rename="camel", kw_only=True):
    """A network."""

    cidr_block: str
    subnet_info_list: list[SubnetView]


class SecurityGroupView(ResourceView, frozen=True, rename="camel", kw_only=True):
    """A security group."""

    v_net_id: str
    firewall_rules: list[RuleView]


class KeyView(ResourceView, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """A key pair."""

    public_key: str
    private_key: str = ""
    encrypted_private_key: str = ""


def resource_view(
    resource_type: str, resource: Object, users: Sequence[Object] = (), pair: NewKeyPair | None = None
) -> ResourceView:
    """Return the view of a resource; `pair` has the private key, for the creator of the pair."""
    match resource_type:
        case "vNet":
            network = network_of(resource)
            shown = _shown(resource_type, resource, network, users)
            return NetworkView(**shown, cidr_block=network.cidr, subnet_info_list=subnet_views(resource))
        case "securityGroup":
            group = security_group_of(resource)
            shown = _shown(resource_type, resource, group, users)
            rules = [RuleView(rule.ports, rule.protocol.upper(), rule.direction, rule.cidr) for rule in group.rules]
            return SecurityGroupView(**shown, v_net_id=group.network, firewall_rules=rules)
        case _:
            key = key_of(resource)
            private = {} if pair is None else msgspec.structs.asdict(pair)
            return KeyView(**_shown(resource_type, resource, key, users), **{"public_key": key.public_key} | private)


def subnet_views(network: Object) -> list[SubnetView]:
    """Return the views of the subnets of a network."""
    natives = resource_seen(network).subnets
    return [
        SubnetView(
            id=subnet.name,
            name=subnet.name,
            status=network.state,
            ipv4_cidr=subnet.cidr,
            zone=subnet.zone,
            description=subnet.description,
            csp_resource_id=natives.get(subnet.name, ""),
        )
        for subnet in network_of(network).subnets
    ]


def _missing(resource: Object) -> str:
    missing = resource_seen(resource).missing
    return f"the provider does not show {', '.join(missing)} any more" if missing else ""


def _shown(resource_type: str, resource: Object, spec: ResourceSpec, users: Sequence[Object]) -> dict[str, Any]:
    used = bool(users) and resource.state == ResourceState.AVAILABLE
    return {
        "resource_type": resource_type,
        "id": spec.name,
        "uid": spec.uid,
        "name": spec.name,
        "connection_name": spec.connection,
        "csp_resource_name": spec.uid,
        "csp_resource_id": resource_seen(resource).native_id,
        "status": IN_USE if used else resource.state,
        "description": spec.description,
        "system_message": resource.error or _missing(resource),
        "associated_object_list": [tumblebug_key(user) for user in users],
    }
