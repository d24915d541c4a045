"""Reports of a claim's owner: how an attempt ended, or that it did not."""

from msgspec import Struct

from stateward.lifecycle import NO_FACTS, SUCCEEDED, WORKER
from stateward.store.records import Claim, Operation, Status


class Ending(Struct, frozen=True, gc=False):
    """The end of an operation: the event for the lifecycle, its actor, and the result or the error."""

    event: str = SUCCEEDED
    actor: str = WORKER
    facts: frozenset[str] = NO_FACTS
    result: str | None = None
    error: str | None = None
    seen: str | None = None  # the observed state of the object, as JSON
    status: Status | None = None  # of the operation, if it does not follow from the event


class Retry(Struct, frozen=True, gc=False):
    """Another attempt is needed, after so many seconds; None: when another party moves the object on."""

    after: float | None
    error: str | None
    observe: bool = False
    tells_waiter: bool = False  # the error is journaled, for those who wait
    tells_parent: bool = False  # and at the parent operation as well


class Phase(Struct, frozen=True, gc=False):
    """The end of a phase; `steps` are all finished steps, this one included, by which a repeated report is known."""

    event: str
    actor: str
    facts: frozenset[str]
    steps: str


class Interrupted(Struct, frozen=True, gc=False):
    """The attempt was stopped without a result: the operation was fenced, or the worker shuts down."""


class NotStarted(Struct, frozen=True, gc=False):
    """The worker returns a prefetched claim that it has not started."""


class ClaimReport(Struct, frozen=True, gc=False):
    """A report about a claim, and the prefetched claim that was started in its slot."""

    operation: Operation
    owner: str
    epoch: int
    outcome: Ending | Phase | Retry | Interrupted | NotStarted
    successor: Claim | None = None
