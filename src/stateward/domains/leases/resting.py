"""What follows when the work on a lease has ended, in the very transaction that ends it.

The journal is told what the work has done to the lease's parts. And what fell due meanwhile, and had to wait because
the lease was in transition, rings again at once, in its own order: a warning before the end that it warns of.
"""

from msgspec.structs import replace

from stateward.domains.leases.chronicle import tell
from stateward.domains.leases.clock import AHEAD, armed
from stateward.domains.leases.model import lease_of, status_of, written
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.changes import Ended
from stateward.store.records import Key, Operation


async def come_to_rest(uow: UnitOfWork, operation: Operation, ended: Ended) -> None:  # noqa: ARG001 - see `Kind.after`
    """Tell the journal of a lease's parts, and let ring what is due."""
    key = Key(operation.ns, operation.object)
    found = uow.objects.get(key)
    if found is None or found.seen == "{}":
        return
    lease = lease_of(found)
    if lease.seen.moves:
        uow.save_object(key, replace(found, seen=written(tell(uow, key, lease.seen, operation.id, operation.who))))
    if not found.removed:
        ahead = armed(lease, *AHEAD.get(status_of(found), ()))
        uow.changes.timers += [one for one in ahead if one.due <= uow.now]
