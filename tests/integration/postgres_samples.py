"""Transactions on sample rows, for tests on PostgreSQL."""

from typing import Any

from stateward.store.changes import Changes, Ended
from stateward.store.port import Tx
from stateward.store.records import Status, WorkItem
from tests.contract.samples import an_entry, an_object, an_operation, key, some_work


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
        journal=[an_entry(work.object, event="succeeded", op=work.op)],
    )


def creates(*names: str) -> Any:
    """Make a program that creates objects."""

    async def program(tx: Tx) -> None:
        await tx.apply(Changes(objects=[an_object(name) for name in names]))

    return program


def accepts(name: str, subject: str, **fields: Any) -> Any:
    """Make a program that appends an operation, as the head of its queue if it is empty."""

    async def program(tx: Tx) -> None:
        await tx.objects([key(subject)])
        queue = await tx.queues([key(subject)])
        await tx.apply(accepted(name, subject, ready=not queue, **fields))

    return program
