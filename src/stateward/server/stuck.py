"""What is stuck, and healing it now rather than at the healer's next look.

Stuck is what has passed its deadline without an end, and what a worker holds that is dead: the healer sees to both by
itself, so a line here that stays is worth a look.
"""

from enum import StrEnum

from litestar import get, post
from msgspec import Struct

from stateward.access import Right
from stateward.engine.healer import bury_dead, settle_overdue
from stateward.server.answers import problems
from stateward.server.auth import needs
from stateward.server.names import Limit
from stateward.server.service import Call, Service
from stateward.server.wire import Moment, when_or_none
from stateward.store.port import Tx
from stateward.store.records import Key, Work, Worker

TAGS = ["deployment"]
MOST = 1_000
"""How much the healer settles in one go."""


class Why(StrEnum):
    """Why something counts as stuck."""

    OVERDUE = "its deadline has passed"
    ORPHANED = "its worker is dead"


class StuckView(Struct, frozen=True):
    """Work that does not end: of which object, since when overdue, and in whose hands."""

    ns: str
    object: str
    op: str
    action: str
    state: str
    why: Why
    deadline: Moment | None
    owner: str | None
    attempts: int


class HealedView(Struct, frozen=True):
    """What the healer did: work put back that dead workers held, and overdue work settled or hurried on."""

    freed: int
    settled: int


async def stuck_work(tx: Tx, workers: list[Worker], limit: int) -> dict[Key, tuple[Work, Why]]:
    """Return the work that is stuck, by its operation."""
    found = {work.key: (work, Why.OVERDUE) for work in await tx.overdue(limit)}
    for worker in workers:
        alive = worker.seen + worker.lease >= tx.now
        for work in await tx.owned(worker.id):
            if not alive:
                found[work.key] = work, Why.ORPHANED
            elif work.deadline is not None and work.deadline < tx.now:
                found[work.key] = work, Why.OVERDUE
    return found


@get("/stuck", guards=[needs(Right.READ)], tags=TAGS, summary="List what is stuck", responses=problems())
async def list_stuck(request: Call, limit: Limit = 100) -> list[StuckView]:
    """Return what is in transition for longer than its deadline or without a live worker, of what the token opens."""
    service, most = request.service, request.service.page(limit)
    workers = await service.reader.workers()
    found = await service.engine.store.transact(lambda tx: stuck_work(tx, workers, MOST))
    mine = [(work, why) for work, why in found.values() if request.grant.opens(work.ns)]
    return [await _shown(service, work, why) for work, why in mine[:most]]


async def _shown(service: Service, work: Work, why: Why) -> StuckView:
    operation = await service.reader.operation(work.key)
    found = await service.reader.object(Key(work.ns, work.object))
    return StuckView(
        ns=work.ns,
        object=work.object,
        op=work.op,
        action="" if operation is None else operation.action,
        state="" if found is None else found.state,
        why=why,
        deadline=when_or_none(work.deadline),
        owner=work.owner,
        attempts=work.attempts,
    )


@post("/heal", guards=[needs(Right.GOVERN)], tags=TAGS, summary="Heal now", status_code=200, responses=problems())
async def heal(request: Call) -> HealedView:
    """Put back what dead workers held and settle what is overdue, now."""
    engine = request.service.engine
    me = "" if engine.worker is None else engine.worker.name
    freed = await engine.store.transact(lambda tx: bury_dead(tx, me))
    settled = await engine.store.transact(lambda tx: settle_overdue(tx, engine.kinds, me, MOST))
    return HealedView(freed, settled)


ROUTES = (list_stuck, heal)
