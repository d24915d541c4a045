"""Which server: a URL may name several hosts, of which one can be written to, and not always the same.

The driver tries them in their order, all within one limit of time. So a host that swallows what is sent to it, as one
behind a broken network does, would keep everybody from those behind it. Here each is asked by itself, the one that
answered last first, and whoever is slow is not waited for before the next is asked.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

from stateward.store.errors import Unavailable

READ_ONLY = "default_transaction_read_only"

NEXT_HOST_AFTER_S = 1.0
"""How many seconds one host has to answer before the next is asked as well."""


class DatabaseHost(Struct, frozen=True):
    """One of the hosts of a URL, as a URL of its own."""

    name: str
    dsn: str


class Terminable(Protocol):
    """A connection, as far as it can be given up."""

    def terminate(self) -> None: ...


C = TypeVar("C", bound=Terminable)
Dial = Callable[[DatabaseHost], Coroutine[object, object, C]]


def hosts_of(dsn: str) -> tuple[DatabaseHost, ...]:
    """Return the hosts that a URL names before its path; the driver sees to those that are named elsewhere."""
    parts = urlsplit(dsn)
    login, at, names = parts.netloc.rpartition("@")
    if "," not in names:
        return (DatabaseHost(names, dsn),)
    return tuple(DatabaseHost(name, parts._replace(netloc=f"{login}{at}{name}").geturl()) for name in names.split(","))


def required_session_attrs(dsn: str, settings: Mapping[str, str]) -> str | None:
    """Return what a server has to be for a connection with these settings, where that is not what the URL says.

    A connection of ours that only reads sees a server that is read-only, and would find none that can be written to.
    """
    asked = parse_qs(urlsplit(dsn).query).get("target_session_attrs")
    return "primary" if asked == ["read-write"] and settings.get(READ_ONLY) == "on" else None


class PreferredHost:
    """Remembers who answered last."""

    def __init__(self) -> None:
        self._name = ""

    async def connect_first(
        self, found: Sequence[DatabaseHost], dial: Dial[C], next_after: float = NEXT_HOST_AFTER_S
    ) -> C:
        """Return a connection to the first host that is what we need; raises `Unavailable` where none is."""
        if len(found) == 1:
            return await dial(found[0])
        host, connection = await _first_of(sorted(found, key=self._rank), dial, next_after)
        self._name = host.name
        return connection

    def _rank(self, host: DatabaseHost) -> bool:
        return host.name != self._name


async def _first_of(found: Sequence[DatabaseHost], dial: Dial[C], next_after: float) -> tuple[DatabaseHost, C]:
    troubles: list[str] = []
    asked: dict[asyncio.Task[C], DatabaseHost] = {}
    unasked = list(found)
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
        _give_up(asked)
    raise Unavailable("; ".join(troubles))


def _give_up(asked: Mapping[asyncio.Task[C], DatabaseHost]) -> None:
    """Let go of those who were too late, also of one who has answered this very moment.

    They are not waited for: whoever is cancelled meanwhile would lose the connection that was found.
    """
    for task in asked:
        task.add_done_callback(_let_go)
        task.cancel()


def _let_go(task: asyncio.Task[C]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().terminate()


DEAD_PEER_TIMEOUT_S = 10.0
"""How many seconds of silence, where there should be none, a line is given."""

KEEPALIVE_PROBES = 3


def enable_keepalive(connection: Any, dead_after: float = DEAD_PEER_TIMEOUT_S) -> None:  # noqa: ANN401 - the driver has no types
    """Have a connection closed when the other side does not answer, be it in use or idle."""
    line = connection._transport.get_extra_info("socket")  # noqa: SLF001 - the driver has no word for it
    if line is None or line.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with socket.socket(fileno=os.dup(line.fileno())) as ours:  # loops differ in what they let one do with theirs
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _options(dead_after).items():
            if hasattr(socket, name):  # not every system has all of them
                ours.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _options(dead_after: float) -> dict[str, int]:
    pause = max(1, round(dead_after / (KEEPALIVE_PROBES + 1)))
    return {
        "TCP_KEEPIDLE": pause,
        "TCP_KEEPINTVL": pause,
        "TCP_KEEPCNT": KEEPALIVE_PROBES,
        "TCP_USER_TIMEOUT": round(dead_after * 1000),
    }
