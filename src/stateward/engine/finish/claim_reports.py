"""Reports of a claim's owner: how an attempt ended, or that it did not."""

from msgspec import Struct

from stateward.lifecycle import NO_FACTS, SUCCEEDED, WORKER
from stateward.store.records import Claim, Operation, Status


class Ending(Struct, frozen=True, gc=False):
    """The end of an operation: the event for the lifecycle, its actor, and the result or the error.

    A handler whose end depends on the object, such as on a cancellation that its guard has noted there, gives the
    `version` that it has read. If the object has changed since, the operation is attempted again instead.
    """

    event: str = SUCCEEDED
    actor: str = WORKER
    facts: frozenset[str] = NO_FACTS
    result: str | None = None
    error: str | None = None
    seen: str | None = None  # the observed state of the object, as JSON
    status: Status | None = None  # of the operation, if it does not follow from the event
    traceback: str | None = None  # of the handler's error, for administrators
    version: int | None = None  # of the object, if the end depends on it


class Requeue(Struct, frozen=True, gc=False):
    """Another attempt is needed, after so many seconds; None: when another party moves the object on.

    A step with a retry policy counts its failures itself: `steps` has the count, and the claim is no attempt.
    """

    after: float | None
    error: str | None
    observe: bool = False
    tells_waiter: bool = False  # the error is journaled, for those who wait
    tells_parent: bool = False  # and at the parent operation as well
    is_undoing: bool = False  # the operation undoes its steps: a cancellation changes nothing any more
    failures: int = 0  # of the step
    steps: str | None = None
    attempts: str | None = None  # all steps, with the record of this attempt


class Pause(Struct, frozen=True, gc=False):
    """The handler sleeps, or waits for a signal: the claim is given back, and is no attempt.

    `until` is when the operation can be claimed again; None: at its deadline. `steps` are all steps, and tell what it
    waits for.
    """

    until: float | None
    steps: str
    signal: str | None = None


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
    """A report about a claim, and the prefetched claim that was started in its slot.

    `steps` are all steps, if the attempt has called a provider: the calls are recorded among them.
    """

    operation: Operation
    owner: str
    epoch: int
    outcome: Ending | Phase | Requeue | Pause | Interrupted | NotStarted
    successor: Claim | None = None
    steps: str | None = None
