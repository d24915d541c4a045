"""Tokens and quotas, managed by administrators."""

from litestar import delete, get, post, put
from litestar.params import JSONBody

from stateward.access import Right, TokenInfo
from stateward.access.quotas import Quota
from stateward.domains.request_params import Ns
from stateward.schemas.access import IssuedView, QuotaView, TokenView
from stateward.schemas.request_bodies import NewQuota, NewToken
from stateward.server.auth.guards import needs
from stateward.server.http.parameters import TokenId
from stateward.server.openapi.problem_responses import problem_responses
from stateward.server.service import ApiRequest
from stateward.server.views import to_datetime, to_datetime_or_none

TAGS = ["access"]


def token_view(info: TokenInfo) -> TokenView:
    """Return a token as it is shown."""
    created, expires = to_datetime(info.created), to_datetime_or_none(info.expires)
    return TokenView(info.id, info.name, info.role, info.namespaces, info.state, created, expires)


@post("/tokens", guards=[needs(Right.GOVERN)], tags=TAGS, summary="Make a token", responses=problem_responses(413))
async def issue_token(request: ApiRequest, data: JSONBody[NewToken]) -> IssuedView:
    """Make a token; keep its text, for it is not shown again."""
    expires = None if data.expires is None else data.expires.timestamp()
    text, info = await request.service.tokens.issue(data.name, data.role, data.namespaces, expires, request.grant.name)
    return IssuedView(text, token_view(info))


@get("/tokens", guards=[needs(Right.GOVERN)], tags=TAGS, summary="List the tokens", responses=problem_responses())
async def list_tokens(request: ApiRequest) -> list[TokenView]:
    """Return all tokens, in every state."""
    tokens, page, after = request.service.tokens, request.service.config.page_limit, None
    found: list[TokenInfo] = []
    while True:
        more = await tokens.list(after, page)
        found += more
        if len(more) < page:
            return [token_view(one) for one in found]
        after = f"token-{more[-1].id}"


@delete(
    "/tokens/{id:str}",
    guards=[needs(Right.GOVERN)],
    tags=TAGS,
    summary="Take a token back",
    status_code=200,
    responses=problem_responses(404, 409),
)
async def revoke_token(request: ApiRequest, id: TokenId) -> TokenView:  # noqa: A002
    """Take a token back: it opens nothing from now on, here at once and elsewhere within two seconds."""
    info = await request.service.tokens.revoke(id, request.grant.name)
    request.service.authenticator.clear_cache()
    return token_view(info)


@get("/quotas", guards=[needs(Right.GOVERN)], tags=TAGS, summary="List the quotas", responses=problem_responses())
async def list_quotas(request: ApiRequest) -> list[QuotaView]:
    """Return the quotas that are in force."""
    quotas, page, after = request.service.quotas, request.service.config.page_limit, None
    found: list[Quota] = []
    while True:
        more = await quotas.list(after, page)
        found += more
        if len(more) < page:
            return [QuotaView(one.ns, one.objects, one.operations) for one in found]
        after = more[-1].ns


@put(
    "/quotas/{ns:str}", guards=[needs(Right.GOVERN)], tags=TAGS, summary="Set a quota", responses=problem_responses(413)
)
async def set_quota(request: ApiRequest, ns: Ns, data: JSONBody[NewQuota]) -> QuotaView:
    """Set a namespace's quota; it holds for whatever is accepted from now on, and takes nothing away."""
    quota = await request.service.quotas.set(Quota(ns, data.objects, data.operations), request.grant.name)
    return QuotaView(quota.ns, quota.objects, quota.operations)


ROUTES = (issue_token, list_tokens, revoke_token, list_quotas, set_quota)
