"""The port of the store: the interface between the engine and a database, with two adapters and one contract suite.

All changes go through a *transaction function*, an async function of a transaction. It reads rows, which stay locked
until the end, decides, and applies one set of changes. The adapter runs it as one durable transaction.

A transaction function awaits nothing but methods of the transaction, because an adapter may run it on a thread without
an event loop. It has no side effects, because the adapter runs it again if the commit failed for a passing reason.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeVar

from msgspec import Struct

from stateward.store import filters, records
from stateward.store.changes import Changes
from stateward.store.retention import Retention
from stateward.store.topics import Topic

T = TypeVar("T")


NO_LANES: Mapping[str, int] = MappingProxyType({})
"""No slots in any lane."""

KindFilter = Sequence[str] | None
"""The kinds whose work a process knows how to do; None: no condition, which costs nothing.

With a filter, work and timers of other kinds are passed over, as if they were not there. So are those with a state, an
action or a spec version that the process does not know, of which the filter has entries such as `app.vm state paused`,
`app.vm action pause` and `app.vm version 2`.
"""


class LaneLoad(Struct, frozen=True, gc=False):
    """A lane with its limits, the number of its running operations, and whether claimable work waits in it."""

    lane: records.Lane
    running: int
    waiting: bool


class StateCounts(Struct, frozen=True):
    """The number of objects by (namespace, kind, state), as of a journal entry."""

    seq: int
    counts: dict[tuple[str, str, str], int]


class StuckWork(Struct, frozen=True, gc=False):
    """Work whose deadline has passed, or whose worker is dead: the one definition of stuck.

    The healer resolves such work within moments. Overdue work of a live worker counts too: that worker must end it, and
    an operator wants to see work that it does not end.
    """

    ns: str
    object: str
    kind: str
    state: str  # of the object
    op: str
    action: str
    owner: str | None
    attempts: int
    deadline: float | None
    since: float  # when the deadline or the worker's lease passed, whichever was first
    orphaned: bool  # its worker is dead


class LaneWork(Struct, frozen=True, gc=False):
    """The work of a lane: the numbers of running and waiting operations, and the acceptance time of the oldest."""

    lane: str
    running: int
    waiting: int
    oldest: float


class SearchHits(Struct, frozen=True):
    """Candidates of a search, the first of each sort; the caller checks that they have the text."""

    objects: list[records.Object]  # with the text in the id, first those whose id begins with it
    failed: list[records.Object]  # with the text in the error
    labels: list[str]  # different sets of labels with the text, as JSON
    operations: list[records.Operation]  # whose id begins with the text


class Tx(Protocol):
    """A transaction that may write."""

    @property
    def now(self) -> float:
        """The time of the store's clock when the transaction began."""

    @property
    def is_default_lane_unlimited(self) -> bool:
        """Whether the default lane has no limits and is not backed off; a claimer then need not count running work."""

    @property
    def flushes_early(self) -> bool:
        """Whether early writes run beside the transaction function; otherwise nothing is gained by `flush_early`."""

    async def objects(self, keys: Collection[records.Key]) -> dict[records.Key, records.Object]:
        """Return the objects that exist, removed ones included, and lock them in key order."""

    async def peek(self, keys: Collection[records.Key]) -> dict[records.Key, records.Object]:
        """Return the objects that exist, removed ones included, without locking them: for rows that many only read."""

    async def lock_keys(self, keys: Collection[records.Key]) -> None:
        """Lock keys until the end of the transaction, whether or not objects of these names exist."""

    async def share_keys(self, keys: Collection[records.Key]) -> None:
        """Lock keys until the end of the transaction against `lock_keys`; others can share them at the same time."""

    async def namespaces(self) -> list[str]:
        """Return the namespaces that have or had an object, in order."""

    async def select(self, selector: filters.Selector) -> list[records.Object]:
        """Return the selected objects in key order, and lock them."""

    async def peek_selected(self, selector: filters.Selector) -> list[records.Object]:
        """Return the selected objects in key order, without locking them."""

    async def count_selected(self, selector: filters.Selector) -> int:
        """Count the selected objects without locking them."""

    async def operations(self, keys: Collection[records.Key]) -> dict[records.Key, records.Operation]:
        """Return the operations that exist."""

    async def work(self, keys: Collection[records.Key]) -> dict[records.Key, records.WorkItem]:
        """Return the work items of these operations."""

    async def queues(self, keys: Collection[records.Key]) -> list[records.WorkItem]:
        """Return the work items in the queues of these objects, in the order of acceptance."""

    async def locks(self, trees: Collection[records.Key]) -> list[records.Lock]:
        """Return the held and waiting locks of these trees in the order of their requests, and lock the trees."""

    async def signals(self, keys: Collection[records.Key]) -> list[records.Signal]:
        """Return the signals to these operations that no wait has taken, in the order of their arrival."""

    async def idempotency_records(self, keys: Collection[records.Key]) -> dict[records.Key, records.IdempotencyRecord]:
        """Return the records of these idempotency keys, and lock the keys."""

    async def count_objects(self, ns: str, kind: str, limit: int) -> int:
        """Count the objects of a kind in a namespace; stops at the limit."""

    async def count_open_operations(self, ns: str, limit: int) -> int:
        """Count the operations of a namespace that have not ended; stops at the limit."""

    async def due_timers(self, limit: int, kinds: KindFilter = None) -> list[records.Timer]:
        """Return due timers in order, and lock them; timers that another transaction locks are skipped."""

    async def lane_loads(self, kinds: KindFilter = None) -> tuple[list[records.LaneGroup], list[LaneLoad]]:
        """Return the groups and lanes with claimable or running work, and lock them against other claimers."""

    async def claim(
        self,
        slots: Mapping[str, int],
        owner: str,
        prefetch: Mapping[str, int] = NO_LANES,
        kinds: KindFilter = None,
    ) -> list[records.Claim]:
        """Claim at most `slots[lane]` operations of each lane: highest priority first, then in the order of acceptance.

        Sets the owner, increments epoch and attempts, and sets the deadline if there is none. The next `prefetch[lane]`
        operations of the lane are prefetched, without a deadline. Prefetching stops at the first operation that already
        has a deadline.
        """

    async def overdue(self, limit: int, kinds: KindFilter = None, spared: str = "") -> list[records.WorkItem]:
        """Return work items past their deadline that no live worker owns, nor the worker `spared`.

        Work that goes first in its lane already (`OVERDUE_PRIORITY`) is left out, because it only waits for a worker.
        """

    async def heartbeat(self, worker: records.WorkerRecord) -> None:
        """Renew the lease of a worker, at the time of the store's clock."""

    async def remove_worker(self, worker: str) -> None:
        """Delete the record of a worker that has stopped."""

    async def workers(self) -> list[records.WorkerRecord]:
        """Return all workers."""

    async def dead_workers(self) -> list[records.WorkerRecord]:
        """Return the workers with an expired lease, and lock them; workers locked by others are skipped.

        Workers without a record that own work are dead too: a claim can be committed after its worker was removed.
        """

    async def owned(self, worker: str) -> list[records.WorkItem]:
        """Return the work items that a worker owns."""

    async def flush_early(self, changes: Changes) -> bool:
        """Start to write final changes while the transaction function goes on; returns whether the store took them.

        They are part of the transaction, and its next read sees them. A store returns False if it would gain nothing,
        or if an earlier write of this kind still runs.
        """

    async def apply(self, changes: Changes) -> None:
        """Write a set of changes; a version that does not match raises `WriteConflict` and nothing is written."""


