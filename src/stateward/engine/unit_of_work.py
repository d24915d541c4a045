"""The unit of work: the rows that one transaction has loaded, and the changes that it has made so far.

A batch of requests is decided one after the other in the same unit of work, so that the second one sees the changes
of the first. At the end all changes are applied as sets. A row must be loaded (and so locked) before it is read,
unless the unit of work itself has added it.
"""

# bounded by: one transaction
from collections import defaultdict
from collections.abc import Collection, Iterable

import msgspec
from msgspec.structs import replace

from stateward.engine.row_locks import grantable_operations
from stateward.engine.stored_texts import TRACEBACK, sanitize_text
from stateward.store.changes import Changes, Ended
from stateward.store.errors import WriteConflict
from stateward.store.filters import Selector
from stateward.store.port import Tx
from stateward.store.records import Claim, JournalEntry, Key, Lock, Object, Operation, Status, WorkItem, to_json

EARLY_FLUSH_OPERATIONS = 500
"""From how many new operations on a store may write them early; fewer are written faster at the end."""


class UnitOfWork:
    """Rows loaded and changed in one transaction; a `dry` unit of work never writes."""

    def __init__(self, tx: Tx, *, dry: bool = False) -> None:
        self.tx = tx
        self._dry = dry
        self.now = tx.now
        self.changes = Changes()
        self.objects: dict[Key, Object] = {}
        self.operations: dict[Key, Operation] = {}
        self.admission_counts: dict[tuple[str, ...], int] = {}
        """The counts of the admission check in this transaction."""
        self.counted: dict[tuple[str, str], object] = {}
        """What guards have counted in this transaction, by what and where: many requests ask for the same."""
        self.tracebacks: dict[Key, str] = {}
        """The tracebacks of operations that fail in this transaction."""
        self.last_steps: dict[Key, str] = {}
        """The steps of operations that end in this transaction and have called a provider since the last write."""
        self.is_bulk = False
        """Whether it accepts one action on many objects that have no composite."""
        self._bulk: str | None = None
        self._peeked: dict[Key, Object | None] = {}
        self._shared: set[Key] = set()
        self._loaded: dict[Key, int] = {}
        self._absent: set[Key] = set()  # looked for, and not found
        self._changed: dict[Key, Object] = {}
        self._queues: dict[Key, list[WorkItem]] = defaultdict(list)
        self._work: dict[Key, WorkItem] = {}
        self._unread_blockers: list[Object | WorkItem] = []  # rows that name an operation which may be in the way
        self._new_work: dict[Key, WorkItem] = {}
        self._work_changed: dict[Key, WorkItem] = {}
        self._work_gone: dict[Key, None] = {}
        self._frees_limited_lane = False  # work was removed from a lane that may have limits
        self._dequeued: dict[Key, Key] = {}  # operations whose work was removed, with their queue
        self._hooked_ends = 0  # for how many ends the hooks have run
        self._locks: dict[Key, list[Lock]] = {}
        self._trees_touched: dict[Key, None] = {}

    # --- loading -----------------------------------------------------------------------------------------------------

    async def load(self, keys: Iterable[Key], selected: Iterable[Object] = ()) -> None:
        """Load objects, the objects whose queues they use, and all work in those queues."""
        wanted = [key for key in keys if key not in self.objects]
        records = await self.tx.objects(wanted) if wanted else {}
        self._absent.update(key for key in wanted if key not in records)
        records.update((record.key, record) for record in selected)
        self._remember(records)
        homes = {key if record.queue == key.id else Key(key.ns, record.queue) for key, record in records.items()}
        if hosts := homes - self.objects.keys():
            self._remember(await self.tx.objects(hosts))
        # An object that does not exist yet may have work in a queue, or the queue itself.
        queues = {*wanted, *homes} - self._queues.keys()
        self._queues.update((queue, []) for queue in queues)
        for work in await self.tx.queues(queues) if queues else ():
            self._queues[Key(work.ns, work.queue)].append(work)
            self._work[work.key] = work
            self._unread_blockers.append(work)

    async def load_blockers(self) -> None:
        """Load the operations that hold the loaded objects, or are queued for them: a refusal names the one in the way.

        Each call reads those of the objects that were loaded since the last one: there may be 10,000 before them.
        """
        blockers, self._unread_blockers = self._unread_blockers, []
        await self.load_operations({Key(row.ns, row.op): None for row in blockers if row.op is not None})

    async def peek(self, keys: Collection[Key]) -> list[Object | None]:
        """Return objects without locking them; each is read once in a transaction."""
        wanted = [key for key in keys if key not in self.objects and key not in self._peeked]
        if wanted:
            records = await self.tx.peek(wanted)
            self._peeked.update((key, records.get(key)) for key in wanted)
        return [self.objects.get(key) or self._peeked.get(key) for key in keys]

    async def lock(self, keys: Iterable[Key]) -> None:
        """Lock keys until the end of the transaction, whether or not objects of these names exist.

        Count objects, or rely on the absence of one, only under a lock that every competing writer takes too: on
        PostgreSQL, two transactions do not see each other's new objects, and a missing row locks nothing.
        """
        wanted = set(keys)
        await self.load(wanted)
        if absent := wanted - self.objects.keys():
            await self.tx.lock_keys(absent)
            self._absent -= absent
            for key in absent:  # it may have been created while this transaction waited
                self._queues.pop(key, None)
            await self.load(absent)

    async def share(self, keys: Iterable[Key]) -> None:
        """Lock keys against transactions that `exclude` them, but not against each other; their objects are read again.

        For what many new objects refer to, such as a connection: it stays as it is until they are committed.
        """
        wanted = set(keys) - self._shared
        if wanted:
            await self.tx.share_keys(wanted)
            self._shared |= wanted
            for key in wanted:  # it may have changed while this transaction waited
                self._peeked.pop(key, None)

    async def exclude(self, keys: Collection[Key]) -> None:
        """Wait for the transactions that share keys, and keep others from sharing them until the end of this one.

        What referred to the objects of these keys is committed by then, and can be counted.
        """
        await self.tx.lock_keys(keys)

    async def select(self, chosen: Selector) -> list[Object]:
        """Return the selected objects, and lock them; requests of the same transaction count, committed or not."""
        return self._with_own(await self.tx.select(chosen), chosen)

    async def peek_selected(self, chosen: Selector) -> list[Object]:
        """Return the selected objects without locking them; requests of the same transaction count.

        For users of a key that this transaction excludes: no others appear. To wait for their rows would be a deadlock
        if one of their transactions waits for the key.
        """
        return self._with_own(await self.tx.peek_selected(chosen), chosen)

    def _with_own(self, stored: Iterable[Object], chosen: Selector) -> list[Object]:
        known = {record.key: record for record in stored} | self.objects
        return [record for record in known.values() if _is_selected(record, chosen)]

    def _remember(self, records: dict[Key, Object]) -> None:
        """Keep loaded rows; raises if one did not exist before, because something was decided on its absence.

        On PostgreSQL, a later statement sees what another transaction has created in the meantime. A creation of the
        same object would otherwise replace it, as if its row had been read first.
        """
        if not self._absent.isdisjoint(records):
            raise WriteConflict("an object was created by another transaction in the meantime")
        self.objects.update(records)
        self._loaded.update((key, record.version) for key, record in records.items())
        self._unread_blockers += records.values()

    async def load_operations(self, keys: Iterable[Key]) -> None:
        """Load operations by their keys."""
        wanted = [key for key in keys if key not in self.operations]
        if wanted:
            self.operations.update(await self.tx.operations(wanted))

    async def load_locks(self, trees: Iterable[Key]) -> None:
        """Load all locks of these trees."""
        wanted = [tree for tree in trees if tree not in self._locks]
        if wanted:
            self._locks.update((tree, []) for tree in wanted)
            for lock in await self.tx.locks(wanted):
                self._locks[Key(lock.ns, lock.tree)].append(lock)

    async def load_locks_of(self, operations: Iterable[Operation]) -> None:
        """Load all locks of the trees in which these operations may hold some."""
        trees = (Key(operation.ns, operation.tree) for operation in operations if operation.tree is not None)
        await self.load_locks(dict.fromkeys(trees))

    # --- objects -----------------------------------------------------------------------------------------------------

    def next_version(self, key: Key) -> int:
        """Return the version of a changed object: one higher per transaction, however often it changes."""
        return self._loaded.get(key, 0) + 1

    def save_object(self, key: Key, changed: Object) -> None:
        """Replace an object's row."""
        self.objects[key] = self._changed[key] = changed

    # --- work --------------------------------------------------------------------------------------------------------

    def queue(self, key: Key) -> list[WorkItem]:
        """Return the work in an object's queue, in order."""
        return self._queues[key]

    def work(self, key: Key) -> WorkItem | None:
        """Return the work of an operation, if it has not ended."""
        return self._work.get(key)

    def bulk_of(self, op: str) -> str | None:
        """Return the first operation of the bulk to which a new one belongs; None if it belongs to none."""
        if self.is_bulk and self._bulk is None:
            self._bulk = op
        return self._bulk

    def enqueue(self, queue: Key, operation: Operation, work: WorkItem) -> None:
        """Add an operation and its work, at the end of a queue."""
        key = operation.key
        self.operations[key] = operation
        self.changes.operations.append(operation)
        self._queues[queue].append(work)
        self._work[key] = self._new_work[key] = work

    def update_work(self, work: WorkItem) -> None:
        """Replace a work row."""
        key = work.key
        self._work[key] = work
        rows = self._new_work if key in self._new_work else self._work_changed
        rows[key] = work
        queue = self._queues[Key(work.ns, work.queue)]
        queue[:] = [work if other.op == work.op else other for other in queue]

    @property
    def new_work(self) -> Collection[WorkItem]:
        """The work that this unit of work has added."""
        return self._new_work.values()

    def assign_owner(self, work: WorkItem, owner: str) -> Claim:
        """Give new work an owner, as a claim does; nothing may change it afterwards."""
        key = work.key
        operation = self.operations[key]
        deadline = self.now + operation.within if work.deadline is None else work.deadline
        taken = replace(work, owner=owner, epoch=work.epoch + 1, attempts=work.attempts + 1, deadline=deadline)
        self._new_work[key] = taken
        return Claim(taken, operation, self.objects[Key(work.ns, work.object)])

    def start_prefetched(self, claim: Claim) -> None:
        """Start the deadline of a prefetched claim, if its owner still has it."""
        claimed, deadline = claim.work, self.now + claim.operation.within
        work = self._work.get(claimed.key)
        if work is None:  # its row is not loaded here: the store checks the owner
            self.changes.prefetch_started.append(replace(claimed, deadline=deadline))
        elif work.is_prefetched and (work.owner, work.epoch) == (claimed.owner, claimed.epoch):
            self.update_work(replace(work, deadline=deadline))

    def remove_work(self, work: WorkItem) -> None:
        """Remove a work row with its locks; `promote_waiters` then promotes the work behind it."""
        key = work.key
        self._frees_limited_lane |= bool(work.lane or work.grp)
        del self._work[key]
        self._work_changed.pop(key, None)
        if self._new_work.pop(key, None) is None:
            self._work_gone[key] = None
        queue = self._dequeued[key] = Key(work.ns, work.queue)
        queued = self._queues[queue]
        queued[:] = [other for other in queued if other.op != work.op]
        self.release_locks(key)

    def drain_dequeued(self) -> dict[Key, Key]:
        """Return and forget the operations whose work was removed, with the queues that they have left."""
        dequeued, self._dequeued = self._dequeued, {}
        return dequeued

    # --- locks -------------------------------------------------------------------------------------------------------

    def locks(self, tree: Key) -> list[Lock]:
        """Return a tree's locks, both held and waiting."""
        return self._locks[tree]

    def add_lock(self, lock: Lock) -> None:
        """Add a lock, held or waiting."""
        self._locks[Key(lock.ns, lock.tree)].append(lock)
        self.changes.locks.append(lock)

    def release_locks(self, op: Key) -> None:
        """Release an operation's locks on the loaded trees."""
        operation = self.operations.get(op)
        if operation is not None and operation.tree is None:
            return
        for tree, locks in self._locks.items():
            if tree.ns == op.ns and any(lock.op == op.id for lock in locks):
                locks[:] = [lock for lock in locks if lock.op != op.id]
                self.changes.locks_gone.append(op)
                self.changes.locks = [lock for lock in self.changes.locks if (lock.ns, lock.op) != op]
                self._trees_touched[tree] = None

    def grant_locks(self) -> list[Key]:
        """Grant released locks to waiting operations, in turn; returns those that now hold all of theirs."""
        ready: list[Key] = []
        for tree in self._trees_touched:
            for op in grantable_operations(self._locks[tree]):
                self._locks[tree][:] = [
                    replace(lock, waiting=False) if lock.op == op else lock for lock in self._locks[tree]
                ]
                self.changes.locks_granted += [lock for lock in self._locks[tree] if lock.op == op]
                ready.append(Key(tree.ns, op))
        self._trees_touched.clear()
        return ready

    def waits_for_locks(self, work: WorkItem) -> bool:
        """Return whether an operation waits for locks on the loaded trees."""
        waiting = (lock for locks in self._locks.values() for lock in locks if lock.waiting)
        return any(Key(lock.ns, lock.op) == work.key for lock in waiting)

    # --- the journal, and the end ------------------------------------------------------------------------------------

    def append_journal(self, entry: JournalEntry) -> None:
        """Add an entry to the journal."""
        self.changes.journal.append(entry)

    def record_end(
        self,
        operation: Operation,
        status: Status,
        work: WorkItem | None,
        result: str | None,
        error: str | None,
        started: float | None = None,
    ) -> None:
        """Record how an operation ended, and count it as ended at its parent.

        Invariant: an operation that does not succeed has an error. One that was cancelled says after how long.
        """
        attempts = work.attempts if work else operation.attempts
        text, steps = sanitize_text(error), self.last_steps.get(operation.key) if self.last_steps else None
        if status is Status.CANCELLED or (status is Status.FAILED and not text):
            text = with_age(text or f"{status} without a reason", operation, self.now)
        started = operation.started if started is None else started
        ended = Ended(operation.ns, operation.id, status, attempts, started, self.now, result, text, steps)
        self.changes.ended.append(ended)
        if operation.parent is not None:
            self.changes.children_ended.append(Key(operation.ns, operation.parent))

    def drain_ended(self) -> list[Ended]:
        """Return the ends that were recorded since the last call."""
        ended = self.changes.ended[self._hooked_ends :]
        self._hooked_ends += len(ended)
        return ended

    async def flush_early(self) -> None:
        """Let the store write new operations and objects while more requests are decided, on another processor.

        A row that was written early can still be changed, like any row that existed before.
        """
        if len(self.changes.operations) < EARLY_FLUSH_OPERATIONS or self._dry or not self.tx.flushes_early:
            return
        written, work = self.changes.operations, self._new_work
        changed = list(self._changed.values())
        if await self.tx.flush_early(Changes(objects=changed, operations=written, new_work=list(work.values()))):
            self.changes.operations, self._new_work, self._changed = [], {}, {}
            self._loaded.update((record.key, record.version) for record in changed)

    async def apply(self) -> None:
        """Write all changes, as sets."""
        changes = self.changes
        changes.objects = list(self._changed.values())
        changes.new_work = list(self._new_work.values())
        changes.work = list(self._work_changed.values())
        changes.work_gone = list(self._work_gone)
        changes.frees_capacity = self._frees_limited_lane or not (self._work_gone and self.tx.is_default_lane_unlimited)
        if self.tracebacks:  # only now: the hooks have read the results
            for place, ended in enumerate(changes.ended):
                text = self.tracebacks.get(Key(ended.ns, ended.op))
                if text is not None and ended.result is None and ended.status is Status.FAILED:
                    changes.ended[place] = replace(ended, result=to_json({TRACEBACK: text}))
        await self.tx.apply(changes)


