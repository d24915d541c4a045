"""The rows of the store, as frozen records. Every key begins with the namespace.

Times are Unix times of the store's own clock. `spec`, `seen`, `labels`, `args`, `result` and `steps` are JSON text. The
store does not read them, except labels, which selectors match, and the version at the beginning of a spec.

Records hold texts and numbers and are never part of a reference cycle. `gc=False` takes them out of the garbage
collector's scans, which took a quarter of the engine's time with thousands of live records.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct


def to_json(value: Any) -> str:  # noqa: ANN401 - a record, or a part of one
    """Return a value as the JSON text that a row stores."""
    return msgspec.json.encode(value).decode()


PROTECTED_LABEL = "(protected)"
"""The label of an object that is protected against deletion; its value is the reason."""


def shown_labels(labels: dict[str, str]) -> dict[str, str]:
    """Return labels as their users see them: without the flag of the protection."""
    return {name: value for name, value in labels.items() if name != PROTECTED_LABEL}


class Key(NamedTuple):
    """The key of an object or an operation: its namespace and its id.

    The `key` of a record, which each action asks for a dozen times, is made by `tuple.__new__`: the constructor of
    a named tuple is a Python function around it, and takes twice as long.
    """

    ns: str
    id: str


class Status(StrEnum):
    """The status of an operation."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


STATUSES = {status.value: status for status in Status}
"""The statuses by their stored text; a look-up is faster than a call of `Status`."""


class Object(Struct, frozen=True, gc=False):
    """An object with a lifecycle. `op` is the operation that changes its state now, if any."""

    ns: str
    id: str
    kind: str
    state: str
    since: float
    version: int
    generation: int
    op: str | None
    queue: str  # the object whose queue its operations wait in: normally itself
    parent: str | None
    spec: str
    labels: str
    error: str | None
    created: float
    removed: bool = False
    seen: str = "{}"  # the last observation of it, while `spec` is what is wanted

    @property
    def key(self) -> Key:
        """Its namespace and its id."""
        return tuple.__new__(Key, (self.ns, self.id))


class Operation(Struct, frozen=True, gc=False):
    """An accepted action: its request, the data that undo needs, and its result."""

    ns: str
    id: str
    object: str
    kind: str
    action: str
    actor: str
    who: str  # the person or client behind the actor
    facts: str  # JSON list
    args: str
    origin: str  # the state in which it was accepted
    via: str
    desired: str
    failing: str  # the state after a failure
    hidden: bool
    within: float
    generation: int
    previous_spec: str | None
    parent: str | None
    tree: str | None  # the tree in which it holds locks
    status: Status
    attempts: int
    steps: str  # JSON object: completed steps with their results
    result: str | None
    error: str | None
    created: float
    started: float | None = None
    ended: float | None = None
    bulk: str | None = None  # the first operation of an action on many objects, if it is one of them

    @property
    def key(self) -> Key:
        """Its namespace and its id."""
        return tuple.__new__(Key, (self.ns, self.id))


class WorkItem(Struct, frozen=True, gc=False):
    """The scheduling row of an operation that has not ended: small, and deleted at the operation's end.

    It is claimable if it is `ready` (head of its queue, locks granted, children ended), not `remote` (executed by an
    external party), unowned, and `not_before` has passed. A `fenced` item belongs to an operation whose result no
    longer counts; it stays until its worker confirms the stop or is dead. A *prefetched* item has an owner and no
    deadline: its owner starts it when another of its operations leaves the lane.
    """

    ns: str
    op: str
    object: str
    queue: str
    seq: int  # assigned by the store, in the order of acceptance
    lane: str
    grp: str
    priority: int
    ready: bool
    remote: bool
    fenced: bool
    cancelled: bool  # its worker must stop it and report the outcome
    children: int  # the number of children that have not ended
    not_before: float
    deadline: float | None  # set when the work starts
    owner: str | None
    epoch: int
    attempts: int
    observe: bool  # its last worker was lost: the next one must observe before it acts

    @property
    def key(self) -> Key:
        return tuple.__new__(Key, (self.ns, self.op))

    @property
    def is_prefetched(self) -> bool:
        return self.owner is not None and self.deadline is None

    @property
    def is_parked(self) -> bool:
        """Whether its handler returned, and it waits for an external report or its deadline."""
        return self.owner is None and self.deadline is not None and self.not_before >= self.deadline


