"""The end hook of leases: it runs in the transaction that ends an operation, however the operation ended.

Timers that fell due while the lease was in transition had to wait; the hook sets them again, so that they fire
immediately and in their order. An update that succeeded gets its new hosts here, and one that did not gives them back.
"""

from msgspec.structs import replace

from stateward.domains.leases.ended_leases import EndedLeases
from stateward.domains.leases.lifecycle import LeaseState
from stateward.domains.leases.model import read_lease, status_of
from stateward.domains.leases.part_history import append_part_history
from stateward.domains.leases.resources import ResourcePlugins
from stateward.domains.leases.timers import PENDING_EVENTS, pending_timers
from stateward.domains.leases.update import end_update
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.changes import Ended
from stateward.store.records import Key, Operation, Status, to_json


class LeaseEndHook:
    """The hook at the end of every operation on a lease."""

    def __init__(self, resources: ResourcePlugins, ended: EndedLeases) -> None:
        self._resources, self._ended = resources, ended

    async def __call__(self, uow: UnitOfWork, operation: Operation, ended: Ended) -> None:
        """End an update, journal the moves of the lease's parts, and set its timers."""
        key = Key(operation.ns, operation.object)
        record = uow.objects.get(key)
        if record is None or record.seen == "{}":
            return
        lease = read_lease(record)
        seen = lease.seen
        if operation.action == "update" and record.state != LeaseState.DELETING:  # a delete releases all hosts itself
            seen = await end_update(uow, self._resources, lease, operation, succeeded=ended.status is Status.SUCCEEDED)
        seen = append_part_history(uow, key, seen, operation.id, operation.who)
        if seen != lease.seen:
            uow.save_object(key, replace(record, seen=to_json(seen)))
        if not record.removed:
            ahead = pending_timers(replace(lease, seen=seen), *PENDING_EVENTS.get(status_of(record), ()))
            is_error = status_of(record) is LeaseState.ERROR  # an operation before the start may have ended in it
            uow.changes.timers += [timer for timer in ahead if is_error or timer.due <= uow.now]
            uow.changes.timers += self._ended.timers(replace(lease, object=uow.objects[key]))
