"""The errors of the server itself: authentication, authorization, rate limits, readiness."""

from stateward.access import Right
from stateward.engine.errors import Denied
from stateward.errors import StatewardError


class NotAuthenticated(StatewardError):
    """The request has no token, or one that is not valid."""

    given: bool

    def __str__(self) -> str:
        return "the token is not valid: it is unknown, revoked or expired" if self.given else "a token is needed"


class Forbidden(StatewardError):
    """The token is valid, but does not give the right."""

    right: Right
    ns: str | None = None
    why: str = ""

    def __str__(self) -> str:
        if self.why:
            return self.why
        where = f" in namespace {self.ns!r}" if self.ns is not None else ""
        return f"the token does not give the right to {self.right}{where}"


class PriorityForbidden(Forbidden):
    """A caller who does not administer the deployment asks for a priority above the work of other namespaces."""

    def __init__(self, field: str, priority: int) -> None:
        super().__init__(Right.GOVERN)
        self.field, self.priority = field, priority

    def __str__(self) -> str:
        return (
            f"{self.field}: {self.priority} must be 0 or less; namespaces share lanes, so that only an administrator"
            " of all namespaces may give a priority above 0"
        )


class KeyInUse(Denied, code="key_in_use", retry=True):
    """The first call with an idempotency key is still being served."""

    key: str
    text = "the first call with the idempotency key {key!r} is still being served: repeat it later"


class KeySpent(Denied, code="key_spent"):
    """The answer to the first call with an idempotency key can't be repeated."""

    key: str
    why: str
    text = "the first call with the idempotency key {key!r} {why}"


class TooMany(StatewardError, retry=True):
    """The token is over its rate limit, or too many wrong tokens were tried."""

    after: float
    why: str = "too many requests with this token"
    text = "{why}"
