"""The audit log: refused requests, with their route, client address and reason, but never with the token's secret.

One line for each attempt would let an attacker fill the disk. The first attempts of an address are written at once.
Further attempts in the same minute are counted, and the count is written at the end of the minute.
"""

import asyncio
import logging
from collections import Counter
from typing import Any

from litestar.types import Scope
from msgspec import Struct, field

from stateward.server.auth.client_address import ClientAddresses
from stateward.server.auth.credentials import presented_token, token_id
from stateward.server.auth.session_cookie import session_text
from stateward.server.telemetry.logs import redacted

log = logging.getLogger("stateward.audit")

AUDITED_STATUSES = frozenset({401, 403, 429})
"""The response statuses of refused attempts."""

COUNT_INTERVAL_S = 60.0
"""For how many seconds attempts are counted before the count is written."""

MAX_LINES = 20
"""How many attempts of one address are written in an interval; each differs from the others."""

MAX_ADDRESSES = 1_000
"""How many addresses are counted separately."""

OTHERS = "(others)"


class Attempts(Struct):
    """The attempts of one address in an interval: those that were written, and the number of others by status."""

    written: set[tuple[object, ...]] = field(default_factory=set)  # bounded by: MAX_LINES
    more: Counter[int] = field(default_factory=Counter)  # bounded by: the HTTP statuses


class AuditLog:
    """Writes refused attempts, and counts those that would repeat a line."""

    def __init__(self, peers: ClientAddresses) -> None:
        self._peers = peers
        self._attempts: dict[str, Attempts] = {}

    def refused(self, scope: Scope, status: int, why: str) -> None:
        """Write a refused attempt, or count it."""
        peer = self._peers.address(scope)
        attempts = self._attempts_of(peer)
        ns = scope.get("path_params", {}).get("ns")
        facts: dict[str, Any] = {
            "status": status,
            "method": scope.get("method", "WEBSOCKET"),
            "route": scope.get("path_template", ""),
            "ns": None if ns is None else redacted(ns),
            "token": token_id(presented_token(scope["headers"])),
            "session": token_id(session_text(scope)),
            "peer": peer,
        }
        line = tuple(facts.values())
        if line in attempts.written or len(attempts.written) >= MAX_LINES:
            attempts.more[status] += 1
            return
        attempts.written.add(line)
        said = _line_of(facts)
        log.warning("refused: %s %s", redacted(why), said, extra=facts)

    def flush(self) -> None:
        """Write all counts now."""
        for peer in list(self._attempts):
            self._end(peer)

    def _attempts_of(self, peer: str) -> Attempts:
        if peer not in self._attempts and len(self._attempts) >= MAX_ADDRESSES:
            peer = OTHERS
        if peer not in self._attempts:
            self._attempts[peer] = Attempts()
            asyncio.get_running_loop().call_later(COUNT_INTERVAL_S, self._end, peer)
        return self._attempts[peer]

    def _end(self, peer: str) -> None:
        attempts = self._attempts.pop(peer, None)
        for status, count in sorted(attempts.more.items()) if attempts is not None else ():
            facts = {"status": status, "peer": peer, "count": count}
            said = _line_of(facts)
            log.warning("refused: %d more attempts within %d s %s", count, COUNT_INTERVAL_S, said, extra=facts)


def _line_of(facts: dict[str, Any]) -> str:
    """Return facts as one line; a name that a caller has chosen cannot begin another one, nor control a terminal."""
    said = {name: str(value) for name, value in facts.items() if value}
    return " ".join(f"{name}={value if value.isprintable() else repr(value)}" for name, value in said.items())
