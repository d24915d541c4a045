"""Sample rows for tests of the store: each is complete, and a test names only the fields that matter to it."""

from typing import Any

from msgspec.structs import replace

from stateward.store import Changes
from stateward.store.records import (
    IdempotencyRecord,
    JournalEntry,
    Key,
    Lock,
    Object,
    Operation,
    Progress,
    Signal,
    Status,
    Timer,
    WorkerRecord,
    WorkItem,
)

NS = "acme"


def key(name: str) -> Key:
    """Name something of the namespace that most tests use."""
    return Key(NS, name)


def an_object(name: str, **fields: Any) -> Object:
    """Make a new object that stands in its own queue."""
    made = Object(NS, name, "vm", "Running", 100.25, 1, 1, None, name, None, "{}", "{}", None, 99.5)
    return replace(made, **fields)


def moved(before: Object, **fields: Any) -> Object:
    """Make the object's next version."""
    return replace(before, **({"version": before.version + 1} | fields))


def an_operation(name: str, subject: str = "a", **fields: Any) -> Operation:
    """Make an accepted action."""
    made = Operation(
        ns=NS,
        id=name,
        object=subject,
        kind="vm",
        action="suspend",
        actor="user",
        who="ann",
        facts="[]",
        args="{}",
        origin="Running",
        via="Suspending",
        desired="Suspended",
        failing="Running",
        hidden=False,
        within=60.0,
        generation=1,
        previous_spec=None,
        parent=None,
        tree=None,
        status=Status.WAITING,
        attempts=0,
        steps="{}",
        result=None,
        error=None,
        created=100.5,
    )
    return replace(made, **fields)


def some_work(name: str, subject: str = "a", **fields: Any) -> WorkItem:
    """Make work that can be claimed at once, in the default lane."""
    made = WorkItem(
        ns=NS,
        op=name,
        object=subject,
        queue=subject,
        seq=0,
        lane="",
        grp="",
        priority=0,
        ready=True,
        remote=False,
        fenced=False,
        cancelled=False,
        children=0,
        not_before=0.0,
        deadline=None,
        owner=None,
        epoch=0,
        attempts=0,
        observe=False,
    )
    return replace(made, **fields)


def an_entry(subject: str = "a", **fields: Any) -> JournalEntry:
    """Make a line of the journal."""
    made = JournalEntry(NS, subject, "vm", None, 100.5, "user", "ann", "suspend", "Running", "Suspending", None)
    return replace(made, **fields)


def a_timer(name: str, due: float, **fields: Any) -> Timer:
    """Make a timer."""
    return replace(Timer(NS, name, due, 0, "a", "expire", "[]", "{}"), **fields)


def a_lock(op: str, path: str = "/", **fields: Any) -> Lock:
    """Make a lock that is held."""
    return replace(Lock(NS, "tree", path, "X", op, False, 0), **fields)


def a_key_record(name: str, **fields: Any) -> IdempotencyRecord:
    """Make the answer to an idempotency key."""
    return replace(IdempotencyRecord(NS, name, "fingerprint", "op", "a", 100.5), **fields)


def a_step(op: str, text: str, **fields: Any) -> Progress:
    """Make a line of progress."""
    return replace(Progress(NS, op, 100.5, text, None, None), **fields)


def a_signal(op: str, name: str, **fields: Any) -> Signal:
    """Make a signal to an operation."""
    return replace(Signal(NS, op, name, "null", "ann", 100.5), **fields)


def a_worker(name: str, lease: float = 60.0) -> WorkerRecord:
    """Make a worker; one with a negative lease is dead as soon as it has been seen."""
    return WorkerRecord(name, lease, 0.0, "host", 4711)


def accepted(*names: str, **fields: Any) -> Changes:
    """Make what accepts an operation on each of some new objects: `x` is of the object `on-x`."""
    subjects = [f"on-{name}" for name in names]
    return Changes(
        objects=[an_object(subject) for subject in subjects],
        operations=[an_operation(name, subject) for name, subject in zip(names, subjects, strict=True)],
        new_work=[some_work(name, subject, **fields) for name, subject in zip(names, subjects, strict=True)],
    )


def family(ns: str = NS) -> Changes:
    """Make one row of every kind, with the same ids in each namespace."""
    return Changes(
        objects=[an_object("o", ns=ns)],
        operations=[an_operation("op", "o", ns=ns), an_operation("child", "o", ns=ns, parent="op")],
        new_work=[some_work("op", "o", ns=ns, children=2), some_work("child", "o", ns=ns, ready=False)],
        journal=[an_entry("o", ns=ns, op="op")],
        progress=[a_step("op", "half", ns=ns)],
        signals=[a_signal("op", "go", ns=ns)],
        locks=[a_lock("op", ns=ns), a_lock("child", "/a", ns=ns, waiting=True)],
        timers=[a_timer("t", 1e12, ns=ns, object="o")],
        idempotency_records=[a_key_record("k", ns=ns)],
    )
