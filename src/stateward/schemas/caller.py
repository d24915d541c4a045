"""The caller of a domain's service: on whose behalf a request is made."""

from msgspec import Struct

from stateward.lifecycle import USER


class Caller(Struct, frozen=True):
    """An actor of the lifecycle tables, the person or program behind it, and what came with the request.

    `facts` are the overrides that the request names. `key` is its idempotency key, scoped to the caller's token.
    """

    actor: str = USER
    who: str = ""
    facts: frozenset[str] = frozenset()
    key: str | None = None
