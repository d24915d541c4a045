"""Operations in responses, and their progress."""

from msgspec import Struct

from stateward.schemas.params import Json, Moment
from stateward.store.records import Status


class OperationView(Struct, frozen=True):
    """An accepted action, and how it ended once it has."""

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
        """Whether it has ended, in whatever way."""
        return self.status not in (Status.WAITING, Status.RUNNING)


class OperationPage(Struct, frozen=True):
    """Operations; there is no further page."""

    items: list[OperationView]
    next: str | None = None


class ProgressView(Struct, frozen=True):
    """A line of progress: what is being done, and how much of it is done."""

    seq: int
    at: str
    text: str
    done: int | None
    total: int | None
