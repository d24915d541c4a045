"""Operations in responses, and their progress."""

from msgspec import Struct

from stateward.schemas.params import Json, Moment
from stateward.store.records import Status


class OperationView(Struct, frozen=True):
    """An accepted action, with its result once it has ended."""

    ns: str
    id: str
    object: str
    kind: str
    action: str
    status: Status
    actor: str
    who: str
    facts: list[str]
    args: Json
    origin: str
    via: str
    desired: str
    failing: str
    hidden: bool
    within: float
    generation: int
    parent: str | None
    tree: str | None
    attempts: int
    steps: Json
    result: Json
    error: str | None
    created: Moment
    started: Moment | None
    ended: Moment | None

    @property
    def has_ended(self) -> bool:
        """Whether it succeeded, failed or was cancelled."""
        return self.status not in (Status.WAITING, Status.RUNNING)


class OperationPage(Struct, frozen=True):
    """Operations, in one page."""

    items: list[OperationView]
    next: str | None = None


class ProgressView(Struct, frozen=True):
    """A progress report of an operation: a text, and how much is done."""

    seq: int
    at: str
    text: str
    done: int | None
    total: int | None
