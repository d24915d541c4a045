"""What follows from an end: a kind that asked for it is told of its operations' ends, in the same transaction.

So what an operation held besides its own object (a disk that is attached to a machine) comes to rest in the very step
in which its object does, however the operation ended: by a report, cancelled, timed out, or voided by another.
"""

from stateward.engine.kinds import Kinds
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.records import Key


async def run_end_hooks(uow: UnitOfWork, kinds: Kinds) -> None:
    """Tell the kinds of the operations that have ended on this unit of work since the last time."""
    while kinds.any_end_hook and (ended := uow.drain_ended()):
        for one in ended:
            operation = uow.operations[Key(one.ns, one.op)]
            after = kinds[operation.kind].on_end
            if after is not None:
                await after(uow, operation, one)
