"""The store's port: what the engine asks of a database. Two adapters, one contract suite.

A change is a *program*: an async function over a transaction that reads what it needs (rows it reads are locked against
others until the end), decides, and applies one set of changes. Each adapter runs a program as one durable transaction.
A program must await nothing but the transaction's own methods, because an adapter may run it on another thread without
an event loop; and it may run again from the start when the transaction could not be committed, so it has no effects of
its own.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeVar

from msgspec import Struct

from stateward.store.changes import Changes
from stateward.store.filters import JournalFilter, Page, Selector
from stateward.store.records import (
    Claim,
    IdempotencyRecord,
    JournalEntry,
    Key,
    Lane,
    LaneGroup,
    Lock,
    Object,
    Operation,
    Progress,
    Timer,
    WorkerRecord,
    WorkItem,
)
from stateward.store.retention import Retention
from stateward.store.topics import Topic

T = TypeVar("T")


NO_LANES: Mapping[str, int] = MappingProxyType({})
"""Nothing of any lane."""


class LaneLoad(Struct, frozen=True, gc=False):
    """A lane that has work: what it may run, what it runs, and whether something in it waits to be claimed."""

    lane: Lane
    running: int
    waiting: bool


class StateCounts(Struct, frozen=True):
    """How many objects there are by (namespace, kind, state), and after which line of the journal that is so."""

    seq: int
    counts: dict[tuple[str, str, str], int]


class StuckWork(Struct, frozen=True, gc=False):
    """Work whose deadline has passed, or whose worker is dead: the one definition of stuck.

    The healer settles such work by itself within moments. A live worker's overdue work counts too: that worker is to
    end it, and a reader of this list wants to know if it does not.
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
    """The work of a lane: how much runs, how much waits, and when the oldest of it was accepted."""

    lane: str
    running: int
    waiting: int
    oldest: float


class Tx(Protocol):
    """A transaction that may write."""

    @property
    def now(self) -> float:
        """The store's clock, at the transaction's beginning."""

    @property
    def is_default_lane_unlimited(self) -> bool:
        """Whether the default lane has neither limits nor a pause, so that nobody has to count what runs in it."""

    async def objects(self, keys: Collection[Key]) -> dict[Key, Object]:
        """Return the objects there are, removed ones included, locked in the order of their keys."""

    async def peek(self, keys: Collection[Key]) -> dict[Key, Object]:
        """Return the objects there are, removed ones included, without locking them: for what many only read."""

    async def select(self, selector: Selector) -> list[Object]:
        """Return the chosen objects in the order of their keys, locked."""

    async def operations(self, keys: Collection[Key]) -> dict[Key, Operation]:
        """Return the operations there are."""

    async def work(self, keys: Collection[Key]) -> dict[Key, WorkItem]:
        """Return the work there is for these operations."""

    async def queues(self, keys: Collection[Key]) -> list[WorkItem]:
        """Return all work that stands in the queues of these objects, in the order of acceptance."""

    async def locks(self, trees: Collection[Key]) -> list[Lock]:
        """Return the locks of these trees, held and waited for, in the order of asking; the trees are locked."""

    async def idempotency_records(self, keys: Collection[Key]) -> dict[Key, IdempotencyRecord]:
        """Return what these idempotency keys were answered with; the keys are locked."""

    async def count_objects(self, ns: str, kind: str, most: int) -> int:
        """Count the objects of a kind in a namespace, up to so many."""

    async def count_open_operations(self, ns: str, most: int) -> int:
        """Count the operations of a namespace that have not ended, up to so many."""

    async def due_timers(self, limit: int) -> list[Timer]:
        """Return timers that are due, in order, locked; those locked by others are passed over."""

    async def lane_loads(self) -> tuple[list[LaneGroup], list[LaneLoad]]:
        """Return the groups and lanes that have claimable or running work, locked against other claimers."""

    async def claim(self, rooms: Mapping[str, int], owner: str, spares: Mapping[str, int] = NO_LANES) -> list[Claim]:
        """Claim up to so many operations of each lane: highest priority first, then first come.

        Sets the owner, raises the epoch and the attempts, and sets the deadline if none was set. What follows in a lane
        is taken as its spares, which get no deadline; what has one already is none, and neither is what stands behind.
        """

    async def overdue(self, limit: int) -> list[WorkItem]:
        """Return work whose deadline has passed and that no live worker owns."""

    async def heartbeat(self, worker: WorkerRecord) -> None:
        """Record a worker's sign of life, at the store's time."""

    async def remove_worker(self, worker: str) -> None:
        """Forget a worker that has stopped."""

    async def dead_workers(self) -> list[WorkerRecord]:
        """Return the workers whose lease has passed, locked; those locked by others are passed over."""

    async def owned(self, worker: str) -> list[WorkItem]:
        """Return the work that a worker owns."""

    async def flush_early(self, changes: Changes) -> bool:
        """Begin to write what is final, while the program goes on; tells whether it will be written.

        It is part of the transaction, and whatever is asked next finds it written. A store that would gain nothing by
        it says no; so does one that is still at what it began before.
        """

    async def apply(self, changes: Changes) -> None:
        """Write a set of changes; a version that does not match raises `Conflict` and nothing is written."""


