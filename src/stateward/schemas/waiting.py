"""The reasons why an object waits: its operation, its queue, its lane, locks and children."""

from enum import StrEnum

from msgspec import Struct

from stateward.lifecycle import StateClass
from stateward.schemas.lanes import LaneView, LockView
from stateward.schemas.operations import OperationView
from stateward.schemas.params import Moment


class WaitReason(StrEnum):
    """What a piece of work waits for."""

    RUNNING = "running"
    ORPHANED = "its worker is dead"
    REMOTE = "another party works on it"
    GHOST = "fenced"
    QUEUE = "queue"
    LOCKS = "locks"
    CHILDREN = "children"
    HELD = "held"
    TIME = "time"
    BACK_OFF = "lane backed off"
    LANE = "lane full"
    GROUP = "group full"
    NO_WORKER = "no worker"
    SOON = "next claim"


class QueuedView(Struct, frozen=True):
    """A piece of work in a queue, and what it waits for."""

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
    """The work that stands in an object's queue, first come first; `queue` is the object whose queue it is."""

    queue: str
    items: list[QueuedView]


class ParentView(Struct, frozen=True):
    """An object further up, with the operation that holds its state."""

    id: str
    kind: str
    state: str
    state_class: StateClass | None
    operation: OperationView | None


class WhyView(Struct, frozen=True):
    """What an object waits for; `text` says it in a sentence."""

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
