"""Operations in responses: their progress, and the results of accepted or planned requests."""

from msgspec import Struct

from stateward.schemas.objects import ObjectView
from stateward.schemas.params import Json, Moment
from stateward.schemas.problems import Problem
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
    traceback: str | None = None  # of the handler, for administrators
    group: str | None = None  # the operation behind which lists have it: that of the composite, or the first of a bulk
    parts: dict[Status, int] | None = None  # in lists: how many operations are behind it, by status

    @property
    def has_ended(self) -> bool:
        """Whether it succeeded, failed or was cancelled."""
        return self.status not in (Status.WAITING, Status.RUNNING)


class OperationPage(Struct, frozen=True):
    """Operations, newest first; `next` continues the page, null at the end."""

    items: list[OperationView]
    next: str | None = None


class ProgressView(Struct, frozen=True):
    """A progress report of an operation: a text, and how much is done."""

    seq: int
    at: str
    text: str
    done: int | None
    total: int | None


class AcceptedView(Struct, frozen=True):
    """An accepted request: the object as it is now, and its operation; null if the state was changed at once."""

    object: ObjectView
    operation: OperationView | None


class GroupView(Struct, frozen=True):
    """The result of a group action: the composite, the members that began, and the skipped ones with their problems."""

    whole: AcceptedView | None
    begun: list[AcceptedView]
    skipped: dict[str, Problem]
    group: str | None = None  # the operation that stands for all of them in lists of operations


class Prospect(Struct, frozen=True):
    """The outcome that a request would have: the state of the object after it, or the problem."""

    would: str
    state: str | None = None
    problem: Problem | None = None
