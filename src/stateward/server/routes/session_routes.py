"""The routes of the console's sessions: sign in with a token, sign out.

Both set the cookie of a browser, so that both are for our own page alone, whether there is a cookie yet or not:
otherwise another page could sign its visitor in as somebody else.
"""

from litestar import Response, delete, post
from litestar.params import JSONBody

from stateward.access import Right
from stateward.schemas.access import SessionView
from stateward.schemas.request_bodies import NewSession
from stateward.server.auth.credentials import token_text
from stateward.server.auth.guards import open_to_all, require
from stateward.server.auth.session_cookie import require_own_page, session_text, set_cookie
from stateward.server.errors import NotAuthenticated
from stateward.server.openapi.problem_responses import problem_responses
from stateward.server.service import ApiRequest
from stateward.server.views import to_datetime

TAG = "access"


@post(
    "/session",
    guards=[open_to_all("the token is in the body, and is looked at there")],
    tags=[TAG],
    summary="Sign in",
    responses=problem_responses(413),
)
async def open_session(request: ApiRequest, data: JSONBody[NewSession]) -> Response[SessionView]:
    """Open a session for a browser: its cookie stands for the token, whose rights it has as long as they last.

    The request must be of this origin and have the header `X-Stateward-Request: 1`, as every later request with the
    cookie that changes something. A session that the browser has already is closed. Programs use the token itself.
    """
    require_own_page(request.scope, Right.ACT)
    service = request.service
    grant = await service.authenticator.authenticate(token_text(data.token), request.scope)
    require(grant, Right.READ)
    await _close_session(request)
    text, expires = await service.sessions.open(grant)
    lasts_s = int(expires - await service.reader.time())
    view = SessionView(grant.name, grant.role, to_datetime(expires))
    return Response(view, headers={"Set-Cookie": set_cookie(request.scope, text, lasts_s)})


@delete(
    "/session",
    guards=[open_to_all("who is not signed in may sign out, too")],
    tags=[TAG],
    summary="Sign out",
    responses=problem_responses(),
)
async def close_session(request: ApiRequest) -> Response[None]:
    """Close the session of the cookie, in all tabs of the browser: its streams end, and the cookie is worth nothing."""
    require_own_page(request.scope, Right.ACT)
    await _close_session(request)
    return Response(None, headers={"Set-Cookie": set_cookie(request.scope, "", 0)})


async def _close_session(request: ApiRequest) -> None:
    service, text = request.service, session_text(request.scope)
    if text is None:
        return
    try:
        await service.sessions.close(await service.authenticator.authenticate(text, request.scope))
    except NotAuthenticated:
        return
    service.authenticator.clear_cache()


ROUTES = (open_session, close_session)
