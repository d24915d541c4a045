"""Records of the domain: the specs of zones and records, the arguments of actions, and RRsets.

The same texts are compared in several places (accepted spec, served RRset, drift). So values have one canonical form:
absolute, lower-case names, in one order, as `canonical_values` returns them.
"""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from stateward.plugin import BadInput

LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
ZONE_NAME = rf"^({LABEL}\.)+{LABEL}$(?!\n)"
RELATIVE_NAME = rf"^(@|(\*\.|\*$)?(({LABEL}\.)*{LABEL})?)$(?!\n)"

ZoneName = Annotated[
    str,
    Meta(pattern=ZONE_NAME, max_length=250, description="the zone: a domain name in lower case, without a final dot"),
]
Ttl = Annotated[int, Meta(ge=30, le=604_800, description="seconds for which resolvers may keep the answer")]
Value = Annotated[str, Meta(min_length=1, max_length=4_000)]
Values = Annotated[
    tuple[Value, ...],
    Meta(min_length=1, max_length=100, description="the data of the record, as in a zone file: 192.0.2.1, 10 mail"),
]


class UnfitValue(BadInput, ValueError):
    """A value that fits its type, and yet cannot be used; as a ValueError, it is told with its place when decoded."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(field, value, allowed)


class RecordType(StrEnum):
    """The types of records that can be managed."""

    A = "A"
    AAAA = "AAAA"
    CAA = "CAA"
    CNAME = "CNAME"
    MX = "MX"
    PTR = "PTR"
    SRV = "SRV"
    TXT = "TXT"


class ZoneSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """What is wanted of a zone; its id is its domain name."""

    about: Annotated[str, Meta(max_length=200, description="what the zone is for")] = ""


class RecordSpec(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is wanted of a record: all values of one name and type."""

    zone: ZoneName
    name: Annotated[
        str,
        Meta(
            pattern=RELATIVE_NAME, min_length=1, max_length=250, description="the name in the zone; @: the zone itself"
        ),
    ] = "@"
    type: RecordType = RecordType.A
    values: Values
    ttl: Ttl = 300

    def __post_init__(self) -> None:
        canonical_values(self.type, self.values, self.zone)
        if self.type is RecordType.CNAME and (self.name == "@" or len(self.values) > 1):
            raise UnfitValue("values", None, "one name, and not that of the zone itself: it is a CNAME")


class RecordChange(Struct, frozen=True, forbid_unknown_fields=True):
    """New values or a new TTL of a record; None keeps what it has."""

    values: Values | None = None
    ttl: Ttl | None = None

    def __post_init__(self) -> None:
        if self.values is None and self.ttl is None:
            raise UnfitValue("values", None, "given, or a ttl, or both")


class RRset(Struct, frozen=True):
    """All values of a name and type, in the canonical form, with their TTL."""

    ttl: int
    values: tuple[str, ...]


class RRsetKey(Struct, frozen=True):
    """The place of an RRset in its zone."""

    name: str
    type: str

    def __str__(self) -> str:
        return f"{self.name}/{self.type}"


def wanted_rrset(spec: RecordSpec) -> RRset:
    """Return what the server is to serve for a record."""
    return RRset(spec.ttl, canonical_values(spec.type, spec.values, spec.zone))


def rrset_key(spec: RecordSpec) -> RRsetKey:
    """Return the place of a record in its zone."""
    return RRsetKey(spec.name, spec.type.value)


def canonical_values(type_: str, values: tuple[str, ...], zone: str) -> tuple[str, ...]:
    """Return values in the form in which they are compared; raises UnfitValue for what the type cannot have."""
    import dns.exception  # the declaration of the domain is imported by every command, which need not know DNS
    import dns.name
    import dns.rdata

    origin, found = dns.name.from_text(zone), []
    for value in values:
        try:
            data = dns.rdata.from_text("IN", type_, value, origin=origin, relativize=False)
        except (dns.exception.DNSException, ValueError) as error:
            raise UnfitValue("values", value, f"the data of a record of type {type_} ({error})") from error
        wire = data.to_digestable()  # RFC 4034, 6.2: names in lower case
        found.append(dns.rdata.from_wire(data.rdclass, data.rdtype, wire, 0, len(wire)).to_text())
    return tuple(sorted(set(found)))
