"""Ranges of addresses in requests.

A range with host bits, such as 10.0.0.5/16, is a mistake: it may mean one address or a whole network.
"""

from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv4Network, ip_network
from socket import AF_INET, SOCK_DGRAM, socket

from stateward.domains.mci.model import NetworkSpec, Subnet
from stateward.domains.mci.settings import SERVER
from stateward.errors import BadInput

SHORTEST_PREFIX = 8
"""The largest network: no provider has larger ones."""

NO_HOST_BITS = "without bits behind its prefix"


def check_network_range(field: str, text: str) -> IPv4Network:
    """Return the range of a network or a subnet; raises BadInput otherwise."""
    with suppress(ValueError):
        network = IPv4Network(text.strip())
        if network.prefixlen >= SHORTEST_PREFIX:
            return network
    allowed = f"a range of IPv4 addresses such as 10.0.0.0/16, {NO_HOST_BITS} and not larger than /{SHORTEST_PREFIX}"
    raise BadInput(field, text, allowed)


def check_address_range(field: str, text: str, more: str = "") -> str:
    """Return any range of addresses, or one address as a range; raises BadInput otherwise."""
    try:
        return str(ip_network(text.strip()))
    except ValueError:
        raise BadInput(field, text, f"a range of addresses such as 203.0.113.0/24, {NO_HOST_BITS}{more}") from None


def check_subnets_fit(
    cidr: IPv4Network, subnets: Sequence[Subnet], field: str = "subnetInfoList", part: str = "ipv4_CIDR"
) -> None:
    """Refuse subnets that overlap or lie outside their network."""
    ranges = [IPv4Network(subnet.cidr) for subnet in subnets]
    if len({subnet.name for subnet in subnets}) < len(subnets):
        raise BadInput(field, [subnet.name for subnet in subnets], "a list of subnets with different names")
    for number, network in enumerate(ranges):
        if not network.subnet_of(cidr) or any(network.overlaps(other) for other in ranges[:number]):
            raise BadInput(f"{field}[{number}].{part}", str(network), f"a range within {cidr} of its own")


def check_new_network(want: NetworkSpec, former: NetworkSpec | None) -> None:
    """Refuse a spec of a network that no provider could create; what the former spec has was accepted before."""
    if former is None or want.cidr != former.cidr:
        check_network_range("spec.cidr", want.cidr)
    for number, subnet in enumerate(want.subnets):
        if former is None or subnet not in former.subnets:
            check_network_range(f"spec.subnets[{number}].cidr", subnet.cidr)
    if former is None or (want.cidr, want.subnets) != (former.cidr, former.subnets):
        check_subnets_fit(IPv4Network(want.cidr), want.subnets, "spec.subnets", "cidr")


def default_access(setting: str) -> tuple[str, ...]:
    """Return the ranges of addresses in the setting `mci_access_from`."""
    named = [own_address() if entry == SERVER else entry for part in setting.split(",") if (entry := part.strip())]
    return tuple(sorted({check_address_range("mci_access_from", address) for address in named if address}))


def own_address() -> str:
    """Return the address from which this host reaches others; empty if it reaches none. Nothing is sent."""
    with socket(AF_INET, SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # of no host: only its route counts
        return str(probe.getsockname()[0])
    return ""
