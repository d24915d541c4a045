"""The agents' door: which token may speak for which cloudlet.

A token for agents names what it may speak for: `lab:munich` for the cloudlet munich of the namespace lab, or `lab:*`
for all of lab. A bare namespace, as tokens had it before, is for nothing. So a cloudlet's token opens that one line and
nothing else: what is stolen from one site is of no use at another, and it is listed, expires and is revoked as any
token.
"""

import asyncio
from typing import Any

from stateward.access import Grant
from stateward.agents.connection import AgentConnection
from stateward.domains.plugin import grant_of

WRONG_CLOUDLET = "the token is not for this cloudlet"
BARE_NAMESPACE = (
    "the token names a namespace and no cloudlet; make a new one: stateward token create --role agent --ns {}:{}"
)
MAX_CLOSE_REASON_BYTES = 123
"""How many bytes the reason of a closed WebSocket may have."""


def may_connect(grant: Grant, ns: str, cloudlet: str) -> bool:
    """Tell whether a token may speak for a cloudlet."""
    return grant.speaks_for(ns, cloudlet)


def refusal_reason(grant: Grant, ns: str, cloudlet: str) -> str:
    """Say why a token is not admitted, and how to renew one that names a bare namespace."""
    reason = BARE_NAMESPACE.format(ns, cloudlet) if grant.opens(ns) else WRONG_CLOUDLET
    return reason if len(reason) <= MAX_CLOSE_REASON_BYTES else BARE_NAMESPACE.partition(":")[0]


def open_connection(socket: Any, ns: str, cloudlet: str) -> AgentConnection:  # noqa: ANN401 - a WebSocket of any application
    """Return a line over a WebSocket."""
    return AgentConnection(socket, ns, cloudlet, asyncio.get_running_loop().time, grant_of(socket).token)
