"""The agents' door: which token may speak for which cloudlet.

A token for agents names what it may speak for among its namespaces: `lab` for all cloudlets of the namespace lab, or
`lab:munich` for the cloudlet munich alone. So a cloudlet's token opens that one line and nothing else: what is stolen
from one site is of no use at another, and it is listed, expires and is revoked as any token.
"""

import asyncio
from typing import Any

from stateward.access import Grant
from stateward.agents.line import Line
from stateward.domains.wing import grant_of

FOREIGN = "the token is not for this cloudlet"


def admitted(grant: Grant, ns: str, cloudlet: str) -> bool:
    """Tell whether a token may speak for a cloudlet."""
    return grant.opens(ns) or grant.opens(f"{ns}:{cloudlet}")


def line_of(socket: Any, ns: str, cloudlet: str) -> Line:  # noqa: ANN401 - a WebSocket of any application
    """Return a line over a WebSocket."""
    return Line(socket, ns, cloudlet, asyncio.get_running_loop().time, grant_of(socket).token)
