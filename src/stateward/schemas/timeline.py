"""The timeline of an operation in responses: when it waited, worked, was tried again, and what it said."""

from enum import StrEnum

from msgspec import Struct

from stateward.schemas.operations import OperationView
from stateward.schemas.params import Moment


class SpanKind(StrEnum):
    """The sort of a span: time in which nobody works on it, or somebody does, or one moment."""

    WAIT = "wait"
    ATTEMPT = "attempt"
    STEP = "step"
    CALL = "call"
    UNDO = "undo"
    PART = "part"
    EVENT = "event"
    OUTPUT = "output"


class SpanStatus(StrEnum):
    """How a span has ended, or that it has not."""

    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"  # nobody recorded it


class SpanView(Struct, frozen=True):
    """A stretch of time of an operation, or a moment of it: then it began and ended at the same time.

    Steps of operations that earlier versions have carried out have no times. A call is one of a provider, or several of
    one attempt that differ only in their times: then it began with the first one, and ended with the last one.
    """

    kind: SpanKind
    name: str
    status: SpanStatus
    began: Moment | None = None
    ended: Moment | None = None
    text: str = ""
    object: str | None = None  # of a part
    op: str | None = None  # of a part
    provider: str | None = None  # of a call: where it went
    target: str | None = None  # of a call
    count: int = 1  # how many calls this is
    slowest_s: float | None = None  # of a call: how long the slowest took


class TimelineView(Struct, frozen=True):
    """An operation and its spans, in the order in which they began; `now` is the time of the store's clock."""

    operation: OperationView
    spans: list[SpanView]
    now: Moment