async def promote_waiters(uow: UnitOfWork) -> None:
    """Grant released locks in turn, and make operations ready that hold all of their locks and head their queue."""
    dequeued = uow.drain_dequeued()
    await _load_trees(uow, dequeued)
    for op in dequeued:
        uow.release_locks(op)
    granted = uow.grant_locks()
    await uow.load_operations(granted)
    await uow.load({Key(key.ns, uow.operations[key].object) for key in granted if uow.work(key) is None})
    queues = dict.fromkeys(dequeued.values())
    queues.update((Key(work.ns, work.queue), None) for key in granted if (work := uow.work(key)) is not None)
    heads = [queued[0] for queue in queues if (queued := uow.queue(queue)) and not queued[0].ready]
    await _load_trees(uow, [work.key for work in heads])
    for work in heads:
        if not uow.waits_for_locks(work):
            uow.update_work(replace(work, ready=True))


async def _load_trees(uow: UnitOfWork, ops: Iterable[Key]) -> None:
    """Load the trees on which operations may hold locks, because only the locks of loaded trees are known."""
    keys = list(ops)
    await uow.load_operations(keys)
    await uow.load_locks_of(uow.operations[key] for key in keys)


def with_age(text: str, operation: Operation, now: float) -> str:
    """Return the error of an operation with the time since it was requested."""
    return f"{text} (after {now - operation.created:.1f} s)"


def _is_selected(record: Object, chosen: Selector) -> bool:
    if record.removed or record.ns != chosen.ns or chosen.kind not in (None, record.kind):
        return False
    parents = chosen.parent if isinstance(chosen.parent, tuple) else (chosen.parent,)
    if parents != (None,) and record.parent not in parents:
        return False
    if chosen.states is not None and record.state not in chosen.states:
        return False
    if chosen.name_like is not None and chosen.name_like.lower() not in record.id.lower():
        return False
    if chosen.ids is not None and record.id not in chosen.ids:
        return False
    if chosen.id_prefix is not None and not record.id.startswith(chosen.id_prefix):
        return False
    labels = msgspec.json.decode(record.labels) if chosen.labels else {}
    return all(labels.get(name) == value for name, value in chosen.labels)
