"""The server's own refusals: who is not known, who may not, who comes too often, and a server that is not ready."""

from stateward.access import Right
from stateward.errors import StatewardError


class NotAuthenticated(StatewardError):
    """There is no token, or it opens nothing."""

    def __init__(self, *, given: bool) -> None:
        super().__init__(given)
        self.given = given

    def __str__(self) -> str:
        return "the token is not valid, or no longer" if self.given else "a token is needed"


class Forbidden(StatewardError):
    """The token is known and does not open this."""

    def __init__(self, right: Right, ns: str | None = None, *, why: str = "") -> None:
        super().__init__(right, ns)
        self.right, self.ns, self.why = right, ns, why

    def __str__(self) -> str:
        if self.why:
            return self.why
        where = f" in namespace {self.ns!r}" if self.ns is not None else ""
        return f"the token does not give the right to {self.right}{where}"


class PriorityForbidden(Forbidden):
    """A token that does not administer the deployment asks for a priority before the work of other namespaces."""

    def __init__(self, field: str, priority: int) -> None:
        super().__init__(Right.GOVERN)
        self.field, self.priority = field, priority

    def __str__(self) -> str:
        return (
            f"{self.field}: {self.priority} must be 0 or less; namespaces share lanes, so that only an administrator"
            " of all namespaces may give a priority above 0"
        )


class TooMany(StatewardError):
    """The token calls more often than it may, or too many wrong tokens were tried."""

    retry = True

    def __init__(self, after: float, why: str = "too many requests with this token") -> None:
        super().__init__(after)
        self.after, self.why = after, why

    def __str__(self) -> str:
        return self.why


class NotReady(StatewardError):
    """Something that the server needs is missing."""

    retry = True

    def __init__(self, missing: str) -> None:
        super().__init__(missing)
        self.missing = missing

    def __str__(self) -> str:
        return self.missing