class Reader(Protocol):
    """Reads of committed data, which never wait for a writer."""

    async def object(self, key: records.Key) -> records.Object | None:
        """Return an object, even a removed one."""

    async def objects(self, keys: Collection[records.Key]) -> dict[records.Key, records.Object]:
        """Return the objects that exist, removed ones included."""

    async def list_objects(self, selector: filters.Selector, page: filters.Page) -> list[records.Object]:
        """Return a page of the selected objects, ordered by id."""

    async def count_groups(
        self, selector: filters.Selector, by: tuple[filters.GroupField, ...], limit: int | None = None
    ) -> dict[tuple[str | None, ...], int]:
        """Count the selected objects by the values of some fields, None for a missing one; `limit` groups at most."""

    async def list_sorted(
        self, selector: filters.Selector, page: filters.SortedPage
    ) -> list[tuple[str | float, records.Object]]:
        """Return a page of the selected objects in some order, with their sort values; it reads all selected rows."""

    async def search(self, namespaces: Sequence[str], text: filters.SearchText, limit: int) -> SearchHits:
        """Return the first candidates of each sort for a searched text; it reads narrow indexes, or one table, once.

        A text that very many objects have is looked for in the first of them only, apart from the beginnings of ids.
        """

    async def count_states(self, selector: filters.Selector) -> dict[tuple[str, str], int]:
        """Count the selected objects by (kind, state)."""

    async def count_by_namespace(self, namespaces: Sequence[str], kind: str | None = None) -> StateCounts:
        """Count the objects of some namespaces, of one kind or of all, as of one journal entry."""

    async def operation(self, key: records.Key) -> records.Operation | None:
        """Return an operation; while a worker owns it, its status is `running`, with the time when that began."""

    async def operations(self, keys: Collection[records.Key]) -> dict[records.Key, records.Operation]:
        """Return the operations that exist, with their stored status."""

    async def operations_of(self, key: records.Key, limit: int) -> list[records.Operation]:
        """Return an object's operations, newest first."""

    async def list_operations(
        self, only: filters.OperationFilter, before: filters.OperationCursor | None, limit: int
    ) -> list[records.Operation]:
        """Return a page of the operations that a filter matches, newest first."""

    async def operation_reach(
        self, ns: str, before: filters.OperationCursor | None, rows: int
    ) -> filters.OperationCursor | None:
        """Return the `rows`-th entry of the list of operations behind a place, newest first; None if there is none."""

    async def count_parts(self, ns: str, entries: Collection[str]) -> dict[str, dict[records.Status, int]]:
        """Count the parts of each of these operations by their status: children, or the operations of a bulk."""

    async def children_of(self, key: records.Key) -> list[records.Operation]:
        """Return the child operations."""

    async def queue_of(self, key: records.Key) -> list[records.WorkItem]:
        """Return the work items in an object's queue."""

    async def journal(self, after: int, limit: int, only: filters.JournalFilter) -> list[records.JournalEntry]:
        """Return the journal entries after a sequence number, in order."""

    async def newest_entries(
        self, before: int | None, limit: int, only: filters.JournalFilter
    ) -> list[records.JournalEntry]:
        """Return the last journal entries before a number (None: of all), newest first."""

    async def journal_reach(self, after: int, rows: int, ns: str | None) -> int | None:
        """Return the number of the `rows`-th entry after a number, of a namespace or of all; None if there is none."""

    async def count_transitions(self, after: int, since: float, step_s: float) -> dict[tuple[str, int], int]:
        """Count the journaled changes of state after an entry, by namespace and by the number of the step from `since`.

        Entries before `since` are not counted.
        """

    async def last_journal_seq(self) -> int:
        """Return the sequence number of the newest entry; no smaller one can appear later."""

    async def progress_of(self, key: records.Key, after: int) -> list[records.Progress]:
        """Return an operation's progress entries after a sequence number."""

    async def lanes(self) -> tuple[list[records.LaneGroup], list[LaneLoad]]:
        """Return all groups and lanes with their loads."""

    async def work_by_lane(self, namespaces: Collection[str] | None = None) -> list[LaneWork]:
        """Return the work of each lane that has some, of all namespaces or of the given ones."""

    async def stuck(self, limit: int, namespaces: Collection[str] | None = None) -> list[StuckWork]:
        """Return the stuck work of all namespaces or of the given ones, the longest stuck first."""

    async def namespaces(self) -> list[str]:
        """Return the namespaces that have or had an object, in order."""

    async def label_keys(self, namespaces: Collection[str]) -> list[str]:
        """Return the keys of all labels in some namespaces, in their order. Reads every object: for errors only."""

    async def workers(self) -> list[records.WorkerRecord]:
        """Return the registered workers."""

    async def timers(self, ns: str | None, limit: int) -> list[records.Timer]:
        """Return pending timers in the order of their due times."""

    async def locks_of(self, tree: records.Key) -> list[records.Lock]:
        """Return the locks of a tree."""

    async def next_due_time(self, kinds: KindFilter = None) -> float | None:
        """Return the earliest due time of a timer, a delayed operation or a deadline (see `Tx.overdue`)."""

    async def time(self) -> float:
        """Return the time of the store's clock."""


TxFunction = Callable[[Tx], Awaitable[T]]


class Store(Protocol):
    """A database with all objects, operations, timers, locks and the journal."""

    @property
    def serializes_writes(self) -> bool:
        """Whether transactions run one after the other, so that batching them delays no other transaction."""

    @property
    def reader(self) -> Reader:
        """The reader of committed data."""

    @property
    def retention(self) -> Retention:
        """The queries and deletions of the retention policy."""

    async def open(self) -> None:
        """Connect. An embedded database is migrated; any other with a different schema version is refused."""

    async def close(self) -> None:
        """Finish transactions that have started, and close all connections."""

    async def transact(self, function: TxFunction[T]) -> T:
        """Run a transaction function as one durable transaction; runs it again after a passing commit failure."""

    def subscribe(self, listener: Callable[[Topic], None]) -> Callable[[], None]:
        """Call the listener on the event loop after commits of any process; returns the function that unsubscribes.

        One call may stand for several commits.
        """

    async def is_sole_user(self) -> bool:
        """Return True only if no other process can be using the database."""
