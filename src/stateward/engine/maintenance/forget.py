"""Forgetting: an administrator removes the record of an object whose kind nobody knows any more.

Without its plug-in there is no table that says how an object could be deleted, and no handler that would do it. So its
record is removed as it is, with its timers; its operations end as cancelled, and those that wait for them go on. What
the object stands for, such as a machine, is not touched. The journal says who forgot it.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from stateward.engine.errors import Denied, NotFound
from stateward.engine.kind_types import mask_all
from stateward.engine.kinds import Kinds
from stateward.engine.protection import require_no_flag
from stateward.engine.transitions import fence_work, journal
from stateward.engine.unit_of_work import UnitOfWork, promote_waiters
from stateward.errors import BadInput
from stateward.lifecycle import ADMIN, GONE
from stateward.store.port import Store, Tx
from stateward.store.records import Key, Object, Status

FORGOTTEN_EVENT = "forgotten"
"""The journal event of an object whose record was removed without its lifecycle."""

MAX_TIMERS = 1_000_000
REASON = "its record was removed, because no process knows its kind"


class KindIsKnown(Denied, code="kind_known"):
    """The object can be deleted by its lifecycle, so its record is not simply removed."""

    kind: str
    by: str
    text = "{by} knows the kind {kind}: delete the object by an action of its lifecycle"


async def forget(store: Store, kinds: Kinds, key: Key, kind: str, who: str) -> Object:
    """Remove the record of an object; `kind` confirms which kind the caller takes it for."""
    if kind in kinds:
        raise KindIsKnown(kind, "this server")
    stored = await store.reader.timers(key.ns, MAX_TIMERS)  # one that is set meanwhile finds no object, and ends so
    timers = [timer.key for timer in stored if timer.object == key.id]
    return await store.transact(lambda tx: _forget(tx, key, kind, who, timers))


async def _forget(tx: Tx, key: Key, kind: str, who: str, timers: Sequence[Key]) -> Object:
    uow = UnitOfWork(tx)
    await uow.load([key])
    for worker in await tx.workers():  # read last: one that has started meanwhile counts
        if worker.is_alive(tx.now) and worker.knows(kind):
            raise KindIsKnown(kind, f"worker {worker.id}")
    record = uow.objects.get(key)
    if record is None or record.removed:
        raise NotFound(*key)
    if record.kind != kind:
        raise BadInput("kind", kind, f"the kind of {key.id!r}, {record.kind}, as a confirmation")
    await require_no_flag(uow, "forget", record)
    open_work = [work for work in uow.queue(Key(key.ns, record.queue)) if work.object == key.id and not work.fenced]
    await uow.load_operations([work.key for work in open_work])
    for work in open_work:
        operation = uow.operations[work.key]
        uow.record_end(operation, Status.CANCELLED, work, None, REASON)
        uow.changes.masked_args.append((work.key, mask_all(operation.args)))  # nobody knows which of them are secret
        fence_work(uow, work)
    journal(uow, record, None, ADMIN, who, FORGOTTEN_EVENT, record.state, GONE.word, REASON)
    gone = replace(
        record,
        state=GONE.word,
        since=uow.now,
        version=uow.next_version(key),
        op=None,
        spec="{}",
        seen="{}",
        error=None,
        removed=True,
    )
    uow.save_object(key, gone)
    uow.changes.timers_gone += timers
    await promote_waiters(uow)
    await uow.apply()
    return gone
