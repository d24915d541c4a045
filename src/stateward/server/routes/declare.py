"""Declaration of API routes: method, path, right, tag, summary and problems in one line.

Every route of the API needs a token with a right, has a tag and a summary in the API's description, and can respond
with problems: the usual ones of any route, and the given ones.
"""

from collections.abc import Callable, Mapping
from typing import Any

from litestar.handlers import HTTPRouteHandler
from litestar.openapi import ResponseSpec

from stateward.access import Right
from stateward.server.auth.guards import RequiresRight, requires
from stateward.server.openapi.problem_responses import problem_responses

NAMESPACE = "{ns:"
"""A part of the paths that name a namespace, which may be unknown."""

NO_RESPONSES: Mapping[int, ResponseSpec] = {}


def api_route(
    method: Callable[..., HTTPRouteHandler],
    path: str,
    right: Right | RequiresRight,
    tag: str,
    summary: str,
    *problems: int,
    responses: Mapping[int, ResponseSpec] = NO_RESPONSES,
    **options: Any,  # noqa: ANN401 - the framework's own
) -> HTTPRouteHandler:
    """Return the decorator of a handler; `method` is the framework's decorator `get`, `post`, `put` or `delete`.

    `responses` are further ones than the problems, and `options` are passed to the framework.
    """
    return method(
        path,
        guards=[requires(right) if isinstance(right, Right) else right],
        tags=[tag],
        summary=summary,
        responses={**problem_responses(*problems, *((404,) if NAMESPACE in path else ())), **responses},
        **options,
    )
