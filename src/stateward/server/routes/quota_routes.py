"""Quotas of namespaces, set by administrators."""

from litestar import get, put
from litestar.params import JSONBody

from stateward.access import Right
from stateward.access.quotas import Quota
from stateward.schemas.access import QuotaView
from stateward.schemas.requests import NewQuota
from stateward.server.auth.guards import needs
from stateward.server.names import Ns
from stateward.server.openapi.problem_responses import problems
from stateward.server.service import Call

TAGS = ["access"]


@get("/quotas", guards=[needs(Right.GOVERN)], tags=TAGS, summary="List the quotas", responses=problems())
async def list_quotas(request: Call) -> list[QuotaView]:
    """Return the quotas that are in force."""
    quotas, page, after = request.service.quotas, request.service.config.page_limit, None
    found: list[Quota] = []
    while True:
        more = await quotas.list(after, page)
        found += more
        if len(more) < page:
            return [QuotaView(one.ns, one.objects, one.operations) for one in found]
        after = more[-1].ns


@put("/quotas/{ns:str}", guards=[needs(Right.GOVERN)], tags=TAGS, summary="Set a quota", responses=problems(413))
async def set_quota(request: Call, ns: Ns, data: JSONBody[NewQuota]) -> QuotaView:
    """Set a namespace's quota; it holds for whatever is accepted from now on, and takes nothing away."""
    quota = await request.service.quotas.set(Quota(ns, data.objects, data.operations), request.grant.name)
    return QuotaView(quota.ns, quota.objects, quota.operations)


ROUTES = (list_quotas, set_quota)
