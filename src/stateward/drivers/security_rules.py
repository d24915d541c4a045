"""The rules of security groups as the port has them: JSON in a resource's facts.

A rule is `{"direction", "protocol", "ports", "cidr"}`; ports may be many (`"22,900-1000"`), and none means all of them.
A driver turns the rules into the permissions of its provider.
"""

from collections.abc import Iterable
from ipaddress import ip_network
from typing import NamedTuple

import msgspec

from stateward.errors import BadInput

ANY = "-1"
PROTOCOLS = {"tcp": "tcp", "udp": "udp", "icmp": "icmp", "all": ANY, "any": ANY, "*": ANY, ANY: ANY, "": ANY}
DIRECTIONS = {"inbound": True, "ingress": True, "outbound": False, "egress": False}
ALL_PORTS = (0, 65535)


class RuleSpec(msgspec.Struct, frozen=True, rename=str.lower):
    """A rule as it is written in a resource's facts."""

    direction: str = "inbound"
    protocol: str = "tcp"
    ports: str = ""
    cidr: str = "0.0.0.0/0"


_RULES_DECODER = msgspec.json.Decoder(list[RuleSpec])  # threads use it: see the one of `MachineRecord`


class SecurityRule(NamedTuple):
    """One rule: direction, protocol, a range of ports and a range of addresses."""

    inbound: bool
    protocol: str
    first: int
    last: int
    cidr: str

    @property
    def ports(self) -> str:
        """The ports as a text, such as `22` or `8000-8080`; empty for all of them."""
        if self.first < 0 or (self.first, self.last) == ALL_PORTS:
            return ""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def wanted_rules(text: str) -> set[SecurityRule]:
    """Read rules from JSON; raises `BadInput` for bad ones."""
    try:
        written = _RULES_DECODER.decode(text or "[]")
    except msgspec.DecodeError as error:
        raise BadInput("rules", text, f"a list of rules ({error})") from None
    return {rule for entry in written for rule in _rules(entry)}


def _rules(written: RuleSpec) -> Iterable[SecurityRule]:
    protocol, inbound = PROTOCOLS.get(written.protocol.lower()), DIRECTIONS.get(written.direction.lower())
    if protocol is None:
        raise BadInput("protocol", written.protocol, "tcp, udp, icmp or all")
    if inbound is None:
        raise BadInput("direction", written.direction, "inbound or outbound")
    try:
        cidr = str(ip_network(written.cidr, strict=False))
    except ValueError:
        raise BadInput("cidr", written.cidr, "a range of addresses") from None
    for first, last in _ranges(written.ports, protocol):
        yield SecurityRule(inbound, protocol, first, last, cidr)


def _ranges(ports: str, protocol: str) -> Iterable[tuple[int, int]]:
    if protocol in (ANY, "icmp"):
        return [(-1, -1)]
    if ports.strip() in ("", "*", "-1"):
        return [ALL_PORTS]
    return [_range(part.strip()) for part in ports.split(",")]


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if first.isdecimal() and (last or first).isdecimal() and 0 <= int(first) <= int(last or first) <= ALL_PORTS[1]:
        return int(first), int(last or first)
    raise BadInput("ports", text, "a port or a range of ports")
