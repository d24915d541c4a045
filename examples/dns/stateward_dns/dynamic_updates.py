"""A real DNS server: queries, dynamic updates (RFC 2136) and zone transfers, signed by TSIG (RFC 8945).

Dynamic updates change records, but cannot add zones. A catalog zone (RFC 9432) can: it is a zone whose records name the
zones that the server is to serve, and those records are changed by dynamic updates as well. So the server needs no
other protocol, and this process no access to the server's machine.

Each change is one message with its prerequisites. The server carries out all of it or nothing, and a repeated message
does no harm: what was done before is seen by the prerequisite.
"""

from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from typing import TypeVar

import dns.asyncquery
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdataset
import dns.rdatatype
import dns.rdtypes.ANY.TXT
import dns.rrset
import dns.tsig
import dns.update
import dns.xfr
import dns.zone
from msgspec import Struct

from stateward.engine import Permanent, Temporary, Unknown
from stateward_dns.model import RRset, RRsetKey, canonical_values

T = TypeVar("T")

UNMANAGED = frozenset({"SOA", "NS", "RRSIG", "NSEC", "NSEC3", "NSEC3PARAM", "DNSKEY", "CDS", "CDNSKEY", "DS"})
"""The types that the server makes itself, or that the template of its zones has."""


class ServerAddress(Struct, frozen=True):
    """Where a server is, and the key by which it knows us."""

    host: str
    port: int
    catalog: str
    key_name: str
    key_secret: str
    key_algorithm: str = "hmac-sha256"
    timeout_s: float = 5.0


