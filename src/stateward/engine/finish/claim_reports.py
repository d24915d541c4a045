"""Outcomes: what the holder of a claim can say about it."""

from msgspec import Struct

from stateward.lifecycle import NO_FACTS, SUCCEEDED, WORKER
from stateward.store.records import Claim, Operation, Status


class Ending(Struct, frozen=True, gc=False):
    """How a piece of work ended: the event for the lifecycle, by whom, with what result or error."""

    event: str = SUCCEEDED
    actor: str = WORKER
    facts: frozenset[str] = NO_FACTS
    result: str | None = None
    error: str | None = None
    seen: str | None = None  # what was seen of the object
    status: Status | None = None  # of the operation, where the event does not tell it


class Retry(Struct, frozen=True, gc=False):
    """The work is to be done again, not before some seconds have passed; None: when somebody moves the object on."""

    after: float | None
    error: str | None
    observe: bool = False
    tells_waiter: bool = False  # whoever waits is to be told of the error
    tells_parent: bool = False  # and so is whoever waits for the whole


class Phase(Struct, frozen=True, gc=False):
    """A phase of the work has ended; `steps` are those done so far, this one included, by which a repeat is known."""

    event: str
    actor: str
    facts: frozenset[str]
    steps: str


class Interrupted(Struct, frozen=True, gc=False):
    """The worker has stopped working on it without a result: it was fenced, or the worker is shutting down."""


class NotStarted(Struct, frozen=True, gc=False):
    """The worker gives a spare back that it has not begun."""


class ClaimReport(Struct, frozen=True, gc=False):
    """What the holder of a claim says about it, and which spare it has begun in its place."""

    operation: Operation
    owner: str
    epoch: int
    outcome: Ending | Phase | Retry | Interrupted | NotStarted
    successor: Claim | None = None