class JournalEntry(Struct, frozen=True, gc=False):
    """An entry of the journal: who, what, from, to, why, when. The store assigns `seq` in the order of commits."""

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
    spec: str | None = None  # if the entry changed it
    seq: int = 0


class Timer(Struct, frozen=True, gc=False):
    """An event for an object at a time. Due timers fire in the order of `due`, then `rank`."""

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
        """Its namespace and its id."""
        return tuple.__new__(Key, (self.ns, self.id))


class LaneGroup(Struct, frozen=True, gc=False):
    """Lanes with a common limit: at most `lanes` of them are active at once."""

    grp: str
    lanes: int


class Lane(Struct, frozen=True, gc=False):
    """The unit of concurrency limits: at most `capacity` operations run in it, none before `back_off`."""

    lane: str
    grp: str
    capacity: int
    back_off: float  # no claims before this time
    opened: float  # the start of its time slice
    throttled: int  # consecutive throttled calls


STATE_FIELDS = ("origin", "via", "desired", "failing")
"""The fields of an operation that hold states."""

OVERDUE_PRIORITY = 2**31 - 1
"""The priority of overdue work, which goes first in its lane."""

UNLIMITED = 2**31 - 1  # the capacity of the default lane, whose name is empty
DEFAULT_CAPACITY = 30
DEFAULT_LANES = 10


def default_lane(lane: str, grp: str) -> Lane:
    """Return the lane with default limits."""
    return Lane(lane, grp, DEFAULT_CAPACITY if lane else UNLIMITED, 0.0, 0.0, 0)


def default_group(grp: str) -> LaneGroup:
    """Return the group with default limits."""
    return LaneGroup(grp, DEFAULT_LANES if grp else UNLIMITED)


class WorkerRecord(Struct, frozen=True, gc=False):
    """A worker process; it is alive until its lease expires, `lease` seconds after it was `seen`."""

    id: str
    lease: float
    seen: float
    host: str
    pid: int
    kinds: str = ""  # JSON list of what it knows, as in a `KindFilter`; empty: it does not say, and may know all

    def knows(self, kind: str, words: Collection[str] = ()) -> bool:
        """Return whether the worker does work of a kind, with these words of a `KindFilter`."""
        known = set(msgspec.json.decode(self.kinds or "[]", type=list[str]))
        return not known or (kind in known and known.isdisjoint(words))

    def is_alive(self, now: float) -> bool:
        """Return whether the lease has not expired; the SQL for stuck work and dead workers compares likewise."""
        return self.seen + self.lease >= now


class Lock(Struct, frozen=True, gc=False):
    """An intention lock on a path of a tree, held or awaited by an operation."""

    ns: str
    tree: str
    path: str
    mode: str
    op: str
    waiting: bool
    seq: int  # the order of requests


class IdempotencyRecord(Struct, frozen=True, gc=False):
    """The recorded result of a request with an idempotency key."""

    ns: str
    key: str  # the caller's id, a space, and the key that the caller gave
    fingerprint: str  # of the request; followed by a space and the refusal if it was refused
    op: str | None
    object: str
    at: float


class Progress(Struct, frozen=True, gc=False):
    """A progress entry of an operation."""

    ns: str
    op: str
    at: float
    text: str
    done: int | None
    total: int | None
    seq: int = 0


class Signal(Struct, frozen=True, gc=False):
    """A message to an operation, which is kept until a wait of its handler takes it."""

    ns: str
    op: str
    name: str
    payload: str  # JSON
    who: str
    at: float
    seq: int = 0

    @property
    def key(self) -> Key:
        return tuple.__new__(Key, (self.ns, self.op))


class Claim(Struct, frozen=True, gc=False):
    """A claimed work item with its operation and object."""

    work: WorkItem
    operation: Operation
    object: Object


RECORDS: dict[str, type[Struct]] = {
    record.__name__: record
    for record in (
        *(IdempotencyRecord, JournalEntry, Lane, LaneGroup, Lock, Object, Operation),
        *(Progress, Signal, Timer, WorkerRecord, WorkItem),
    )
}
"""The records that are the rows of a table, by the names that templates of SQL use."""
