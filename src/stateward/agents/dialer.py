"""The agent's dialer: connects to one of several controllers, with exponential backoff and jitter."""

import ssl
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address
from random import Random
from urllib.parse import quote, urlsplit

from websockets.asyncio.client import ClientConnection, connect

from stateward.errors import BadInput

INITIAL_DELAY_S, MAX_DELAY_S = 0.2, 10.0
CONNECT_TIMEOUT_S = 10.0
MAX_MESSAGE_BYTES = 1 << 20


class WebSocketDialer:
    """Connects to one controller after the other; `path` is the route that agents connect to."""

    def __init__(
        self, controllers: Sequence[str], path: str, ns: str, site_name: str, token: str, chance: Random
    ) -> None:
        self._urls = [
            f"{check_controller_url(url)}{path}/{quote(ns, safe='')}/{quote(site_name, safe='')}" for url in controllers
        ]
        self._token, self._chance = token, chance
        self._failures = 0
        self.is_private = False  # whether nobody on the network can read the last connection

    async def dial(self) -> ClientConnection:
        """Connect to the next controller."""
        url = self._urls[self._failures % len(self._urls)]
        self._failures += 1
        self.is_private = is_private_url(url)
        return await connect(
            url,
            additional_headers={"Authorization": f"Bearer {self._token}"},
            open_timeout=CONNECT_TIMEOUT_S,
            ping_interval=None,  # the protocol has heartbeats of its own
            max_size=MAX_MESSAGE_BYTES,
            compression=None,
            proxy=None,
            ssl=ssl.create_default_context() if url.startswith("wss:") else None,
        )

    def reset_backoff(self) -> None:
        """Reset the backoff after a stable connection; the same controller is tried first."""
        self._failures = max(0, self._failures - 1) % len(self._urls)

    @property
    def retry_delay_s(self) -> float:
        """Seconds to wait before the next attempt: longer after each failure, with jitter."""
        longest = min(MAX_DELAY_S, INITIAL_DELAY_S * 2.0 ** min(self._failures, 10))
        return self._chance.uniform(longest / 4, longest)


def is_private_url(url: str) -> bool:
    """Tell whether nobody on the network can read a connection to an address: over TLS, or to this host."""
    parts = urlsplit(url)
    return parts.scheme == "wss" or parts.hostname == "localhost" or is_loopback(parts.hostname or "")


def is_loopback(host: str) -> bool:
    """Tell whether a text is an address of the host itself."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def check_controller_url(url: str) -> str:
    """Return a controller's address without a trailing slash; raises `BadInput` if it is malformed."""
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "wss") or not parts.hostname or parts.query or "@" in parts.netloc:
        raise BadInput("controller", url.rpartition("@")[2], "an address such as wss://controller:8420")
    return url.rstrip("/")
