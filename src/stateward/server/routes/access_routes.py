"""The routes of tokens and quotas, for administrators."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from litestar import delete, get, post, put
from litestar.params import JSONBody

from stateward.access import Right, TokenInfo
from stateward.access.quotas import Quota
from stateward.plugin.request_params import Ns
from stateward.schemas.access import IssuedView, QuotaView, TokenView
from stateward.schemas.request_bodies import NewQuota, NewToken
from stateward.server.http.parameters import TokenId
from stateward.server.routes.declare import api_route
from stateward.server.service import ApiRequest
from stateward.server.views import to_datetime, to_datetime_or_none

TAG = "access"
T = TypeVar("T")


def token_view(info: TokenInfo) -> TokenView:
    """Return the view of a token."""
    created, expires = to_datetime(info.created), to_datetime_or_none(info.expires)
    return TokenView(info.id, info.name, info.role, info.namespaces, info.state, created, expires)


@api_route(post, "/tokens", Right.GOVERN, TAG, "Create a token", 413)
async def issue_token(request: ApiRequest, data: JSONBody[NewToken]) -> IssuedView:
    """Create a token; store its text, because it is not shown again."""
    expires = None if data.expires is None else data.expires.timestamp()
    text, info = await request.service.tokens.issue(data.name, data.role, data.namespaces, expires, request.grant.name)
    return IssuedView(text, token_view(info))


@api_route(get, "/tokens", Right.GOVERN, TAG, "List the tokens")
async def list_tokens(request: ApiRequest) -> list[TokenView]:
    """Return all tokens, in every state."""
    tokens = await _read_all(request, request.service.tokens.list, lambda last: f"token-{last.id}")
    return [token_view(info) for info in tokens]


async def _read_all(
    request: ApiRequest, read: Callable[[str | None, int], Awaitable[list[T]]], name_of: Callable[[T], str]
) -> list[T]:
    """Return all records of a listing, read page by page; `name_of` gives the name that a page continues after."""
    page, after, items = request.service.config.page_limit, None, list[T]()
    while len(more := await read(after, page)) == page:
        items += more
        after = name_of(more[-1])
    return items + more


@api_route(delete, "/tokens/{id:str}", Right.GOVERN, TAG, "Revoke a token", 404, 409, status_code=200)
async def revoke_token(request: ApiRequest, id: TokenId) -> TokenView:  # noqa: A002
    """Revoke a token: this process refuses it at once, other processes within two seconds."""
    info = await request.service.tokens.revoke(id, request.grant.name)
    request.service.authenticator.clear_cache()
    return token_view(info)


@api_route(get, "/quotas", Right.GOVERN, TAG, "List the quotas")
async def list_quotas(request: ApiRequest) -> list[QuotaView]:
    """Return all quotas."""
    quotas = await _read_all(request, request.service.quotas.list, lambda last: last.ns)
    return [QuotaView(quota.ns, quota.objects, quota.operations) for quota in quotas]


@api_route(put, "/quotas/{ns:str}", Right.GOVERN, TAG, "Set a quota", 413)
async def set_quota(request: ApiRequest, ns: Ns, data: JSONBody[NewQuota]) -> QuotaView:
    """Set the quota of a namespace. It applies to requests from now on; existing objects and operations stay."""
    quota = await request.service.quotas.set(Quota(ns, data.objects, data.operations), request.grant.name)
    return QuotaView(quota.ns, quota.objects, quota.operations)


ROUTES = (issue_token, list_tokens, revoke_token, list_quotas, set_quota)