class DynamicUpdates:
    """A DNS server that takes dynamic updates."""

    def __init__(self, at: ServerAddress) -> None:
        self._at = at
        self._key = dns.tsig.Key(at.key_name, at.key_secret, at.key_algorithm)

    @property
    def address(self) -> str:
        return f"{self._at.host}:{self._at.port}"

    # --- zones -------------------------------------------------------------------------------------------------------

    async def read_owner(self, zone: str) -> str | None:
        found = await self._read(f"{_owner_name(zone)}.{self._at.catalog}", "TXT", signed=True)
        for data in found or ():
            assert isinstance(data, dns.rdtypes.ANY.TXT.TXT)
            return b"".join(data.strings).decode("utf-8", "replace")
        return None

    async def serves(self, zone: str) -> bool:
        answer = await self._ask(zone, "SOA")
        return answer.rcode() == dns.rcode.NOERROR and bool(answer.flags & dns.flags.AA) and bool(answer.answer)

    async def add_zone(self, zone: str, owner: str) -> None:
        message = self._update(self._at.catalog)
        message.absent(_member_name(zone))
        message.add(_member_name(zone), 0, "PTR", f"{zone}.")
        message.add(_owner_name(zone), 0, "TXT", _quoted(owner))
        code = await self._send(message)
        if code == dns.rcode.YXDOMAIN and await self.read_owner(zone) != owner:
            raise Permanent(f"the server has the zone {zone} already, and not for this namespace")
        self._require(code, f"add the zone {zone}", dns.rcode.NOERROR, dns.rcode.YXDOMAIN)

    async def remove_zone(self, zone: str, owner: str) -> None:
        message = self._update(self._at.catalog)
        message.present(_owner_name(zone), "TXT", _quoted(owner))
        message.delete(_member_name(zone))
        message.delete(_owner_name(zone))
        code = await self._send(message)
        self._require(code, f"remove the zone {zone}", dns.rcode.NOERROR, dns.rcode.NXRRSET)

    # --- records -----------------------------------------------------------------------------------------------------

    async def read_rrset(self, zone: str, key: RRsetKey) -> RRset | None:
        found = await self._read(zone if key.name == "@" else f"{key.name}.{zone}", key.type)
        return None if not found else _rrset(found, key.type, zone)

    async def write_rrset(self, zone: str, key: RRsetKey, wanted: RRset | None, *, is_new: bool = False) -> None:
        message = self._update(zone)
        if is_new:
            message.absent(key.name, key.type)
        message.delete(key.name, key.type)
        if wanted is not None:
            message.add(key.name, wanted.ttl, key.type, *wanted.values)
        code = await self._send(message)
        if code == dns.rcode.YXRRSET and (served := await self.read_rrset(zone, key)) is not None and served != wanted:
            raise Permanent(f"the server serves {key} of {zone} already: {', '.join(served.values)}")
        self._require(code, f"change {key} of {zone}", dns.rcode.NOERROR, dns.rcode.YXRRSET)

    async def read_zone(self, zone: str) -> Mapping[RRsetKey, RRset] | None:
        if not await self.serves(zone):
            return None
        into = dns.zone.Zone(zone, relativize=True)
        query, _ = dns.xfr.make_query(into, serial=None, keyring=self._key)
        await self._guard(
            lambda: dns.asyncquery.inbound_xfr(self._at.host, into, query, self._at.port, lifetime=self._at.timeout_s),
            changes=False,
        )
        found: dict[RRsetKey, RRset] = {}
        for name, node in into.nodes.items():
            for data in node.rdatasets:
                type_ = dns.rdatatype.to_text(data.rdtype)
                if type_ not in UNMANAGED:
                    found[RRsetKey(str(name).lower(), type_)] = _rrset(data, type_, zone)
        return found

    # --- messages ----------------------------------------------------------------------------------------------------

    def _update(self, zone: str) -> dns.update.UpdateMessage:
        return dns.update.UpdateMessage(zone, keyring=self._key)

    async def _read(self, name: str, type_: str, *, signed: bool = False) -> dns.rrset.RRset | None:
        answer = await self._ask(name, type_, signed=signed)
        if answer.rcode() == dns.rcode.NXDOMAIN:
            return None
        self._require(answer.rcode(), f"answer for {name}", dns.rcode.NOERROR)
        return answer.get_rrset(
            answer.answer, dns.name.from_text(name), dns.rdataclass.IN, dns.rdatatype.from_text(type_)
        )

    async def _ask(self, name: str, type_: str, *, signed: bool = False) -> dns.message.Message:
        """Send a query; only queries of the catalog are signed, because a server does not sign that it has no zone."""
        query = dns.message.make_query(name, type_, flags=0)
        if signed:
            query.use_tsig(self._key)
        return await self._guard(
            lambda: dns.asyncquery.tcp(query, self._at.host, self._at.timeout_s, self._at.port), changes=False
        )

    async def _send(self, message: dns.update.UpdateMessage) -> dns.rcode.Rcode:
        answer = await self._guard(
            lambda: dns.asyncquery.tcp(message, self._at.host, self._at.timeout_s, self._at.port), changes=True
        )
        return answer.rcode()

    async def _guard(self, call: Callable[[], Awaitable[T]], *, changes: bool) -> T:
        """Make a call, and raise its errors as policies; one that `changes` something may have had an effect."""
        try:
            return await call()
        except ConnectionRefusedError as error:
            raise (Temporary if changes else Unknown)(f"no DNS server listens on {self.address}") from error
        except dns.tsig.PeerBadTime as error:
            raise Temporary(f"the clocks of this host and of the DNS server {self.address} differ") from error
        except (dns.tsig.PeerError, dns.tsig.BadSignature) as error:
            raise Permanent(
                f"the DNS server {self.address} does not accept the key {self._at.key_name}: {error}"
            ) from error
        except (dns.exception.DNSException, OSError, EOFError) as error:
            text = f"the DNS server {self.address} gives no answer: {str(error) or type(error).__name__}"
            raise Unknown(text) from error

    def _require(self, code: dns.rcode.Rcode, what: str, *accepted: dns.rcode.Rcode) -> None:
        if code in accepted:
            return
        text = f"the DNS server {self.address} does not {what}: {dns.rcode.to_text(code)}"
        raise (Unknown if code == dns.rcode.SERVFAIL else Permanent)(text)


def _rrset(found: dns.rdataset.Rdataset, type_: str, zone: str) -> RRset:
    return RRset(found.ttl, canonical_values(type_, tuple(data.to_text() for data in found), zone))


def _member_name(zone: str) -> str:
    """Return the name of a zone's entry in the catalog: a label that no other zone has."""
    return f"{blake2b(zone.encode(), digest_size=16).hexdigest()}.zones"


def _owner_name(zone: str) -> str:
    """Return the name of the custom property (RFC 9432, 4.5) of an entry that says for whom it was added."""
    return f"owner.ext.{_member_name(zone)}"


def _quoted(text: str) -> str:
    return '"' + "".join(f"\\{one}" if one in '"\\' else one for one in text) + '"'
