"""Notices of the ends of leases to the policy service, delivered until it accepts them.

A service that counts what is in use must learn of every end, also when it is down for a while, and when a process of
ours is killed. So a notice is an object of its own, written by the commit that begins the end or the delete of a lease.
A worker delivers it, with growing pauses between the attempts. After a day it is given up: the notice stays as
`undelivered`, where people see it and can have it delivered again, or discard it.

Each lease has at most one notice. A notice may arrive twice, if the answer to an attempt was lost.
"""

import logging

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.leases.context import LeaseContext
from stateward.domains.leases.errors import NoticeUndelivered
from stateward.domains.leases.lifecycle import NOTICE, EventState, LeaseState, NoticeState
from stateward.domains.leases.model import EventType, LeaseSeen, host_key, read_host, read_lease
from stateward.engine import Job, Temporary
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import CONTROLLER
from stateward.store.records import Key, Object, Timer, to_json

log = logging.getLogger("stateward.leases")

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 3600.0
RANK = 4
"""Rank of the timer of a notice among timers of the same instant: after all timers of leases."""


class Notice(Struct, frozen=True):
    """The lease that a notice is about, as it was when its end began."""

    lease: Object


def notice_key(ns: str, lease: str) -> Key:
    """Return the key of a lease's notice."""
    return Key(ns, f"notice-{lease}")


def queue_notice(uow: UnitOfWork, record: Object, seen: LeaseSeen, status: LeaseState, op: str) -> LeaseSeen:
    """Write the notice of a lease whose end or delete begins; returns its parts, marked as notified."""
    if seen.notified or not seen.events or seen.events[EventType.END] is EventState.DONE:
        return seen
    key = notice_key(record.ns, record.id)
    lease = replace(record, state=status.word, seen=to_json(replace(seen, moves=())))
    notice = Object(
        ns=key.ns,
        id=key.id,
        kind=NOTICE.kind,
        state=NoticeState.QUEUED.word,
        since=uow.now,
        version=uow.next_version(key),
        generation=1,
        op=None,
        queue=key.id,
        parent=None,
        spec=to_json(Notice(lease)),
        labels=to_json({"lease": record.id}),
        error=None,
        created=uow.now,
    )
    uow.save_object(key, notice)
    journal(uow, notice, op, CONTROLLER, f"lease {record.id}", "queue", None, notice.state)
    uow.changes.timers.append(Timer(key.ns, f"{key.id}/deliver", uow.now, RANK, key.id, "deliver", "[]", "{}"))
    return replace(seen, notified=True)


def pause_after(attempt: int) -> float:
    """Return the seconds between a failed attempt and the next one."""
    return min(FIRST_PAUSE_S * 2.0 ** min(attempt - 1, 30), LONGEST_PAUSE_S)


async def deliver(ctx: LeaseContext, job: Job) -> None:
    """Notify the policies of the end of a lease; a notice that is not accepted is delivered again later."""
    lease = read_lease(msgspec.json.decode(job.claim.object.spec, type=Notice).lease)
    try:
        keys = {name: host_key(lease.object.ns, name) for name in lease.seen.booked}
        records = await ctx.engine.store.reader.objects(keys.values())
        hosts = {name: read_host(records[key]) for name, key in keys.items() if key in records}
        await ctx.filters.on_end(lease, hosts)
    except NoticeUndelivered as error:
        pause = pause_after(job.attempt)
        log.warning(
            "notice of the end of lease %s was not accepted; next attempt in %g s: %s", lease.object.id, pause, error
        )
        raise Temporary(str(error), after=pause) from error
