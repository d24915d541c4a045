"""Invariants that hold after every commit, checked on the tables themselves.

The inspector keeps what it saw at the commit before, so that it can also judge the steps between two commits: who was
given what, who was taken from, what has ended.
"""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct, field

from stateward.lifecycle import CLOCK, GONE, TRANSITIONAL, Lifecycle, State
from stateward.locks.modes import Mode, compatible, intention
from stateward.store.records import DEFAULT_LANES, Lock, Object, Status, WorkerRecord, default_lane
from stateward.testing.faulty_store import CommitRecord
from stateward.testing.virtual_loop import LoopParty


class WorkRow(Struct, frozen=True):
    """What matters of a work row."""

    op: str
    object: str
    queue: str
    seq: int
    lane: str
    grp: str
    ready: bool
    fenced: bool
    remote: bool
    children: int
    owner: str | None
    epoch: int
    deadline: float | None

    @property
    def runs(self) -> bool:
        """Whether somebody is at it: a spare has an owner, and waits."""
        return self.owner is not None and self.deadline is not None


class Tables(Struct):
    """The tables as they were after a commit."""

    work: dict[str, WorkRow] = field(default_factory=dict)
    objects: dict[str, Object] = field(default_factory=dict)
    workers: dict[str, WorkerRecord] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)


class Violation(Exception):
    """Something is not as it must be."""


