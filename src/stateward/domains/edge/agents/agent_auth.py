"""Authorization of agents: which token may connect for which cloudlet.

An agent's token names its cloudlets: `lab:munich` for the cloudlet munich of the namespace lab, or `lab:*` for all of
lab. A bare namespace, as in older tokens, names none. So a token stolen at one site is of no use at another. It is
listed, expires and is revoked like any token.
"""

from stateward.access import Grant

WRONG_CLOUDLET = "the token is not for this cloudlet"
BARE_NAMESPACE = (
    "the token names a namespace and no cloudlet; make a new one: stateward token create --role agent --ns {}:{}"
)
MAX_CLOSE_REASON_BYTES = 123
"""The size limit of a WebSocket close reason (RFC 6455)."""


def refusal_reason(grant: Grant, ns: str, cloudlet: str) -> str:
    """Return why a token is refused, and how to replace one that names a bare namespace."""
    reason = BARE_NAMESPACE.format(ns, cloudlet) if grant.opens(ns) else WRONG_CLOUDLET
    return reason if len(reason) <= MAX_CLOSE_REASON_BYTES else BARE_NAMESPACE.partition(":")[0]
