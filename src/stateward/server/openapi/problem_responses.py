"""The problem responses of routes, for the OpenAPI document."""

from typing import Any

from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example

from stateward.schemas.problems import Problem
from stateward.server.http.problem_details import MEDIA_TYPE, problem

TEXTS = {
    400: ("bad_input", "Bad input: a parameter or a field of the body cannot be used.", "id: must be a plain name"),
    401: ("not_authenticated", "There is no token, or it is not valid any more.", "a token is needed"),
    403: ("forbidden", "The token's role, namespaces or quota do not allow it.", "the token does not give the right"),
    404: ("not_found", "There is no such thing.", "there is no object 'web-1' in namespace 'shop'"),
    409: ("in_transition", "Refused now by the lifecycle, a lock or another operation.", "'stop' by user is refused"),
    412: ("version", "The object has changed since the caller saw it.", "object 'web-1' is at version 8, not 7"),
    413: ("too_large", "The body is larger than the limit.", "the body is larger than body_limit allows"),
    422: ("bad_input", "The spec or the arguments are not of the kind's types.", "spec.ttl: must be at least 1"),
    429: ("too_many", "The token calls more often than it may; see Retry-After.", "too many requests with this token"),
    501: ("not_offered", "What is asked for needs an extra that is not installed.", "it needs stateward[drawings]"),
    503: ("unavailable", "The store is out of reach; see Retry-After.", "the database is not available"),
}
USUAL = (400, 401, 403, 429, 503)
"""The problems of every route that needs a token."""

MORE: dict[int, dict[str, Any]] = {
    409: {
        "state": "STOPPING",
        "state_class": "transitional",
        "allowed": [],
        "blocker": {
            "op": "8f14e45fceea167a5a36dedd4bea2543",
            "action": "stop",
            "actor": "user",
            "who": "ann",
            "since": "2026-11-15T02:57:12.123456Z",
        },
        "retry": True,
    },
}


def problem_responses(*statuses: int) -> dict[int, ResponseSpec]:
    """Return the problem responses of a route: the usual ones and these."""
    return {status: problem_response(status) for status in sorted({*USUAL, *statuses})}


def problem_response(status: int) -> ResponseSpec:
    """Return the response for one problem."""
    code, text, _ = TEXTS[status]
    return ResponseSpec(
        data_container=Problem,
        generate_examples=False,
        description=text,
        media_type=MEDIA_TYPE,
        examples=[Example(summary=code, value=example_of(status))],
    )


def texts_of(status: int) -> tuple[str, str, str]:
    """Return the code of a problem, its description, and an example of its detail."""
    return TEXTS[status]


def example_of(status: int) -> dict[str, Any]:
    """Return an example of a problem."""
    code, _, detail = TEXTS[status]
    title = problem(status, code, detail).title
    common = {"type": f"urn:stateward:{code}", "title": title, "status": status, "code": code, "detail": detail}
    return common | MORE.get(status, {})
