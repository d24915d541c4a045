"""The audit log: every refused attempt, with who, where and why; never with what was presented."""

import logging
import re
from typing import Any

from litestar.connection import ASGIConnection

from stateward.server.credentials import presented
from stateward.server.logs import redacted

log = logging.getLogger("stateward.audit")

AUDITED = frozenset({401, 403, 429})
"""The answers that tell of a refused attempt."""

_ID = re.compile(r"sw_([0-9a-f]{12})_")

Connection = ASGIConnection[Any, Any, Any, Any]


def audit(connection: Connection, status: int, why: str) -> None:
    """Write down a refused attempt."""
    scope = connection.scope
    ns = scope.get("path_params", {}).get("ns")
    facts = {
        "status": status,
        "method": scope.get("method", "WEBSOCKET"),
        "route": scope.get("path_template", ""),
        "ns": None if ns is None else redacted(ns),
        "token": token_id(presented(scope["headers"])),
        "peer": (scope.get("client") or ("",))[0],
    }
    said = " ".join(f"{name}={value}" for name, value in facts.items() if value)
    log.warning("refused: %s %s", redacted(why), said, extra=facts)


def token_id(text: str | None) -> str | None:
    """Return the part of a token that finds its record; None for what is no token of ours."""
    found = _ID.match(text) if text is not None else None
    return found[1] if found else None
