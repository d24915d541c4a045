"""The change set of a transaction: rows are collected first, then written kind by kind."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct, field

from stateward.store import records


class Ended(Struct, frozen=True, gc=False):
    """The end of an operation."""

    ns: str
    op: str
    status: records.Status
    attempts: int
    started: float | None
    ended: float
    result: str | None
    error: str | None
    steps: str | None = None  # None: as they are stored


class Changes(Struct):
    """Rows that are written together or not at all.

    `objects` replace the stored row, on the condition that its version is one less than theirs (a new object has
    version 1 and must not exist): the compare-and-set of every state change. `work` rows replace the stored row of the
    same operation, which must exist; `new_work` is added and given its number.
    """

    objects: list[records.Object] = field(default_factory=list)
    operations: list[records.Operation] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    masked_args: list[tuple[records.Key, str]] = field(
        default_factory=list
    )  # arguments of ended operations without secrets
    steps: list[tuple[records.Key, str]] = field(default_factory=list)
    renamed_states: list[records.Operation] = field(default_factory=list)  # by a state migration
    new_work: list[records.WorkItem] = field(default_factory=list)
    work: list[records.WorkItem] = field(default_factory=list)
    # prefetched items that start now: each gets its deadline, unless it has lost its owner meanwhile
    prefetch_started: list[records.WorkItem] = field(default_factory=list)
    work_gone: list[records.Key] = field(default_factory=list)
    children_ended: list[records.Key] = field(default_factory=list)  # parents, one entry for each child that ended
    journal: list[records.JournalEntry] = field(default_factory=list)
    progress: list[records.Progress] = field(default_factory=list)
    signals: list[records.Signal] = field(default_factory=list)
    signals_gone: list[records.Signal] = field(default_factory=list)  # taken by a wait; each must still be there
    locks: list[records.Lock] = field(default_factory=list)
    locks_granted: list[records.Lock] = field(default_factory=list)
    locks_gone: list[records.Key] = field(default_factory=list)  # all locks of these operations are released
    timers: list[records.Timer] = field(default_factory=list)  # added, or replaced where the key exists
    timers_gone: list[records.Key] = field(default_factory=list)
    idempotency_records: list[records.IdempotencyRecord] = field(default_factory=list)
    lanes: list[records.Lane] = field(default_factory=list)
    lanes_gone: list[str] = field(default_factory=list)  # unless they have work
    groups: list[records.LaneGroup] = field(default_factory=list)
    frees_capacity: bool = True  # removed work may have freed a lane slot that others wait for
    fences_running_work: bool = False  # a worker must stop an operation


class ObjectWrites(NamedTuple):
    """The objects of a change set, by the statement that writes them."""

    created: list[records.Object]
    transitioned: list[records.Object]
    replaced: list[records.Object]


def sort_objects(objects: Iterable[records.Object], known: Mapping[records.Key, records.Object]) -> ObjectWrites:
    """Sort the objects of a change set; `known` are those that the transaction has read, as they are stored."""
    writes = ObjectWrites([], [], [])
    for changed in objects:
        if changed.version == 1:
            writes.created.append(changed)
        elif _is_plain_transition(known.get(changed.key), changed):
            writes.transitioned.append(changed)
        else:
            writes.replaced.append(changed)
    return writes


def _is_plain_transition(old: records.Object | None, new: records.Object) -> bool:
    """Return whether only the columns of a transition differ.

    Then a large spec is neither sent nor stored again, and the indexes of the other columns stay untouched.
    """
    return (
        old is not None
        and old.version == new.version - 1
        and old.spec == new.spec
        and old.labels == new.labels
        and old.queue == new.queue
        and old.parent == new.parent
        and old.kind == new.kind
        and old.created == new.created
        and old.removed == new.removed
        and old.seen == new.seen
    )
