"""The rows of the store, as frozen records. Every key leads with the namespace.

Times are seconds since the epoch, by the store's own clock. `spec`, `seen`, `labels`, `args`, `result` and `steps` are
JSON text that the store keeps and never reads, except labels, which can be selected by.

The records hold texts and numbers and are no part of any cycle: gc=False spares the collector the look, which is a
quarter of the engine's time where thousands of them are alive.
"""

from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct


def to_json(value: Any) -> str:  # noqa: ANN401 - a record, or a part of one
    """Return a value as the JSON text that a row stores."""
    return msgspec.json.encode(value).decode()


class Key(NamedTuple):
    """The name of an object or an operation: its namespace and its id."""

    ns: str
    id: str


class Status(StrEnum):
    """Where an operation is."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Object(Struct, frozen=True, gc=False):
    """Something with a lifecycle. `op` is the operation that holds its public state, if one does."""

    ns: str
    id: str
    kind: str
    state: str
    since: float
    version: int
    generation: int
    op: str | None
    queue: str  # the object in whose queue its operations stand: normally itself
    parent: str | None
    spec: str
    labels: str
    error: str | None
    created: float
    removed: bool = False
    seen: str = "{}"  # what was last seen of it in the world, as opposed to what is wanted

    @property
    def key(self) -> Key:
        return Key(self.ns, self.id)


class Operation(Struct, frozen=True, gc=False):
    """An accepted action: what was asked, what undo needs, and in the end how it ended."""

    ns: str
    id: str
    object: str
    kind: str
    action: str
    actor: str
    who: str  # the person or program behind the actor
    facts: str  # JSON list
    args: str
    origin: str  # the state in which it was accepted
    via: str
    desired: str
    failing: str  # where it goes on error
    hidden: bool
    within: float
    generation: int
    previous_spec: str | None
    parent: str | None
    tree: str | None  # the tree of locks that it holds some of
    status: Status
    attempts: int
    steps: str  # JSON object: the composite's steps that are done, with their results
    result: str | None
    error: str | None
    created: float
    started: float | None = None
    ended: float | None = None

    @property
    def key(self) -> Key:
        return Key(self.ns, self.id)


class WorkItem(Struct, frozen=True, gc=False):
    """An operation that has not ended, as the claimers see it: a small row that comes and goes with the work.

    It is claimable when it is `ready` (the head of its queue, its locks granted, its children ended), not `remote`
    (another party works on it), unowned, and `not_before` has passed. A `fenced` row stands for work whose result no
    longer counts, and stays until its worker has confirmed that it stopped, or is dead. A *spare* is owned, and does
    not run yet: its owner begins it when something else of its own has left the lane.
    """

    ns: str
    op: str
    object: str
    queue: str
    seq: int  # given by the store: the order of acceptance
    lane: str
    grp: str
    priority: int
    ready: bool
    remote: bool
    fenced: bool
    cancelled: bool  # its worker is to stop, and to say what has become of it
    children: int  # how many children have not ended
    not_before: float
    deadline: float | None  # set when the work starts
    owner: str | None
    epoch: int
    attempts: int
    observe: bool  # its last worker vanished: see what is true before doing anything

    @property
    def key(self) -> Key:
        return Key(self.ns, self.op)

    @property
    def is_prefetched(self) -> bool:
        return self.owner is not None and self.deadline is None

    @property
    def is_parked(self) -> bool:
        """Whether its handler has let go of it until another party moves it on, or its deadline passes."""
        return self.owner is None and self.deadline is not None and self.not_before >= self.deadline


class JournalEntry(Struct, frozen=True, gc=False):
    """A line of the journal: who, what, from, to, why, when. `seq` is given by the store, in the order of commits."""

    ns: str
    object: str
    kind: str
    op: str | None
    at: float
    actor: str
    who: str
    event: str
    source: str | None
    target: str | None
    reason: str | None
    spec: str | None = None  # where the line changed it
    seq: int = 0


class Timer(Struct, frozen=True, gc=False):
    """Something to be done to an object at a time; of several due ones the older goes first, then the lower rank."""

    ns: str
    id: str
    due: float
    rank: int
    object: str
    event: str
    facts: str
    args: str

    @property
    def key(self) -> Key:
        return Key(self.ns, self.id)


class LaneGroup(Struct, frozen=True, gc=False):
    """Lanes that share a limit: how many of them may be active at once."""

    grp: str
    lanes: int


class Lane(Struct, frozen=True, gc=False):
    """The unit of limits: how many operations may run in it at once, and until when it is backed off."""

    lane: str
    grp: str
    capacity: int
    back_off: float  # no claims before this time
    opened: float  # since when it is active, for taking turns
    throttled: int  # how many times in a row


UNLIMITED = 2**31 - 1  # the capacity of the default lane, whose name is empty
DEFAULT_CAPACITY = 30
DEFAULT_LANES = 10


def default_lane(lane: str, grp: str) -> Lane:
    """Return the lane as it is while nobody has said anything about it."""
    return Lane(lane, grp, DEFAULT_CAPACITY if lane else UNLIMITED, 0.0, 0.0, 0)


def default_group(grp: str) -> LaneGroup:
    """Return the group as it is while nobody has said anything about it."""
    return LaneGroup(grp, DEFAULT_LANES if grp else UNLIMITED)


class WorkerRecord(Struct, frozen=True, gc=False):
    """A process that claims work; alive as long as it was seen within its lease."""

    id: str
    lease: float
    seen: float
    host: str
    pid: int

    def is_alive(self, now: float) -> bool:
        """Tell whether its lease has not passed; the statements for stuck work and dead workers compare the same."""
        return self.seen + self.lease >= now


class Lock(Struct, frozen=True, gc=False):
    """An intention lock on a path of a tree, held or waited for by an operation."""

    ns: str
    tree: str
    path: str
    mode: str
    op: str
    waiting: bool
    seq: int  # the order of asking


class IdempotencyRecord(Struct, frozen=True, gc=False):
    """What an idempotency key was answered with."""

    ns: str
    key: str  # the caller's id, a space, and the key that the caller gave
    fingerprint: str  # of the request; if it was refused, a space and the refusal
    op: str | None
    object: str
    at: float


class Progress(Struct, frozen=True, gc=False):
    """A line of progress of an operation."""

    ns: str
    op: str
    at: float
    text: str
    done: int | None
    total: int | None
    seq: int = 0


class Claim(Struct, frozen=True, gc=False):
    """A claimed piece of work with all that its handler needs."""

    work: WorkItem
    operation: Operation
    object: Object
