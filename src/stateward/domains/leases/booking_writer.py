"""Writes of bookings and holdings on hosts, in batches and fenced by the claim of the worker that asks for them.

A worker may lose its work without knowing it yet. So every change names the claim that it belongs to, and the writer
checks the claim under the lease's lock: it writes nothing for a fenced or dead worker. A set of changes is checked
against the hosts as they are under their locks, and written completely or not at all. This makes double booking
impossible, however many callers search and write at the same time.

What depends on the state of hosts is decided there too: a decision gets the lease and its hosts as they are under their
locks, and its changes of the lease and of the hosts are one commit.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.leases import lease_parts, model
from stateward.domains.leases.bookings import BookHost, HandOverHost, HostChange, HostChanges, TakeBackHost
from stateward.domains.leases.errors import HostHeld, HostsTaken
from stateward.domains.leases.lifecycle import HOST
from stateward.domains.leases.part_history import append_part_history
from stateward.engine import Job, Temporary
from stateward.engine.transaction_batcher import TransactionBatcher
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.engine.work_errors import Fenced
from stateward.errors import StatewardError
from stateward.lifecycle import CONTROLLER
from stateward.store.port import Store, Tx
from stateward.store.records import Key, Timer, to_json

HELD_HOST_RETRY_S = 0.5
"""Seconds before the next try to hand over a host that another reservation still holds."""


class LockedLease(Struct, frozen=True):
    """A lease and its hosts by name as they are under their locks, and the time; `hosts` lacks hosts that are gone."""

    lease: model.Lease
    hosts: Mapping[str, model.LeaseHost]
    now: float


class HostDecision(Struct, frozen=True):
    """What was decided about the hosts of a lease: changes of hosts, the lease's parts after them, and timers to set.

    If hosts are `lacking` (by reservation), nothing is changed: the caller searches for them, and asks again.
    """

    seen: model.LeaseSeen
    changes: HostChanges = ()
    timers: Sequence[Timer] = ()
    lacking: Mapping[str, int] = {}


Decide: TypeAlias = Callable[[LockedLease], HostDecision]
"""A decision, pure: it runs again if its transaction is repeated."""


class FencedChange(Struct, frozen=True):
    """Changes that are written together, and the claim (operation and epoch) that they belong to.

    Instead of `changes` it may have a decision, for which the lease's hosts and `hosts` are locked.
    """

    lease: Key
    op: Key
    epoch: int
    changes: tuple[tuple[str, HostChange], ...] = ()
    hosts: tuple[str, ...] = ()
    decide: Decide | None = None
    who: str = ""


class BookingWriter:
    """Writes changes of hosts for jobs; concurrent calls share a transaction."""

    def __init__(self, store: Store, chance: Random) -> None:
        self._store = store
        self._batch: TransactionBatcher[FencedChange, HostDecision | None] = TransactionBatcher(self._write, chance)

    async def write(self, job: Job, changes: Iterable[tuple[str, HostChange]]) -> None:
        """Write all of the changes, or none; raises the error of the first change that does not fit."""
        entry = FencedChange(Key(job.ns, job.object), job.key, job.epoch, tuple(changes))
        if entry.changes:
            await self._batch.submit(entry)

    async def decide(self, job: Job, hosts: Iterable[str], decide: Decide) -> HostDecision:
        """Decide about the hosts of a job's lease under the locks of the lease, its hosts and `hosts`; write it."""
        who = job.claim.operation.who
        entry = FencedChange(Key(job.ns, job.object), job.key, job.epoch, hosts=tuple(hosts), decide=decide, who=who)
        decision = await self._batch.submit(entry)
        assert decision is not None
        return decision

    async def hand_over(self, job: Job, reservation: str, hosts: Iterable[str], *, whole: bool) -> None:
        """Hand hosts over to a reservation; raises Temporary while another reservation holds one of them."""
        holding = HandOverHost(model.Holding(job.object, reservation, whole))
        try:
            await self.write(job, [(name, holding) for name in hosts])
        except HostHeld as held:
            raise Temporary(str(held), after=HELD_HOST_RETRY_S) from held

    async def take_back(self, job: Job, reservation: str, hosts: Iterable[str]) -> None:
        """Take hosts back from a reservation."""
        await self.write(job, [(name, TakeBackHost(reservation)) for name in hosts])

    async def _write(self, entries: Sequence[FencedChange]) -> Sequence[StatewardError | HostDecision | None]:
        return await self._store.transact(lambda tx: write_fenced_changes(tx, entries))


