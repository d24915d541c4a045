"""Problems (RFC 9457): a refused request, with the facts that a program needs to go on."""

from msgspec import Struct

from stateward.schemas.params import Moment
from stateward.state_class import StateClass


class BlockerView(Struct, frozen=True):
    """A conflicting operation: who requested it and when; for a lock, also its path and mode."""

    op: str
    action: str
    actor: str
    who: str
    since: Moment
    path: str | None = None
    mode: str | None = None
    waiting: bool = False


class FlagView(Struct, frozen=True):
    """The deletion protection that is in the way: its object, null for the namespace's own, its reason, and the command
    that lifts it."""

    ns: str
    object: str | None
    reason: str
    command: str


class EffectiveProtection(Struct, frozen=True):
    """What refuses the removal of an object; null if nothing does."""

    protection: FlagView | None


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reason why a request was refused. It changed nothing; `retry` is true if the same may succeed later."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    retry: bool | None = None
    field: str | None = None
    state: str | None = None
    state_class: StateClass | None = None
    allowed: list[str] | None = None
    allowed_with: dict[str, list[str]] | None = None
    missing: list[str] | None = None
    blocker: BlockerView | None = None
    blockers: list[BlockerView] | None = None
    known: list[str] | None = None
    nearest: str | None = None
    right: str | None = None
    version: int | None = None
    limit: int | None = None
    skipped: "dict[str, Problem] | None" = None
    retry_after: int | None = None
    protection: FlagView | None = None
