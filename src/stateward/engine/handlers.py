"""Handlers: a domain's functions that carry out actions, and observers of their outcomes.

An operation may run again after a crash or a lost answer. So a handler must be idempotent by the operation's id, and if
it can observe the outcome of an earlier attempt (`observe`), the worker asks it to do so first.
"""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from stateward.engine.finish.claim_reports import Ending
from stateward.engine.job import Job, Run
from stateward.engine.thread_handlers import BlockingJob, as_handler


class ObservedOutcome(StrEnum):
    """The observed outcome of an operation.

    NOT_DONE is a proof: nothing was done, and no call in flight can still do it. An operation that is cancelled with
    this proof returns to its previous state. An action that leaves no trace is REPEATABLE.
    """

    DONE = "done"
    NOT_DONE = "not done"
    REPEATABLE = "cannot be seen"  # it cannot be observed, but may be repeated without harm
    UNKNOWN = "unknown"  # a later observation may tell


PlainRun = Callable[[BlockingJob], Any]
"""A handler that is a plain function, and is called in a thread."""

Observe = Callable[[Job], Awaitable[ObservedOutcome | Ending]]
"""An observer: returns the outcome, or an Ending with the observed state; it may raise why it cannot observe."""


class Handler(Struct, frozen=True):
    """How an action is carried out: the function, the observer of its outcome, and the number of attempts.

    Functions that are not async are called in a thread, with a `BlockingJob`.
    `cancelled` is the observer of cancelled operations, if that is another one. An operation that has it never ends as
    cancelled without an observation.
    """

    run: Run
    observe: Observe | None = None
    attempts: int | None = None  # None: until the deadline
    cancelled: Observe | None = None
    args: type[Struct] | None = None  # the type of the action's arguments; any JSON without one

    def __post_init__(self) -> None:
        for name in ("run", "observe", "cancelled"):
            function = getattr(self, name)
            if function is not None:
                force_setattr(self, name, as_handler(function))
