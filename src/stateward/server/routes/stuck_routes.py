"""The routes `stuck` and `heal`: list stuck operations, and run the healer now.

The store has the one definition of stuck (`StuckWork`), which the metric, the command line and the console share. The
healer resolves stuck operations by itself, so an entry that stays in the list needs attention.
"""

from litestar import get, post

from stateward.access import Right
from stateward.engine.recovery import reap_dead_workers, resolve_overdue
from stateward.schemas.deployment import HealedView, StuckReason, StuckView
from stateward.server.http.parameters import Limit
from stateward.server.presenter import list_visible
from stateward.server.routes.declare import api_route
from stateward.server.service import ApiRequest
from stateward.server.views import to_datetime_or_none
from stateward.store.port import StuckWork

TAG = "deployment"
MAX_EXPEDITED = 1_000
"""How many overdue operations one call expedites."""


@api_route(get, "/stuck", Right.READ, TAG, "List what is stuck")
async def list_stuck(request: ApiRequest, limit: Limit = 100) -> list[StuckView]:
    """Return the stuck operations (past their deadline, or of a dead worker) in the namespaces of the token."""
    grant, service = request.grant, request.service
    hides = request.presenter.disclosure.hides_action

    async def read(most: int) -> list[StuckWork]:
        return await service.engine.stuck(most, grant.namespace_filter)

    def show(work: StuckWork) -> StuckView | None:
        return None if hides(work.kind, work.action) or not grant.opens(work.ns) else _shown(work)

    return await list_visible(read, show, service.page_size(limit), service.config.page_limit)


def _shown(work: StuckWork) -> StuckView:
    return StuckView(
        ns=work.ns,
        object=work.object,
        op=work.op,
        action=work.action,
        state=work.state,
        why=StuckReason.ORPHANED if work.orphaned else StuckReason.OVERDUE,
        deadline=to_datetime_or_none(work.deadline),
        owner=work.owner,
        attempts=work.attempts,
    )


@api_route(post, "/heal", Right.GOVERN, TAG, "Heal now", status_code=200)
async def heal(request: ApiRequest) -> HealedView:
    """Requeue the work of dead workers and resolve overdue operations now."""
    engine = request.service.engine
    me = "" if engine.worker is None else engine.worker.name
    freed = await engine.store.transact(lambda tx: reap_dead_workers(tx, me))
    settled = await resolve_overdue(engine.store.transact, engine.kinds, me, MAX_EXPEDITED)
    return HealedView(freed, settled)


ROUTES = (list_stuck, heal)
