"""Parsers of request bodies: networks, security groups, keys, specs, images and connections."""

import re

from msgspec.structs import replace

from stateward import naming
from stateward.domains.mci import model
from stateward.domains.mci.address_ranges import check_address_range, check_network_range, check_subnets_fit
from stateward.domains.mci.api.lenient_json import Fields, parse_int
from stateward.domains.mci.api.tumblebug_params import check_choice, check_name, check_record_name, check_reference
from stateward.domains.mci.guards.connection_grants import ALL_NAMESPACES
from stateward.domains.mci.provider.key_pairs import check_public_key
from stateward.errors import BadInput

MAX_PORT = 65535
CIDR = "10.0.0.0/16"
PROTOCOLS = {"tcp": "tcp", "udp": "udp", "icmp": "icmp", "all": "all", "any": "all", "*": "all", "-1": "all", "": "tcp"}
DIRECTIONS = {"inbound": "inbound", "ingress": "inbound", "outbound": "outbound", "egress": "outbound", "": "inbound"}


def parse_network(body: Fields, place: model.CloudConnection, uid: str) -> model.NetworkSpec:
    """Parse a network."""
    cidr = check_network_range("cidrBlock", body.text("cidrBlock", "cidr") or CIDR)
    subnets = tuple(parse_subnet(entry) for entry in body.objects("subnetInfoList", "subnetReqInfoList"))
    check_subnets_fit(cidr, subnets)
    return model.NetworkSpec(*_identity(body, place, uid), str(cidr), subnets, body.text("description"))


def _identity(body: Fields, place: model.CloudConnection, uid: str) -> tuple[str, str, str, str, str]:
    """Return the fields of a `ResourceIdentity`, in their order."""
    return check_name("name", body.text("name").strip()), uid, place.name, place.provider, place.region


def parse_subnet(body: Fields) -> model.Subnet:
    """Parse a subnet."""
    cidr = check_network_range(body.field("ipv4_CIDR"), body.text("ipv4_CIDR", "cidrBlock", "cidr"))
    name = check_name(body.field("name"), body.text("name").strip())
    return model.Subnet(
        name, str(cidr), check_reference(body.field("zone"), body.text("zone")), body.text("description")
    )


def parse_security_group(body: Fields, place: model.CloudConnection, uid: str) -> model.SecurityGroupSpec:
    """Parse a security group."""
    identity = _identity(body, place, uid)
    network = check_reference("vNetId", body.text("vNetId").strip(), needed=True)
    rules = tuple(parse_rule(entry) for entry in body.objects("firewallRules"))
    return model.SecurityGroupSpec(*identity, network, rules, body.text("description"))


def parse_rule(body: Fields) -> model.FirewallRule:
    """Parse a firewall rule, in the newer or the older field names."""
    protocol = PROTOCOLS[check_choice(body.field("Protocol"), body.text("Protocol", "IPProtocol").strip(), *PROTOCOLS)]
    direction = DIRECTIONS[check_choice(body.field("Direction"), body.text("Direction").strip(), *DIRECTIONS)]
    ports = "" if protocol in ("icmp", "all") else _ports(body)
    return model.FirewallRule(
        ports, protocol, direction, check_address_range(body.field("CIDR"), body.text("CIDR") or "0.0.0.0/0")
    )


def parse_new_rules(body: Fields) -> tuple[model.FirewallRule, ...]:
    """Parse the rules that a group is to get; what they open must be said, not left out."""
    given = body.objects("firewallRules")
    for entry in given:
        if not entry.text("CIDR").strip():
            raise BadInput(entry.field("CIDR"), None, "given: a range of addresses; 0.0.0.0/0 is everybody")
        is_port_needed = parse_rule(entry).protocol in ("tcp", "udp")
        if is_port_needed and entry.raw("Ports", "Port", "FromPort") in (None, ""):
            raise BadInput(entry.field("Ports"), None, f"given: ports such as 22,900-1000; {model.ALL_PORTS} are all")
    return parse_rules(body)


def parse_rules(body: Fields) -> tuple[model.FirewallRule, ...]:
    """Parse a list of rules, with one range of ports each; none may be there twice."""
    rules: list[model.FirewallRule] = []
    for entry in body.objects("firewallRules"):
        rule = parse_rule(entry)
        ranges = [] if not rule.ports else rule.ports.split(",")
        single = model.single_rules([rule])
        if len(single) < len(ranges) or set(single) & set(rules):
            raise BadInput(entry.path, describe_rule(rule), "a rule that is there once")
        rules += single
    return tuple(rules)


def describe_rule(rule: model.FirewallRule) -> str:
    """Return a rule in one line."""
    ports = rule.ports or ("" if rule.protocol in ("icmp", "all") else model.ALL_PORTS)
    return " ".join(filter(None, (rule.direction, rule.protocol, ports, rule.cidr)))


def _ports(body: Fields) -> str:
    if body.raw("Ports", "Port") is not None:
        parts = body.text("Ports", "Port").replace(" ", "").split(",")
        return ",".join(_port_range(body.field("Ports"), *part.split("-", 1)) for part in parts if part)
    first, last = body.text("FromPort").strip(), body.text("ToPort").strip()
    return "" if first in ("", "-1") else _port_range(body.field("FromPort"), first, last or first)