async def write_fenced_changes(tx: Tx, entries: Sequence[FencedChange]) -> list[StatewardError | HostDecision | None]:
    """Write entries independently of each other; returns the error or the decision of each, None if it has neither."""
    uow = UnitOfWork(tx)
    await uow.load({entry.lease for entry in entries})
    await uow.load({model.host_key(entry.lease.ns, name) for entry in entries for name in _concerned_hosts(uow, entry)})
    answers = [_write_one(uow, entry) for entry in entries]
    await uow.apply()
    return answers


def _concerned_hosts(uow: UnitOfWork, entry: FencedChange) -> set[str]:
    record = uow.objects.get(entry.lease)
    names = {*entry.hosts, *(name for name, _ in entry.changes)}
    if entry.decide is None or record is None:
        return names
    seen = model.read_lease_seen(record.seen)
    return names | seen.booked | {name for reservation in seen.reservations.values() for name in reservation.lost}


def _write_one(uow: UnitOfWork, entry: FencedChange) -> StatewardError | HostDecision | None:
    work = uow.work(entry.op)
    if work is None or work.fenced or work.owner is None or work.epoch != entry.epoch:
        return Fenced(entry.op.id)
    try:
        if entry.decide is not None:
            key, ns = entry.lease, entry.lease.ns
            names = sorted(_concerned_hosts(uow, entry))
            hosts = {name: host for name in names if (host := _host(uow, ns, name)) is not None}
            lease = model.read_lease(uow.objects[key])
            decision = entry.decide(LockedLease(lease, hosts, uow.now))
            if decision.lacking:
                return decision
            lease_parts.require_valid(model.status_of(lease.object), decision.seen)
            write_host_changes(uow, ns, decision.changes, entry.op.id, key.id)
            seen = append_part_history(uow, key, decision.seen, entry.op.id, entry.who)
            if seen != lease.seen:
                uow.save_object(key, replace(lease.object, seen=to_json(seen), version=uow.next_version(key)))
            uow.changes.timers += decision.timers
            return decision
        write_host_changes(uow, entry.lease.ns, entry.changes, entry.op.id, entry.lease.id)
    except StatewardError as error:
        return error
    return None


def write_host_changes(uow: UnitOfWork, ns: str, changes: HostChanges, op: str | None, lease: str) -> None:
    """Write changes of loaded hosts, all of them or none; changes that only free a removed host are skipped."""
    hosts: dict[str, model.LeaseHost | None] = {name: _host(uow, ns, name) for name, _ in changes}
    said: dict[str, list[str]] = {}
    lacking: list[str] = []
    for name, change in changes:
        host = hosts[name]
        if host is None:
            lacking += [name] if isinstance(change, BookHost | HandOverHost) else []
            continue
        try:
            seen = change.apply_to(host)
        except HostsTaken:
            lacking.append(name)
            continue
        if seen != host.seen:
            hosts[name] = replace(host, seen=seen)
            said.setdefault(name, []).append(str(change))
    if lacking:
        raise HostsTaken(tuple(dict.fromkeys(lacking)))
    for name, events in said.items():
        changed = hosts[name]
        assert changed is not None
        key: Key = changed.object.key
        uow.save_object(key, replace(changed.object, seen=to_json(changed.seen), version=uow.next_version(key)))
        journal(uow, changed.object, op, CONTROLLER, f"lease {lease}", ", ".join(events))


def _host(uow: UnitOfWork, ns: str, name: str) -> model.LeaseHost | None:
    record = uow.objects.get(model.host_key(ns, name))
    return None if record is None or record.removed or record.kind != HOST.kind else model.read_host(record)
