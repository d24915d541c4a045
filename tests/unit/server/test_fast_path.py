import asyncio
from typing import Annotated, Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from litestar import Litestar, post
from litestar.di import NamedDependency, Provide
from litestar.exceptions import ClientException, ValidationException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.params import HeaderParameter, JSONBody, QueryParameter
from litestar.routes import HTTPRoute
from litestar.types import Receive
from msgspec import Struct

from stateward.plugin.request_params import IdempotencyKey, Ns
from stateward.server.http.body_decoding import StrictJson
from stateward.server.http.fast_path import FastRoute, is_fast_route, read_body
from stateward.server.service import ApiRequest

BODY = b'{"n": 3}'
Labels = Annotated[list[str] | None, QueryParameter(name="label")]
Most = Annotated[int, QueryParameter(name="limit")]


class Number(Struct, frozen=True):
    n: int


@post("/ns/{ns:str}")
async def taking(
    request: ApiRequest,
    ns: Ns,
    data: JSONBody[Number] = Number(0),  # noqa: B008
    labels: Labels = None,
    most: Most = 7,
    key: IdempotencyKey = None,
    other: Annotated[str, HeaderParameter(name="X-Other")] = "none",
) -> None: ...


@post("/needing/{ns:str}")
async def needing(request: ApiRequest, ns: Ns, most: Most) -> None: ...


@post("/given/{ns:str}", dependencies={"part": Provide(lambda: 1, sync_to_thread=False)})
async def given_more(request: ApiRequest, ns: Ns, part: NamedDependency[int]) -> None: ...


APP = Litestar(
    [taking, needing, given_more],
    request_class=ApiRequest,
    dto=StrictJson,
    return_dto=None,
    openapi_config=None,
    logging_config=None,
)
ROUTES = {route.path: route.route_handler_map["POST"] for route in APP.routes if isinstance(route, HTTPRoute)}
HANDLER, TAKES = ROUTES["/ns/{ns:str}"]


def sending(*parts: bytes) -> Receive:
    """Return what hands a body over in parts."""
    left = [*parts]

    async def receive() -> Any:
        if not left:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return receive


def call(
    query: list[tuple[str, str]], headers: list[tuple[str, str]], body: bytes, handler: Any = HANDLER
) -> ApiRequest:
    """Return a call of a route."""
    scope: Any = {
        "type": "http",
        "method": "POST",
        "path": "/ns/shop",
        "path_params": {"ns": "shop"},
        "query_string": urlencode(query).encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
        "app": APP,
        "litestar_app": APP,
        "route_handler": handler,
    }
    return ApiRequest(scope, sending(body))


words = st.text(st.characters(min_codepoint=33, max_codepoint=255), max_size=5)
queries = st.lists(st.tuples(st.sampled_from(["label", "limit", "labels", "most", "else"]), words), max_size=6)
headers = st.lists(st.tuples(st.sampled_from(["idempotency-key", "x-other", "key", "host"]), words), max_size=6)


@given(query=queries, given_headers=headers, body=st.sampled_from([b"", BODY]))
def test_what_is_read_is_what_the_framework_reads(
    query: list[tuple[str, str]], given_headers: list[tuple[str, str]], body: bytes
) -> None:
    async def both() -> tuple[dict[str, Any], dict[str, Any]]:
        ours = await FastRoute(HANDLER, TAKES).read_arguments(call(query, given_headers, body))
        theirs = await TAKES.to_kwargs(call(query, given_headers, body))
        return ours, theirs

    ours, theirs = asyncio.run(both())
    if not body:
        theirs.pop("data")  # where the framework puts a word of its own for a body that is not there
    del ours["request"], theirs["request"]
    assert ours == theirs


async def test_what_is_needed_and_did_not_come_is_named() -> None:
    handler, takes = ROUTES["/needing/{ns:str}"]
    with pytest.raises(ValidationException) as refusal:
        await FastRoute(handler, takes).read_arguments(call([("most", "3")], [], b"", handler))
    assert refusal.value.extra == [{"key": "most", "message": "must be given"}]


def test_a_route_that_is_given_more_than_a_call_has_is_not_plain() -> None:
    assert {path: is_fast_route(*route) for path, route in ROUTES.items()} == {
        "/ns/{ns:str}": True,
        "/needing/{ns:str}": True,
        "/given/{ns:str}": False,
    }


@pytest.mark.parametrize("parts", [(b"",), (b"one",), (b"o", b"", b"ne")])
async def test_a_body_is_read_whole(parts: tuple[bytes, ...]) -> None:
    assert await read_body(sending(*parts), 0, 3) == b"".join(parts)


async def test_a_body_that_is_announced_as_too_long_is_not_read() -> None:
    async def never() -> Any:
        raise AssertionError

    with pytest.raises(RequestEntityTooLarge):
        await read_body(never, 4, 3)


async def test_a_body_that_grows_too_long_is_not_read_any_further() -> None:
    receive = sending(b"one", b"t", b"wo")
    with pytest.raises(RequestEntityTooLarge):
        await read_body(receive, 0, 3)
    assert (await receive())["body"] == b"wo"  # type: ignore[typeddict-item]


async def test_a_caller_who_goes_before_the_end_is_not_waited_for() -> None:
    with pytest.raises(ClientException, match="gone"):
        await read_body(sending(), 2, 3)
