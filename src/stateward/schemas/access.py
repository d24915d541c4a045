"""Tokens, sessions and quotas in responses."""

from msgspec import Struct

from stateward.access.roles import Role
from stateward.schemas.params import Moment


class TokenView(Struct, frozen=True):
    """A token, without its secret."""

    id: str
    name: str
    role: Role
    namespaces: list[str]
    state: str
    created: Moment
    expires: Moment | None


class IssuedView(Struct, frozen=True):
    """A new token with its text, which is not shown again."""

    token: str
    info: TokenView


class SessionView(Struct, frozen=True):
    """The session of a browser: who has signed in, and until when."""

    name: str
    role: Role
    expires: Moment


class QuotaView(Struct, frozen=True):
    """Limits of a namespace: objects of each kind, and operations that have not ended; null means no limit."""

    ns: str
    objects: dict[str, int]
    operations: int | None
