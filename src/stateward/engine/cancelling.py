"""Cancelling: what waits is ended at once; what runs is told to stop, and then says what has become of it."""

from msgspec.structs import replace

from stateward.engine.desk import Desk
from stateward.engine.endings import settle
from stateward.engine.following import follow
from stateward.engine.kinds import Kinds
from stateward.engine.outcomes import Ending
from stateward.engine.promotion import bring_forward
from stateward.engine.requests import Denied
from stateward.lifecycle import CANCELLED
from stateward.store.port import Tx
from stateward.store.records import Key, Operation, Status


class NoSuchOperation(Denied):
    """There is no such operation."""

    code = "not_found"

    def __init__(self, ns: str, op: str) -> None:
        super().__init__(ns, op)
        self.ns, self.op = ns, op

    def __str__(self) -> str:
        return f"there is no operation {self.op!r} in namespace {self.ns!r}"


class AlreadyEnded(Denied):
    """The operation has ended."""

    code = "ended"

    def __init__(self, op: str, status: Status) -> None:
        super().__init__(op, status)
        self.op, self.status = op, status

    def __str__(self) -> str:
        return f"operation {self.op} has {self.status} already"


class NotCancelled(Denied):
    """Operations of this kind run to their end."""

    code = "not_cancelled"

    def __init__(self, op: str, kind: str) -> None:
        super().__init__(op, kind)
        self.op, self.kind = op, kind

    def __str__(self) -> str:
        return f"operation {self.op} runs to its end: what is done to a {self.kind} cannot be cancelled"


async def cancel(tx: Tx, kinds: Kinds, key: Key, who: str) -> Operation:
    """Cancel an operation; returns it as it was found."""
    desk = Desk(tx)
    await desk.load_operations([key])
    operation = desk.operations.get(key)
    if operation is None:
        raise NoSuchOperation(*key)
    if not kinds[operation.kind].cancels:
        raise NotCancelled(operation.id, operation.kind)
    await desk.load([Key(operation.ns, operation.object)])
    if operation.tree is not None:
        await desk.load_locks([Key(operation.ns, operation.tree)])
    work = desk.work(key)
    if work is None or work.fenced:
        ended = (await tx.operations([key])).get(key, operation)  # it was read before its object was locked
        raise AlreadyEnded(ended.id, ended.status)
    if work.owner is None and not work.observe:
        found = desk.objects[Key(operation.ns, operation.object)]
        ending = Ending(CANCELLED, error=f"cancelled by {who}" if who else "cancelled")
        settle(desk, kinds[operation.kind].lifecycle, found, operation, work, ending)
    else:
        # Somebody is at it, or was and has vanished: a worker has to look before anything can be said.
        desk.change(replace(work, cancelled=True, not_before=min(work.not_before, desk.now)))
        desk.changes.fences = True
    await follow(desk, kinds)
    await bring_forward(desk)
    await desk.apply()
    return operation