class Inspector:
    """Looks at the tables after each commit, and says what is wrong with them."""

    def __init__(
        self, connection: sqlite3.Connection, clock: Callable[[], float], lifecycles: Iterable[Lifecycle]
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._initial: dict[str, State] = {}
        self._edges: set[tuple[str, str, str, str, str]] = set()
        self._moving: set[tuple[str, str]] = set()
        self._absent: set[tuple[str, str]] = set()
        self.learn(lifecycles)
        self.timed: frozenset[str] = frozenset()  # the events of timers; each timer fires once
        self.seen = Tables()
        self.former_limits: dict[str, tuple[int, float]] = {}  # of lanes, with the times at which they were changed
        self.former: dict[str, Object] = {}  # objects as they were before their last change
        self.replayed: dict[str, str] = {}  # states, from the journal alone
        self.specs: dict[str, str] = {}
        self.last_line = 0
        self.done: set[str] = set()  # the requests that took effect, by the id of the operation that was to be
        self.fired: set[str] = set()  # timers that did their one thing, or were refused
        self.ended: dict[str, str] = {}  # operations, with their status
        self.wishes: dict[str, set[tuple[str, str]]] = {}  # what locks an operation was accepted with
        self.children: dict[str, list[str]] = defaultdict(list)
        self.taken: set[tuple[str, int]] = set()  # claims (operation, epoch) that others took from their owner
        self.bereft: set[tuple[str, str]] = set()  # processes, with the lanes in which something was taken from them
        self.on_taken_over: Callable[[str, WorkRow], None] = lambda *_: None
        self.on_given_up: Callable[[WorkRow], None] = lambda _: None
        self.compares_specs = True  # with the journal; end hooks of a domain may change a spec without an entry
        self.commits = 0

    def learn(self, lifecycles: Iterable[Lifecycle]) -> None:
        """Learn the tables of further kinds."""
        for table in lifecycles:
            kind = table.kind
            self._initial[kind] = table.initial
            for move in table.every_move():
                self._edges.add((kind, move.source.word, move.event, str(move.actor), move.target.word))
            self._absent |= {(kind, state.word) for state in (*table.states, GONE) if state.is_absent}
            self._moving |= {(kind, state.word) for state in table.states if state.state_class is TRANSITIONAL}

    def ask(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Ask the database itself."""
        return self._connection.execute(sql, values).fetchall()

    def look(self, party: LoopParty, record: CommitRecord) -> None:
        """Check everything; raises at the first thing that is wrong."""
        self.commits += 1
        before, self.seen = self.seen, self._read(record)
        for changes in record.changes:
            self.done.update(line.who for line in changes.journal if line.target is not None)  # users sign with its id
            for operation in changes.operations:
                self.done.add(operation.id)
                if operation.parent is not None:
                    self.children[operation.parent].append(operation.id)
            for lock in changes.locks:
                self.wishes.setdefault(lock.op, set()).add((lock.path, lock.mode))
        for problem in self._problems(before, party, record):
            raise Violation(problem)

    def _problems(self, before: Tables, party: LoopParty, record: CommitRecord) -> Iterator[str]:
        yield from self._endings(record)
        yield from self._journal()
        yield from self._objects()
        yield from self._work()
        yield from self._queues()
        yield from self._limits(before, record)
        yield from self._owners(before, party, record)
        yield from self._locks()

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read(self, record: CommitRecord) -> Tables:
        ask = self._connection.execute
        work = ask(
            "SELECT op, object, queue, seq, lane, grp, ready, fenced, remote, children, owner, epoch, deadline"
            " FROM work ORDER BY seq"
        )
        seen = Tables({row[0]: WorkRow(*row) for row in work}, self.seen.objects)
        if any(changes.objects for changes in record.changes):
            seen.objects = {row[1]: Object(*row) for row in ask("SELECT * FROM objects ORDER BY id")}
            for name, was in self.seen.objects.items():
                if seen.objects[name].version != was.version:
                    self.former[name] = was
        seen.workers = {row[0]: WorkerRecord(*row) for row in ask("SELECT * FROM workers")}
        seen.limits = dict(ask("SELECT lane, capacity FROM lanes").fetchall())
        seen.groups = dict(ask("SELECT grp, lanes FROM lane_groups").fetchall())
        return seen

    # --- the journal -------------------------------------------------------------------------------------------------

    def _journal(self) -> Iterator[str]:
        lines = self.ask(
            "SELECT seq, object, kind, actor, who, event, source, target, spec, reason FROM journal"
            " WHERE seq > ? ORDER BY seq",
            self.last_line,
        )
        for seq, name, kind, actor, who, event, source, target, spec, reason in lines:
            if seq <= self.last_line:
                yield f"journal line {seq} comes after {self.last_line}"
            self.last_line = seq
            if reason is not None and "has no phase" in reason:
                yield f"line {seq}: {name} {event}: {reason}"
            if actor == CLOCK and event.removeprefix("rejected: ") in self.timed:
                yield from self._fires(who)
            if target is None:
                continue
            stands = self.replayed.get(name, GONE.word)
            if source != stands and not (stands == GONE and source == self._initial[kind]):
                yield f"line {seq}: {name} goes from {source} to {target}, but is {stands}"
            if (kind, source, event, actor, target) not in self._edges:
                yield f"line {seq}: {kind} {name} {source} -> {event!r} by {actor} -> {target} is no edge of the table"
            self.replayed[name] = target
            if spec is not None or (kind, stands) in self._absent:
                self.specs[name] = spec or "{}"

    def _fires(self, timer: str) -> Iterator[str]:
        if timer in self.fired:
            yield f"timer {timer} has fired before"
        self.fired.add(timer)

    # --- objects and their work --------------------------------------------------------------------------------------

    def _objects(self) -> Iterator[str]:
        for name, record in self.seen.objects.items():
            if self.replayed.get(name) != record.state:
                yield f"{name} is {record.state}, and the journal says {self.replayed.get(name)}"
            if self.compares_specs and self.specs.get(name) != record.spec:
                yield f"{name} has spec {record.spec}, and the journal says {self.specs.get(name)}"
            moving = (record.kind, record.state) in self._moving
            work = self.seen.work.get(record.op) if record.op is not None else None
            if moving and (work is None or work.fenced):
                yield f"{name} is {record.state}, and nothing works on it (operation {record.op})"
            if not moving and record.op is not None:
                yield f"{name} rests in {record.state}, and is held by {record.op}"
            if bool(record.removed) != ((record.kind, record.state) in self._absent):
                yield f"{name} is {record.state}, and removed is {record.removed}"

    def _work(self) -> Iterator[str]:
        held = {record.op for record in self.seen.objects.values()}
        for row in self.seen.work.values():
            if row.fenced and row.owner is None:
                yield f"{row.op} is a ghost without a worker"
            if row.fenced != (row.op in self.ended):
                yield f"{row.op} has work (fenced: {row.fenced}), and has ended: {self.ended.get(row.op)}"
            if row.op not in held and not row.fenced and not self._hidden(row.op):
                yield f"{row.op} works on {row.object}, which is held by {self.seen.objects[row.object].op}"

    def _hidden(self, op: str) -> bool:
        row = self._connection.execute("SELECT hidden FROM operations WHERE id = ?", (op,)).fetchone()
        return bool(row[0])

    def _queues(self) -> Iterator[str]:
        lines: dict[str, list[WorkRow]] = defaultdict(list)
        for row in self.seen.work.values():
            lines[row.queue].append(row)
        for queue, line in lines.items():
            if sum(row.owner is not None for row in line) > 1:
                yield f"several at work in the queue of {queue}: {[row.op for row in line if row.owner]}"
            for row in line[1:]:
                if row.ready or row.owner is not None:
                    yield f"{row.op} is ready or at work in the queue of {queue} before {line[0].op}"

    # --- limits and leases -------------------------------------------------------------------------------------------

    def _limits(self, before: Tables, record: CommitRecord) -> Iterator[str]:
        given = [row for row in self.seen.work.values() if row.owner and self._was(before, row) != row.epoch]
        for row in given:
            late = [child for child in self.children.get(row.op, ()) if child not in self.ended]
            if row.children or late:
                yield f"{row.op} is claimed, and its children {late} have not ended"
        running, ran = (Counter(row.lane for row in seen.work.values() if row.runs) for seen in (self.seen, before))
        for lane, most in self.seen.limits.items():
            former = before.limits.get(lane, default_lane(lane, "").capacity)
            if former != most:
                self.former_limits[lane] = former, self._clock()
        for lane in running:
            most = self.seen.limits.get(lane, default_lane(lane, "").capacity)
            former, changed = self.former_limits.get(lane, (most, 0.0))
            if record.begun <= changed:  # what is being accepted while a limit is set counts as accepted before
                most = max(most, former)
            if running[lane] > max(most, ran[lane]):
                yield f"{running[lane]} run in lane {lane}, and {most} may"
        if any(changes.lanes and not record.claims for changes in record.changes):
            return
        for grp in {row.grp: None for row in given if row.grp}:
            yield from self._group(before, grp, [row for row in given if row.runs])

    def _group(self, before: Tables, grp: str, given: list[WorkRow]) -> Iterator[str]:
        most = self.seen.groups.get(grp, DEFAULT_LANES)
        active = {row.lane for row in self.seen.work.values() if row.runs and row.grp == grp}
        fresh = {row.lane for row in given if row.grp == grp}
        were = {row.lane for row in before.work.values() if row.runs and row.grp == grp}
        if (fresh - were and len(active) > most) or len(fresh) > most:
            yield f"lanes {sorted(active)} of group {grp} are active, {sorted(fresh - were)} newly, and {most} may be"

    def _was(self, before: Tables, row: WorkRow) -> int | None:
        former = before.work.get(row.op)
        return former.epoch if former is not None and former.owner is not None else None

    def _owners(self, before: Tables, party: LoopParty, record: CommitRecord) -> Iterator[str]:
        now = self._clock()
        for op, former in before.work.items():
            row = self.seen.work.get(op)
            if former.owner is None or (row is not None and (row.owner, row.epoch) == (former.owner, former.epoch)):
                continue
            if former.owner.split("/")[0] == party.name:
                self.on_given_up(former)
                continue
            lease = before.workers.get(former.owner)
            # A sign of life beside the transaction comes too late: the epoch of the claim fences its worker.
            if lease is not None and lease.seen + lease.lease >= now and lease.seen < record.begun:
                yield f"{party.name} takes {op} from {former.owner}, who was seen {now - lease.seen:.3f} s ago"
            self.taken.add((op, former.epoch))
            self.bereft.add((former.owner.split("/")[0], former.lane))
            self.on_taken_over(former.owner.split("/")[0], former)

    # --- ends and locks ----------------------------------------------------------------------------------------------

    def _endings(self, record: CommitRecord) -> Iterator[str]:
        for changes in record.changes:
            for end in changes.ended:
                if end.op in self.ended:
                    yield f"{end.op} has ended twice: {self.ended[end.op]}, then {end.status}"
                self.ended[end.op] = end.status
                if end.status is not Status.SUCCEEDED and not end.error:
                    yield f"{end.op} has ended as {end.status} without an error"
                if end.status is Status.FAILED:
                    yield from self._undone(end.op)

    def _undone(self, op: str) -> Iterator[str]:
        ((name, hidden, before),) = self.ask("SELECT object, hidden, previous_spec FROM operations WHERE id = ?", op)
        record = self.seen.objects[name]
        if before is not None and not hidden and record.op is None and record.spec != before:
            yield f"{op} has failed, and {name} has spec {record.spec} instead of {before}"

    def _locks(self) -> Iterator[str]:
        locks = [Lock(*row) for row in self._connection.execute("SELECT * FROM locks ORDER BY seq")]
        has: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for lock in locks:
            has[lock.op].add((lock.path, lock.mode))
            row = self.seen.work.get(lock.op)
            if row is None:
                yield f"{lock.op} has no work, and a lock on {lock.path}"
            elif lock.waiting and (row.ready or row.owner):
                yield f"{lock.op} is ready, and waits for {lock.mode} on {lock.path}"
        for op in self.seen.work:
            if has.get(op, set()) != self.wishes.get(op, set()):
                yield f"{op} asked for locks {self.wishes.get(op)}, and has {has.get(op)}"
        held = [lock for lock in locks if not lock.waiting]
        for number, held_lock in enumerate(held):
            for other in held[:number]:
                if held_lock.op != other.op and held_lock.tree == other.tree and _clash(held_lock, other):
                    yield f"{held_lock} and {other} are held at once"


def _clash(lock: Lock, other: Lock) -> bool:
    mine, theirs = _spelled_out(lock), _spelled_out(other)
    return any(not compatible(mine[node], theirs[node]) for node in mine.keys() & theirs.keys())


def _spelled_out(lock: Lock) -> dict[tuple[str, ...], Mode]:
    """Return every node that a lock touches, with the mode in which it does."""
    path = tuple(part for part in lock.path.split("/") if part)
    above = {path[:depth]: intention(Mode(lock.mode)) for depth in range(len(path))}
    return {**above, path: Mode(lock.mode)}
