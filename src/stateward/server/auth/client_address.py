"""Addresses of clients, also of those behind proxies, and whether others can read what is sent to them.

A limit by address needs the client's address. Behind a proxy every call comes from the proxy, and the client's address
is in `X-Forwarded-For`. Any client can write that header, so it counts only from proxies that the configuration names.
"""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from litestar.types import Scope

from stateward.agents.dialer import is_loopback
from stateward.errors import BadInput

Network = IPv4Network | IPv6Network

FORWARDED, FORWARDED_SCHEME = b"x-forwarded-for", b"x-forwarded-proto"
OF_PROXIES = frozenset({FORWARDED, FORWARDED_SCHEME, b"forwarded", b"via", b"x-real-ip"})
"""Headers that proxies add."""

IPV6_NETWORK_BITS = 64
"""The prefix of an IPv6 network: one client usually has all addresses of a /64 network."""


def read_networks(text: str) -> tuple[Network, ...]:
    """Read the setting `trusted_proxies`."""
    try:
        return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        allowed = f"addresses or networks with commas between them, such as 10.0.0.7, 10.1.0.0/16 ({error})"
        raise BadInput("trusted_proxies", text, allowed) from error


class ClientAddresses:
    """Finds the addresses of clients."""

    def __init__(self, trusted: Sequence[Network] = ()) -> None:
        self._trusted = trusted

    def address(self, scope: Scope) -> str:
        """Return the address of the client: the last address in the chain that is not a trusted proxy."""
        address = (scope.get("client") or ("",))[0]
        if not self._trusted or not self._trusts(address):
            return address
        headers = [value.decode("latin-1") for name, value in scope["headers"] if name == FORWARDED]
        for hop in reversed(",".join(headers).split(",")):
            if not _is_address(hop.strip()):
                break  # not written by a proxy, so all entries before it are untrusted too
            address = hop.strip()
            if not self._trusts(address):
                break
        return address

    def is_private(self, scope: Scope) -> bool:
        """Tell whether nobody on the network can read a connection: it is over TLS, or does not leave this host.

        A proxy may serve its own clients without TLS. So if the connection comes from a proxy, that must be trusted,
        and say that the client uses TLS.
        """
        peer, is_tls = (scope.get("client") or ("",))[0], scope["scheme"] in ("https", "wss")
        if not is_tls and not is_loopback(peer):
            return False
        if not self._trusts(peer):
            return not any(name in OF_PROXIES for name, _ in scope["headers"])
        schemes = [value for name, value in scope["headers"] if name == FORWARDED_SCHEME]
        return schemes[-1].rpartition(b",")[2].strip() in (b"https", b"wss") if schemes else is_tls

    def network(self, scope: Scope) -> str:
        """Return the key for limits by address: the IPv4 address, or the network of the IPv6 address."""
        address = self.address(scope)
        parsed = ip_address(address.partition("%")[0]) if _is_address(address.partition("%")[0]) else None
        if not isinstance(parsed, IPv6Address):
            return address
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ip_network((parsed, IPV6_NETWORK_BITS), strict=False))

    def _trusts(self, text: str) -> bool:
        if not _is_address(text):
            return False
        address = ip_address(text)
        address = (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address
        return any(address in network for network in self._trusted)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
