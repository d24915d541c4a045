"""The lifecycle of a token: it is active until it is revoked or expires, which is final."""

from stateward.lifecycle import ADMIN, CLOCK, CONTROLLER, FINAL, GONE, NEW, STABLE, State, declare, step


class TokenState(State):
    """The states of an API token."""

    ACTIVE = "active", STABLE, "opens what its role allows"
    REVOKED = "revoked", FINAL, "revoked by an administrator"
    EXPIRED = "expired", FINAL, "its time is over"


T = TokenState

ROWS = (
    #    from                   event     by                  to
    step(NEW,                   "issue",  ADMIN | CONTROLLER, T.ACTIVE),
    step(T.ACTIVE,              "revoke", ADMIN | CONTROLLER, T.REVOKED),
    step(T.ACTIVE,              "expire", CLOCK,              T.EXPIRED),
    step(T.REVOKED | T.EXPIRED, "remove", ADMIN | CLOCK,      GONE),
)  # fmt: skip

TOKEN = declare("access.token", TokenState, ROWS, ADMIN | CONTROLLER | CLOCK, about="an API token")
