"""Retention of the history: pruned on request, and once an hour by a worker if `history` is set."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import uniform

from litestar import post
from litestar.params import JSONBody

from stateward.access import Right
from stateward.aio.supervise import background, repeat
from stateward.engine.maintenance.retention import last_prune_time, prune, prune_news
from stateward.schemas.deployment import PrunedView
from stateward.schemas.request_bodies import Prune
from stateward.server.routes.declare import api_route
from stateward.server.service import ApiRequest
from stateward.server.views import to_datetime
from stateward.store.errors import StoreError
from stateward.store.port import Store

log = logging.getLogger("stateward.pruning")

HOUR_S, DAY_S = 3_600.0, 86_400.0
START_SPREAD_S = 60.0
"""The random delay of workers before they prune: the first one does it, and the others see that it is done."""

RemoveEnded = Callable[[float], Awaitable[None]]

CALL_MAX_S = 10.0
"""About how many seconds one request prunes."""


@api_route(post, "/prune", Right.GOVERN, "deployment", "Prune the history", 413, status_code=200)
async def prune_history(request: ApiRequest, data: JSONBody[Prune]) -> PrunedView:
    """Delete ended operations, removed objects, journal entries and idempotency records older than so many seconds.

    Current data is never touched. With `dry_run`, rows are only counted. A call takes about ten seconds at most: while
    `next` is not null there is more to do; send it as `after` in the next call.
    """
    store = request.service.engine.store
    before = await store.reader.time() - data.older
    done = await prune(store, before, dry=data.dry_run, who=request.grant.name, after=data.after, within=CALL_MAX_S)
    return PrunedView(
        to_datetime(before), done.operations, done.objects, done.entries, done.idempotency_records, done.next
    )


@asynccontextmanager
async def prune_hourly(store: Store, days: int, remove_ended: RemoveEnded | None = None) -> AsyncIterator[None]:
    """Prune records older than so many days, once an hour; with 0 days, never.

    `remove_ended` removes objects that ended before a time; their records are pruned when they are as old again.
    """
    rest = 0.0

    def interval_s() -> float:
        return rest + uniform(0.0, START_SPREAD_S)  # noqa: S311 - only spreads attempts

    async def run_once() -> None:
        nonlocal rest
        rest = HOUR_S  # the next attempt if this one fails
        rest = await _prune_if_due(store, days * DAY_S, remove_ended)

    loops = [repeat("retention of the history", run_once, interval_s, log, transient=StoreError)] if days else []
    async with background(*loops):
        yield


async def _prune_if_due(store: Store, older: float, remove_ended: RemoveEnded | None = None) -> float:
    """Prune if no worker has done so for an hour; returns the seconds until it is due again."""
    now = await store.reader.time()
    since = now - await last_prune_time(store.reader)
    if since < HOUR_S:
        return HOUR_S - since
    if remove_ended is not None:
        await remove_ended(now - older)
    done = await prune_news(store, now - older)
    log.info("retention pruned the history: %s", done)
    return HOUR_S


ROUTES = (prune_history,)
