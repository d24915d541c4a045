"""The hosts' books, for the work on leases: changes of many are written together, and only by who is entitled to.

Work may be taken from a worker that knows nothing of it yet. So every change names the claim on whose behalf it is
made, and that is looked at under the lease's lock: what a fenced or dead worker wants to write is not written.
"""

from collections.abc import Iterable, Sequence
from random import Random

from msgspec import Struct

from stateward.domains.leases.ledger import Change, GiveBack, HandOver, Held, write
from stateward.domains.leases.model import Holding, host_key
from stateward.engine import Job, Temporary
from stateward.engine.batching import Batcher
from stateward.engine.handlers import Fenced
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import StatewardError
from stateward.store.port import Store, Tx
from stateward.store.records import Key

SOON = 0.5
"""How many seconds pass before a host is asked for again that another still holds."""


class Entry(Struct, frozen=True):
    """Changes that belong together, and the claim on whose behalf they are made."""

    lease: Key
    op: Key
    epoch: int
    changes: tuple[tuple[str, Change], ...]


class HostBooks:
    """Writes on hosts, for jobs."""

    def __init__(self, store: Store, chance: Random) -> None:
        self._store = store
        self._batch: Batcher[Entry, None] = Batcher(self._write, chance)

    async def change(self, job: Job, changes: Iterable[tuple[str, Change]]) -> None:
        """Write changes, all of them or none."""
        entry = Entry(Key(job.ns, job.object), job.key, job.epoch, tuple(changes))
        if entry.changes:
            await self._batch.submit(entry)

    async def hold(self, job: Job, reservation: str, hosts: Iterable[str], *, whole: bool) -> None:
        """Hand hosts over to a reservation; Temporary if another still holds one of them."""
        holding = HandOver(Holding(job.object, reservation, whole))
        try:
            await self.change(job, [(name, holding) for name in hosts])
        except Held as held:
            raise Temporary(str(held), after=SOON) from held

    async def free(self, job: Job, reservation: str, hosts: Iterable[str]) -> None:
        """Take hosts back from a reservation."""
        await self.change(job, [(name, GiveBack(reservation)) for name in hosts])

    async def _write(self, entries: Sequence[Entry]) -> Sequence[StatewardError | None]:
        return await self._store.transact(lambda tx: written(tx, entries))


async def written(tx: Tx, entries: Sequence[Entry]) -> list[StatewardError | None]:
    """Write entries; what cannot be kept of one is its answer, and the others are written."""
    uow = UnitOfWork(tx)
    await uow.load({entry.lease for entry in entries})
    await uow.load({host_key(entry.lease.ns, name) for entry in entries for name, _ in entry.changes})
    answers = [_answer(uow, entry) for entry in entries]
    await uow.apply()
    return answers


def _answer(uow: UnitOfWork, entry: Entry) -> StatewardError | None:
    work = uow.work(entry.op)
    if work is None or work.fenced or work.owner is None or work.epoch != entry.epoch:
        return Fenced(entry.op.id)
    try:
        write(uow, entry.lease.ns, entry.changes, entry.op.id, entry.lease.id)
    except StatewardError as error:
        return error
    return None
