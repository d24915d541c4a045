"""Sample rows for tests on PostgreSQL."""

from typing import Any

from msgspec.structs import replace

from stateward.store.changes import Changes, Ended
from stateward.store.port import Tx
from stateward.store.records import JournalEntry, Key, Object, Operation, Status, Timer, WorkItem

NS = "n"


def an_object(name: str, **fields: Any) -> Object:
    """Make a new object that is its own queue."""
    made = Object(NS, name, "vm", "Stopped", 1.0, 1, 1, None, name, None, "{}", "{}", None, 1.0)
    return replace(made, **fields)


def an_operation(name: str, subject: str, **fields: Any) -> Operation:
    """Make an accepted action on an object."""
    made = Operation(
        ns=NS,
        id=name,
        object=subject,
        kind="vm",
        action="start",
        actor="user",
        who="ann",
        facts="[]",
        args="{}",
        origin="Stopped",
        via="Starting",
        desired="Running",
        failing="Error",
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
        created=1.0,
    )
    return replace(made, **fields)


def some_work(name: str, subject: str, **fields: Any) -> WorkItem:
    """Make work that can be claimed at once, in the default lane."""
    made = WorkItem(
        NS, name, subject, subject, 0, "", "", 0, True, False, False, False, 0, 0.0, None, None, 0, 0, False
    )
    return replace(made, **fields)


def an_entry(subject: str, event: str = "start", **fields: Any) -> JournalEntry:
    """Make a line of the journal."""
    return replace(
        JournalEntry(NS, subject, "vm", None, 1.0, "user", "ann", event, "Stopped", "Starting", None), **fields
    )


def a_timer(name: str, due: float, subject: str = "a", **fields: Any) -> Timer:
    """Make a timer."""
    return replace(Timer(NS, name, due, 0, subject, "expire", "[]", "{}"), **fields)


def accepted(name: str, subject: str, **fields: Any) -> Changes:
    """Make what appends an operation to an object's queue."""
    return Changes(
        operations=[an_operation(name, subject)],
        new_work=[some_work(name, subject, **fields)],
        journal=[an_entry(subject, op=name)],
    )


def finished(work: WorkItem, now: float) -> Changes:
    """Make what ends an operation."""
    return Changes(
        ended=[Ended(work.ns, work.op, Status.SUCCEEDED, work.attempts, now, now, None, None)],
        work_gone=[work.key],
        journal=[an_entry(work.object, "succeeded", op=work.op)],
    )


def creates(*names: str) -> Any:
    """Make a program that creates objects."""

    async def program(tx: Tx) -> None:
        await tx.apply(Changes(objects=[an_object(name) for name in names]))

    return program


def accepts(name: str, subject: str, **fields: Any) -> Any:
    """Make a program that appends an operation, as the head of its queue if it is empty."""

    async def program(tx: Tx) -> None:
        key = Key(NS, subject)
        await tx.objects([key])
        queue = await tx.queues([key])
        await tx.apply(accepted(name, subject, ready=not queue, **fields))

    return program
