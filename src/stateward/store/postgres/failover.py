"""Failover between the hosts of a URL, and detection of dead connections.

One of several hosts accepts writes, and not always the same. The driver tries the hosts in order within one time limit,
so a host behind a broken network, which never answers, would block those after it. Here each host is tried by itself,
the last good one first, and the next one is tried as well if a host is slow (as in Happy Eyeballs).

A connection that dies silently, as when a network is cut, would block its statement as long as any slow answer, and an
idle one would look healthy until its next use. TCP keepalive and user timeout make the kernel close it.
"""

import asyncio
import os
import re
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qs

from msgspec import Struct

from stateward.store.errors import Unavailable

READ_ONLY = "default_transaction_read_only"

NEXT_HOST_AFTER_S = 1.0
"""How long to wait for a host before the next one is tried as well."""


_AUTHORITY_END = re.compile("[/?#]")


class DatabaseHost(Struct, frozen=True):
    """One host of a URL, with a URL of its own."""

    name: str
    dsn: str


class Terminable(Protocol):
    """A connection that can be terminated."""

    def terminate(self) -> None: ...


C = TypeVar("C", bound=Terminable)
Dial = Callable[[DatabaseHost], Coroutine[object, object, C]]


def hosts_of(dsn: str) -> tuple[DatabaseHost, ...]:
    """Return the hosts in the authority of a URL; the driver handles hosts that are named elsewhere."""
    scheme, mark, rest = dsn.partition("://")
    authority = _AUTHORITY_END.split(rest, maxsplit=1)[0]  # urlsplit refuses several hosts with an IPv6 address
    login, at, names = authority.rpartition("@")
    if "," not in names:
        return (DatabaseHost(names, dsn),)
    tail = rest.removeprefix(authority)
    return tuple(DatabaseHost(name, f"{scheme}{mark}{login}{at}{name}{tail}") for name in names.split(","))


def required_session_attrs(dsn: str, settings: Mapping[str, str]) -> str | None:
    """Return the `target_session_attrs` for these settings, if they must differ from the URL.

    A read-only session sees every server as read-only, so `read-write` would match none.
    """
    asked = parse_qs(dsn.partition("#")[0].partition("?")[2]).get("target_session_attrs")
    return "primary" if asked == ["read-write"] and settings.get(READ_ONLY) == "on" else None


class PreferredHost:
    """Remembers the host of the last successful connection."""

    def __init__(self) -> None:
        self._name = ""

    async def connect_first(
        self, hosts: Sequence[DatabaseHost], dial: Dial[C], next_after: float = NEXT_HOST_AFTER_S
    ) -> C:
        """Return a connection to the first suitable host; raises `Unavailable` if there is none."""
        if len(hosts) == 1:
            return await dial(hosts[0])
        host, connection = await _first_of(sorted(hosts, key=lambda host: host.name != self._name), dial, next_after)
        self._name = host.name
        return connection


async def _first_of(hosts: Sequence[DatabaseHost], dial: Dial[C], next_after: float) -> tuple[DatabaseHost, C]:
    troubles: list[str] = []
    asked: dict[asyncio.Task[C], DatabaseHost] = {}
    unasked = list(hosts)
    try:
        while unasked or asked:
            if unasked:
                host = unasked.pop(0)
                asked[asyncio.create_task(dial(host))] = host
            done, _ = await asyncio.wait(
                asked, timeout=next_after if unasked else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                host = asked.pop(task)
                try:
                    return host, task.result()
                except Unavailable as error:
                    troubles.append(f"{host.name}: {error.detail}")
    finally:
        # Cancel the other attempts, and terminate one that connects at this moment. They are not awaited, because a
        # cancellation meanwhile would lose the connection that was found.
        for task in asked:
            task.add_done_callback(_let_go)
            task.cancel()
    raise Unavailable("; ".join(troubles))


def _let_go(task: asyncio.Task[C]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().terminate()


DEAD_PEER_TIMEOUT_S = 10.0
"""How long a peer may be silent before the kernel closes the connection."""

KEEPALIVE_PROBES = 3


def enable_keepalive(connection: Any, dead_after: float = DEAD_PEER_TIMEOUT_S) -> None:  # noqa: ANN401 - the driver has no types
    """Let the kernel close a connection whose peer does not answer, whether in use or idle."""
    line = connection._transport.get_extra_info("socket")  # noqa: SLF001 - the driver has no word for it
    if line is None or line.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with socket.socket(fileno=os.dup(line.fileno())) as ours:  # event loops restrict the use of their sockets
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        pause = max(1, round(dead_after / (KEEPALIVE_PROBES + 1)))
        options = {
            "TCP_KEEPIDLE": pause,
            "TCP_KEEPINTVL": pause,
            "TCP_KEEPCNT": KEEPALIVE_PROBES,
            "TCP_USER_TIMEOUT": round(dead_after * 1000),
        }
        for name, value in options.items():
            if hasattr(socket, name):  # not all systems have all options
                ours.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