def _port_range(field: str, first: str, last: str | None = None) -> str:
    low = parse_int(field, first, 0, MAX_PORT)
    high = low if last is None else parse_int(field, last, low, MAX_PORT)
    return str(low) if low == high else f"{low}-{high}"


def parse_key(body: Fields, place: model.CloudConnection, uid: str) -> model.KeySpec:
    """Parse a key; a private key in the body is ignored."""
    identity, public = _identity(body, place, uid), body.text("publicKey").strip()
    if public:
        check_public_key("publicKey", public)
    return model.KeySpec(*identity, public, body.text("description"))


def parse_spec(body: Fields, place: model.CloudConnection) -> model.SpecRecord:
    """Parse a spec."""
    csp_name = check_reference("cspSpecName", body.text("cspSpecName", "cspResourceId", "cspResourceName"), needed=True)
    return model.SpecRecord(
        check_record_name("name", body.text("name").strip() or f"{place.provider}+{place.region}+{csp_name}"),
        place.name,
        csp_name,
        body.number("vCPU", "num_vCPU", default=1, low=1, high=100_000),
        body.real("memoryGiB", "mem_GiB", default=1.0, low=0.0, high=1e6),
        body.real("costPerHour", "cost_per_hour", default=0.0, low=0.0, high=1e6),
        body.text("description"),
        body.text("architecture", default="x86_64"),
        body.real("diskSizeGB", default=0.0, low=-1.0, high=1e6),
        body.number("acceleratorCount", default=0, low=0, high=1000),
        body.text("acceleratorModel"),
        body.real("acceleratorMemoryGB", default=0.0, low=0.0, high=1e6),
    )


def change_spec(body: Fields, was: model.SpecRecord) -> model.SpecRecord:
    """Return a spec with the fields of a body."""
    return replace(
        was,
        csp_name=check_reference("cspSpecName", body.text("cspSpecName") or was.csp_name),
        vcpu=body.number("vCPU", default=was.vcpu, low=1, high=100_000),
        memory_gib=body.real("memoryGiB", default=was.memory_gib, low=0.0, high=1e6),
        cost=body.real("costPerHour", default=was.cost, low=0.0, high=1e6),
        description=body.text("description", default=was.description),
    )


def change_image(body: Fields, was: model.ImageRecord) -> model.ImageRecord:
    """Return an image with the fields of a body."""
    return replace(
        was,
        csp_name=check_reference("cspImageName", body.text("cspImageName") or was.csp_name),
        system=body.text("osType", "guestOS", default=was.system),
        description=body.text("description", default=was.description),
    )


def parse_image(body: Fields, place: model.CloudConnection) -> model.ImageRecord:
    """Parse an image."""
    csp_name = check_reference("cspImageName", body.text("cspImageName", "cspImageId", "cspResourceId"), needed=True)
    name = check_record_name("name", body.text("name").strip() or f"{place.provider}+{place.region}+{csp_name}")
    system, architecture = body.text("osType", "guestOS"), body.text("osArchitecture", default="x86_64")
    return model.ImageRecord(name, place.name, csp_name, system, body.text("description"), architecture)


CONNECTION_FIELDS = (
    "name", "configName", "provider", "providerName", "region", "regionName", "zone", "driver", "driverName",
    "credential", "credentialName", "options", "namespaces", "built_in",
)  # fmt: skip
"""The fields of a connection, with their aliases.

`built_in` is accepted and ignored: a client may send back what it was shown.
"""


def parse_connection(body: Fields) -> model.CloudConnection:
    """Parse a connection."""
    options = body.object("options")
    given = body.raw("credential", "credentialName")
    text = "" if given is None else given.strip() if isinstance(given, str) else given
    return model.CloudConnection(
        check_record_name("name", body.text("name", "configName").strip()),
        check_reference("provider", body.text("provider", "providerName").strip().lower(), needed=True),
        check_reference("region", body.text("region", "regionName").strip(), needed=True),
        check_reference("zone", body.text("zone").strip()),
        body.text("driver", "driverName", default="simulated").strip(),
        naming.check_credential_reference("credential", text),
        {} if options is None else body.labels("options"),
        parse_namespaces(body),
    )


def parse_namespaces(body: Fields, *, needed: bool = False, pattern: str = naming.NAME) -> tuple[str, ...] | None:
    """Parse the namespaces of a connection; None if the body does not name any."""
    if body.raw("namespaces") is None and not needed:
        return None
    namespaces = body.texts("namespaces")
    for number, ns in enumerate(namespaces):
        if ns != ALL_NAMESPACES and re.match(pattern, ns) is None:
            allowed = f"a namespace ({naming.NAME_MEANS}), or {ALL_NAMESPACES!r} for all"
            raise BadInput(f"{body.field('namespaces')}[{number}]", ns, allowed)
    if needed and not namespaces:
        raise BadInput(
            body.field("namespaces"), namespaces, f"a list of at least one namespace, or {ALL_NAMESPACES!r} for all"
        )
    return (ALL_NAMESPACES,) if ALL_NAMESPACES in namespaces else tuple(sorted(set(namespaces)))
