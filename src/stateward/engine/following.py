"""What follows from an end: a kind that asked for it is told of its operations' ends, in the same transaction.

So what an operation held besides its own object (a disk that is attached to a machine) comes to rest in the very step
in which its object does, however the operation ended: by a report, cancelled, timed out, or voided by another.
"""

from stateward.engine.desk import Desk
from stateward.engine.kinds import Kinds
from stateward.store.records import Key


async def follow(desk: Desk, kinds: Kinds) -> None:
    """Tell the kinds of the operations that have ended on this desk since the last time."""
    while kinds.have_after and (ended := desk.take_ended()):
        for one in ended:
            operation = desk.operations[Key(one.ns, one.op)]
            after = kinds[operation.kind].after
            if after is not None:
                await after(desk, operation, one)
