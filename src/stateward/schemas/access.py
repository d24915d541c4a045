"""Tokens and quotas in responses."""

from msgspec import Struct

from stateward.access.roles import Role
from stateward.schemas.params import Moment


class TokenView(Struct, frozen=True):
    """A token as it may be shown: never with its secret."""

    id: str
    name: str
    role: Role
    namespaces: list[str]
    state: str
    created: Moment
    expires: Moment | None


class IssuedView(Struct, frozen=True):
    """A token that was just made; its text is told here and never again."""

    token: str
    info: TokenView


class QuotaView(Struct, frozen=True):
    """How many objects of each kind, and how many operations under way, a namespace may have; null: any number."""

    ns: str
    objects: dict[str, int]
    operations: int | None