class Reader(Protocol):
    """Reads beside the writer, never waiting for it."""

    async def object(self, key: Key) -> Object | None:
        """Return one object, removed ones included."""

    async def objects(self, keys: Collection[Key]) -> dict[Key, Object]:
        """Return the objects there are, removed ones included."""

    async def list_objects(self, selector: Selector, page: Page) -> list[Object]:
        """Return a page of the chosen objects, in the order of their ids."""

    async def count_states(self, selector: Selector) -> dict[tuple[str, str], int]:
        """Return how many of the chosen objects there are by (kind, state)."""

    async def count_by_namespace(self, namespaces: Sequence[str], kind: str | None = None) -> StateCounts:
        """Count the objects of some namespaces, and of one kind or of all, at one moment of the journal."""

    async def operation(self, key: Key) -> Operation | None:
        """Return one operation; one that is being worked on is shown as running."""

    async def operations(self, keys: Collection[Key]) -> dict[Key, Operation]:
        """Return the operations there are, as they are stored."""

    async def operations_of(self, key: Key, limit: int) -> list[Operation]:
        """Return an object's operations, newest first."""

    async def children_of(self, key: Key) -> list[Operation]:
        """Return the operations that have this one as their parent."""

    async def queue_of(self, key: Key) -> list[WorkItem]:
        """Return the work that stands in an object's queue."""

    async def journal(self, after: int, limit: int, only: JournalFilter) -> list[JournalEntry]:
        """Return journal lines that follow a number, in order."""

    async def last_journal_seq(self) -> int:
        """Return the number of the newest line that readers may rely on."""

    async def progress_of(self, key: Key, after: int) -> list[Progress]:
        """Return an operation's progress lines that follow a number."""

    async def lanes(self) -> tuple[list[LaneGroup], list[LaneLoad]]:
        """Return all groups and lanes with their loads."""

    async def work_by_lane(self, namespaces: Collection[str] | None = None) -> list[LaneWork]:
        """Return what each lane has to do, for all namespaces or for some; lanes without work are left out."""

    async def stuck(self, limit: int, namespaces: Collection[str] | None = None) -> list[StuckWork]:
        """Return the work that is stuck, of all namespaces or of some; the longest first."""

    async def namespaces(self) -> list[str]:
        """Return the namespaces that have, or ever had, an object, in order."""

    async def workers(self) -> list[WorkerRecord]:
        """Return the workers that are known."""

    async def timers(self, ns: str | None, limit: int) -> list[Timer]:
        """Return pending timers in the order in which they fall due."""

    async def locks_of(self, tree: Key) -> list[Lock]:
        """Return the locks of a tree."""

    async def next_due_time(self) -> float | None:
        """Return the earliest time at which a timer, a delayed operation or a deadline falls due."""

    async def time(self) -> float:
        """Return the store's clock."""


TxFunction = Callable[[Tx], Awaitable[T]]


class Store(Protocol):
    """A database that holds everything."""

    @property
    def serializes_writes(self) -> bool:
        """Whether its transactions run one after the other, so that a longer one holds up nobody who could go on."""

    @property
    def reader(self) -> Reader:
        """Reads beside the writer."""

    @property
    def retention(self) -> Retention:
        """Finds and drops what ended long ago."""

    async def open(self) -> None:
        """Connect; migrate if embedded, else refuse a schema that is not this version's."""

    async def close(self) -> None:
        """Let go of everything, finishing what was begun."""

    async def transact(self, program: TxFunction[T]) -> T:
        """Run a program as one durable transaction, again where it could not be committed for a passing reason."""

    def subscribe(self, listener: Callable[[Topic], None]) -> Callable[[], None]:
        """Call back on the event loop after commits, anybody's; returns how to stop. Calls may be lumped together."""

    async def is_sole_user(self) -> bool:
        """Tell whether this process is certainly the only one that uses the database."""
