"""The fast path: simple routes are served without the framework's own dispatch.

Litestar reads parameters through layers for hooks, caches, dependencies, forms and cookies, and merges headers and
media types before it writes a response. Each takes longer than the engine takes to accept an action or to read an
object. A route is on the fast path if its handler takes only the request, parameters of path, query and headers, and
one record as its body. The framework still validates the arguments as the handler declares them; a route that uses more
of the framework is served by it.

`create_app(..., fast_path=False)` leaves all of this out, so that both can be measured (`make bench ARGS=server`).
"""

import math
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from litestar import Response
from litestar.exceptions import ClientException, ValidationException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.routes import BaseRoute, HTTPRoute
from litestar.types import ASGIApp, HTTPResponseStartEvent, Receive, Scope, Send

from stateward.server.http.preconditions import etag_of
from stateward.server.http.security_headers import Header, Headers
from stateward.server.service import ApiRequest
from stateward.validation_texts import GIVEN

if TYPE_CHECKING:
    from litestar._kwargs import KwargsModel

T = TypeVar("T")

REPLAYED = (b"idempotency-replayed", b"true")
"""The header of a response to an earlier request with the same idempotency key."""

SUPPORTED_RESERVED = {"request", "data"}
"""The reserved parameters that a handler on the fast path may have."""

_OPTION = "fast route"
_JSON = (b"content-type", b"application/json")
_encode = msgspec.json.Encoder().encode


class JsonReply(Response[T]):
    """A response with the ETag of an object and one value as JSON, or no body; it writes itself.

    The OpenAPI document describes it as the framework's `Response`.
    """

    def __init__(self, content: T | None, version: int, *headers: Header, status: int = 200) -> None:
        self.content = content  # type: ignore[assignment]
        self.status_code = self._status = status
        self._body = b"" if content is None else _encode(content)
        self._headers = [(b"etag", etag_of(version).encode()), *headers]  # bounded by: one response
        if content is not None:
            self._headers += (_JSON, (b"content-length", b"%d" % len(self._body)))

    def add_headers(self, headers: Headers) -> None:
        """Add the headers of every response; this one has none of them yet."""
        self._headers += headers

    def to_asgi_response(self, *_: object, **__: object) -> "JsonReply[T]":  # type: ignore[override]
        """Return the ASGI application that writes the response: itself."""
        return self

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        """Write the response."""
        start: HTTPResponseStartEvent = {
            "type": "http.response.start",
            "status": self._status,
            "headers": self._headers,
        }
        await send(start)
        await send({"type": "http.response.body", "body": self._body, "more_body": False})


class FastRoute:
    """A route on the fast path: reads the handler's arguments and calls it."""

    def __init__(self, handler: HTTPRouteHandler, takes: "KwargsModel") -> None:
        self._handler = handler
        self._call = handler.fn
        self._validate = handler.signature_model.parse_values_from_connection_kwargs
        # bounded by: the parameters of the route
        self._headers = {
            parameter.field_alias.lower().encode(): parameter.field_name for parameter in takes.expected_header_params
        }
        self._query = {parameter.field_alias: parameter.field_name for parameter in takes.expected_query_params}
        self._list_names = set(takes.sequence_query_parameter_names)
        named = takes.expected_header_params | takes.expected_query_params
        self._defaults = {parameter.field_name: parameter.default for parameter in named if not parameter.is_required}
        self._required = [parameter.field_name for parameter in named if parameter.is_required]
        self._body = takes.expected_data_dto
        self._max_body = handler.resolve_request_max_body_size() or math.inf

    async def respond(self, request: ApiRequest) -> ASGIApp:
        """Return the response to a request, as an ASGI application."""
        arguments = await self.read_arguments(request)
        returned = await self._call(**self._validate(connection=request, kwargs=arguments))
        if isinstance(returned, JsonReply):
            return returned
        return await self._handler.to_response(app=request.app, data=returned, request=request)

    async def read_arguments(self, request: ApiRequest) -> dict[str, Any]:
        """Return the handler's arguments as they were sent, or their declared defaults."""
        scope = request.scope
        values: dict[str, Any] = {**self._defaults, **scope["path_params"], "request": request}
        content_length = self._read_headers(scope["headers"], values)
        if scope["query_string"]:
            self._read_query(request, values)
        for name in self._required:
            if name not in values:
                raise ValidationException(extra=[{"key": name, "message": f"must be {GIVEN}"}])
        if self._body is not None and (body := await read_body(request.receive, content_length, self._max_body)):
            values["data"] = self._body(request).decode_bytes(body)
        return values

    def _read_headers(self, headers: Iterable[Header], values: dict[str, Any]) -> int:
        """Read the headers that the handler takes, and return the content length."""
        content_length = 0
        for name, value in reversed([*headers]):  # of several with one name, the first counts
            if name in self._headers:
                values[self._headers[name]] = value.decode("latin-1")
            elif name == b"content-length" and value.isdigit():
                content_length = int(value)
        return content_length

    def _read_query(self, request: ApiRequest, values: dict[str, Any]) -> None:
        lists: dict[str, list[str]] = {}
        for name, value in request.query_params.multi_items():
            if name in self._list_names:
                values[self._query[name]] = lists.setdefault(name, [])
                lists[name].append(value)
            elif name in self._query:
                values[self._query[name]] = value


def bind_fast_routes(routes: Iterable[BaseRoute]) -> None:
    """Let all routes that qualify be served on the fast path; the first request to a route finds out."""
    for route in routes:
        for handler, takes in route.route_handler_map.values() if isinstance(route, HTTPRoute) else ():
            handler.opt[_OPTION] = partial(_fast_route, handler, takes)


def _fast_route(handler: HTTPRouteHandler, takes: "KwargsModel") -> FastRoute | None:
    return FastRoute(handler, takes) if is_fast_route(handler, takes) else None


def fast_route_of(handler: BaseRouteHandler) -> FastRoute | None:
    """Return how a route is served on the fast path; None if the framework serves it."""
    route: partial[FastRoute | None] | FastRoute | None = handler.opt.get(_OPTION)
    if isinstance(route, partial):
        route = handler.opt[_OPTION] = route()
    return route


def is_fast_route(handler: HTTPRouteHandler, takes: "KwargsModel") -> bool:
    """Tell whether a route qualifies: no hooks, caches or dependencies, and only our own request class and layer."""
    more = takes.expected_cookie_params or takes.expected_form_data or takes.dependency_batches or handler.cache
    hooked = handler.resolve_before_request() or handler.resolve_after_response() or handler.resolve_guards()
    layered = len(handler.resolve_middleware()) > 1 or handler.resolve_request_class() is not ApiRequest
    unsupported = takes.expected_reserved_kwargs - SUPPORTED_RESERVED
    return not (more or hooked or layered or handler.has_sync_callable or unsupported)


async def read_body(receive: Receive, content_length: int, limit: float) -> bytes:
    """Return a body within the limit; a body whose announced length is over the limit is not read at all."""
    if content_length > limit:
        raise RequestEntityTooLarge
    body, more = b"", True
    while more:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise ClientException("the caller has gone")
        body += message.get("body", b"")
        if len(body) > limit:
            raise RequestEntityTooLarge
        more = message.get("more_body", False)
    return body
