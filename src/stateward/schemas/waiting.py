"""The reasons why an object waits: its operation, its queue, its lane, locks and children."""

from enum import StrEnum

from msgspec import Struct

from stateward.schemas.deployment import LaneView, LockView
from stateward.schemas.operations import OperationView
from stateward.schemas.params import Moment
from stateward.state_class import StateClass


class WaitReason(StrEnum):
    """The reason why a work item waits."""

    RUNNING = "running"
    ORPHANED = "its worker is dead"
    REMOTE = "another party works on it"
    GHOST = "fenced"
    QUEUE = "queue"
    LOCKS = "locks"
    CHILDREN = "children"
    HELD = "held"
    SIGNAL = "signal"
    TIME = "time"
    BACK_OFF = "lane backed off"
    LANE = "lane full"
    GROUP = "group full"
    NO_WORKER = "no worker"
    SOON = "next claim"


class QueuedView(Struct, frozen=True):
    """A work item in a queue, and the reason why it waits."""

    position: int
    op: str
    object: str
    action: str
    who: str
    lane: str
    grp: str
    priority: int
    attempts: int
    owner: str | None
    not_before: Moment | None
    deadline: Moment | None
    reason: WaitReason
    text: str


class QueueView(Struct, frozen=True):
    """The work items of a queue in their order; `queue` is the object whose queue it is."""

    queue: str
    items: list[QueuedView]


class ParentView(Struct, frozen=True):
    """An ancestor of an object, with the operation that holds its state."""

    id: str
    kind: str
    state: str
    state_class: StateClass | None
    operation: OperationView | None


class WhyView(Struct, frozen=True):
    """The reasons why an object waits; `text` is a sentence.

    `error` says what is wrong with the object, by its own record or by those of its parts. `allowed` are the actions
    that the caller may request of it now.
    """

    id: str
    kind: str
    state: str
    state_class: StateClass | None
    text: str
    reason: WaitReason | None
    operation: OperationView | None
    queue: list[QueuedView]
    lane: LaneView | None
    locks: list[LockView]
    children: list[OperationView]
    parents: list[ParentView]
    error: str | None = None
    allowed: list[str] = []
