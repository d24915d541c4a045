"""Plain routes: their handlers take the call, parts of its path, query and headers, and its body as one record.

The framework's own way to a handler is for everybody: hooks, caches, dependencies, forms and cookies have their places
on it, and it takes longer than the engine takes to accept an action. What a plain route takes is read here at once, and
checked by the framework as it was declared to it. A route that uses more of the framework is left to it.
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from litestar import Response
from litestar.exceptions import ClientException, ValidationException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, HTTPResponseStartEvent, Receive, Scope, Send

from stateward.server.http.preconditions import etag_of
from stateward.server.http.security_headers import Header, Headers
from stateward.server.service import ApiRequest

if TYPE_CHECKING:
    from litestar._kwargs import KwargsModel


T = TypeVar("T")

REPLAYED = (b"idempotency-replayed", b"true")
"""Tells that the answer is to an earlier request with the same key."""

_JSON = (b"content-type", b"application/json")
_encode = msgspec.json.Encoder().encode


class JsonReply(Response[T]):
    """An answer whose body is one value as JSON, or nothing; it carries the version of the object that it is about."""

    def __init__(self, content: T | None, version: int, *headers: Header, status: int = 200) -> None:
        self.content = content  # type: ignore[assignment]
        self.status_code = self._status = status
        self._body = b"" if content is None else _encode(content)
        self._headers = [(b"etag", etag_of(version).encode()), *headers]
        if content is not None:
            self._headers += (_JSON, (b"content-length", b"%d" % len(self._body)))

    def add_headers(self, headers: Headers) -> None:
        """Carry further headers: those of every answer, none of which it has."""
        self._headers += headers

    def to_asgi_response(self, *_: object, **__: object) -> "JsonReply[T]":  # type: ignore[override]
        """Return what writes it: itself."""
        return self

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        """Write it."""
        start: HTTPResponseStartEvent = {
            "type": "http.response.start",
            "status": self._status,
            "headers": self._headers,
        }
        await send(start)
        await send({"type": "http.response.body", "body": self._body, "more_body": False})


SUPPORTED_RESERVED = {"request", "data"}
"""What a plain route may take, beside parameters."""


class FastRoute:
    """A plain route: reads what its handler takes, and has it answered."""

    def __init__(self, handler: HTTPRouteHandler, takes: "KwargsModel") -> None:
        self._handler = handler
        self._call = handler.fn
        self._checked = handler.signature_model.parse_values_from_connection_kwargs
        self._headers = {one.field_alias.lower().encode(): one.field_name for one in takes.expected_header_params}
        self._query = {one.field_alias: one.field_name for one in takes.expected_query_params}
        self._several = set(takes.sequence_query_parameter_names)
        named = takes.expected_header_params | takes.expected_query_params
        self._absent = {one.field_name: one.default for one in named if not one.is_required}
        self._required = [one.field_name for one in named if one.is_required]
        self._body = takes.expected_data_dto
        self._most = handler.resolve_request_max_body_size() or math.inf

    async def respond(self, call: ApiRequest) -> ASGIApp:
        """Return what a call is answered with."""
        values = await self.read_arguments(call)
        answer = await self._call(**self._checked(connection=call, kwargs=values))
        if isinstance(answer, JsonReply):
            return answer
        return await self._handler.to_response(app=call.app, data=answer, request=call)

    async def read_arguments(self, call: ApiRequest) -> dict[str, Any]:
        """Return what the handler takes, as it came; what did not come is as it was declared."""
        scope = call.scope
        values: dict[str, Any] = {**self._absent, **scope["path_params"], "request": call}
        announced = self._read_headers(scope["headers"], values)
        if scope["query_string"]:
            self._read_query(call, values)
        for name in self._required:
            if name not in values:
                raise ValidationException(extra=[{"key": name, "message": "it is missing"}])
        if self._body is not None and (body := await read_body(call.receive, announced, self._most)):
            values["data"] = self._body(call).decode_bytes(body)
        return values

    def _read_headers(self, headers: Iterable[Header], values: dict[str, Any]) -> int:
        """Read the headers that are wanted, and return how long the body is said to be."""
        announced = 0
        for name, value in reversed([*headers]):  # of several with one name, the first counts
            if name in self._headers:
                values[self._headers[name]] = value.decode("latin-1")
            elif name == b"content-length" and value.isdigit():
                announced = int(value)
        return announced

    def _read_query(self, call: ApiRequest, values: dict[str, Any]) -> None:
        several: dict[str, list[str]] = {}
        for name, value in call.query_params.multi_items():
            if name in self._several:
                values[self._query[name]] = several.setdefault(name, [])
                several[name].append(value)
            elif name in self._query:
                values[self._query[name]] = value


def is_fast_route(handler: HTTPRouteHandler, takes: "KwargsModel") -> bool:
    """Tell whether a route is plain; the only layer around it is our own, and so is its call."""
    more = takes.expected_cookie_params or takes.expected_form_data or takes.dependency_batches or handler.cache
    hooked = handler.resolve_before_request() or handler.resolve_after_response() or handler.resolve_guards()
    layered = len(handler.resolve_middleware()) > 1 or handler.resolve_request_class() is not ApiRequest
    return not (
        more or hooked or layered or handler.has_sync_callable or takes.expected_reserved_kwargs - SUPPORTED_RESERVED
    )


async def read_body(receive: Receive, announced: int, most: float) -> bytes:
    """Return a body that is no longer than it may be; one that is announced as longer is not even read."""
    if announced > most:
        raise RequestEntityTooLarge
    body, more = b"", True
    while more:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise ClientException("the caller has gone")
        body += message.get("body", b"")
        if len(body) > most:
            raise RequestEntityTooLarge
        more = message.get("more_body", False)
    return body
