"""Context of a request: the domain, the caller, the request log, and the object state in errors.

A caller who sends an `x-request-id` gets it back in the response, and can look up the request later.
"""

import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

from litestar import Request, Response
from litestar.datastructures import State
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from msgspec import Struct

from stateward.access import Grant
from stateward.domains.mci.api.lenient_json import Fields, parse_body
from stateward.domains.mci.api.live_status import LiveStatus
from stateward.domains.mci.api.request_log import RequestLog, RequestLogEntry
from stateward.domains.mci.api.request_log_store import store_request
from stateward.domains.mci.api.tumblebug_params import check_choice, normalize_id
from stateward.domains.mci.guards.connection_grants import check_grant, is_granted, unknown_connection
from stateward.domains.mci.model import CloudConnection, record_id, vm_id
from stateward.domains.mci.provider.catalogue import Catalogue
from stateward.domains.mci.provider.provider_pool import ProviderClients
from stateward.domains.mci.service import Service
from stateward.engine.dry_run import is_dry_run
from stateward.errors import BadInput, UnknownName
from stateward.naming import IDEMPOTENCY_KEY, new_id
from stateward.plugin.route_options import actor_of, grant_of
from stateward.schemas.caller import Caller
from stateward.store.records import Key

REQUEST_ID = b"x-request-id"
CONTEXT_KEY, LOG_ENTRY_KEY = "mci.context", "mci.entry"

AnyResponse = Response[Any]


class MciDomain(Protocol):
    """The parts of the domain that its API uses."""

    catalogue: Catalogue
    clients: ProviderClients

    @property
    def service(self) -> Service:
        """The service; available when the engine is open."""


class ApiContext(Struct, frozen=True):
    """The context that all requests share."""

    domain: MciDomain
    live_status: LiveStatus
    request_log: RequestLog


class TumblebugRequest(Request[Any, Grant, State]):
    """A request to the mci API."""

    @property
    def context(self) -> ApiContext:
        """The context that all requests share."""
        context: ApiContext = self.scope[CONTEXT_KEY]  # type: ignore[literal-required]
        return context

    @property
    def service(self) -> Service:
        """The service of the domain."""
        return self.context.domain.service

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue of connections, specs and images."""
        return self.context.domain.catalogue

    @property
    def caller(self) -> Caller:
        """The caller of the request."""
        return Caller(actor_of(self), grant_of(self).name)

    async def fields(self) -> Fields:
        """Return the body for lenient reading."""
        return parse_body(await self.body())

    def link_operation(self, ns: str, op: str | None) -> None:
        """Link the request to the operation that it has started, for the request log."""
        entry: RequestLogEntry | None = self.scope.get(LOG_ENTRY_KEY)  # type: ignore[assignment]
        if entry is not None and op is not None:
            entry.operation = Key(ns, op)

    @property
    def request_id(self) -> str:
        """The id of the request: that of the caller, or a new one."""
        entry: RequestLogEntry = self.scope[LOG_ENTRY_KEY]  # type: ignore[literal-required]
        return entry.head.id

    async def visible_connections(self) -> list[CloudConnection]:
        """Return the connections that one of the caller's namespaces may use; a global reader sees all."""
        namespaces = grant_of(self).namespace_filter
        connections = await self.catalogue.connections()
        return [
            connection
            for connection in connections
            if namespaces is None or any(is_granted(connection, ns) for ns in namespaces)
        ]

    async def visible_connection(self, name: str) -> CloudConnection:
        """Return a connection that one of the caller's namespaces may use."""
        visible = {connection.name: connection for connection in await self.visible_connections()}
        if name not in visible:
            raise UnknownName("connection", name, visible)
        return visible[name]

    async def require_connection(self, field: str, name: str, ns: str | None = None) -> CloudConnection:
        """Return the connection that a body names; refuse one without a grant for the namespace `ns`."""
        try:
            place = await self.catalogue.connection(name)
        except UnknownName as error:
            visible = [connection.name for connection in await self.visible_connections()]
            raise unknown_connection(field, name, visible) from error
        if ns is not None:
            check_grant(place, ns)
        return place


def list_response(word: str, records: Sequence[Any], option: str | None) -> AnyResponse:
    """Return views under the word of their type; with `option=id`, their ids only."""
    if check_choice("option", option, "id") == "id":
        return Response({"output": list(dict.fromkeys(record.id for record in records))})
    return Response({word: records})


class RequestLogMiddleware:
    """ASGI middleware around the routes: sets the context and logs the request."""

    def __init__(self, app: ASGIApp, context: ApiContext) -> None:
        self._app, self._context = app, context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        given = dict(scope["headers"]).get(REQUEST_ID, b"").decode("latin-1")
        id_ = given if re.match(IDEMPOTENCY_KEY, given) else new_id()
        entry = self._context.request_log.begin(id_, scope, time.time())
        scope[CONTEXT_KEY], scope[LOG_ENTRY_KEY] = self._context, entry  # type: ignore[literal-required]
        to_keep = id_ == given and entry.head.changes and not is_dry_run()
        if to_keep:
            await store_request(self._context.domain.service.engine, entry.to_logged_request())

        async def received() -> Any:  # noqa: ANN401 - a message
            message = await receive()
            if message["type"] == "http.request":
                entry.body.add(message.get("body", b""))
            return message

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (REQUEST_ID, id_.encode())]
                entry.code = message["status"]
            elif message["type"] == "http.response.body":
                entry.answer.add(message.get("body", b""))
                entry.ended = time.time()
                if to_keep and not message.get("more_body"):
                    await store_request(self._context.domain.service.engine, entry.to_logged_request())
            await send(message)

        await self._app(scope, received, sent)


P = ParamSpec("P")
T = TypeVar("T")
ObjectIdInPath = Callable[[Mapping[str, str]], str]
"""Returns the id of the object that a request is about, from the parameters of its path."""

Route = Callable[P, Awaitable[T]]


def mci_in_path(path: Mapping[str, str]) -> str:
    """Return the id of the MCI in the path."""
    return path["mci"]


def vm_in_path(path: Mapping[str, str]) -> str:
    """Return the id of the VM in the path."""
    return vm_id(path["mci"], normalize_id(path["vm"]))


def resource_in_path(resource_type: str) -> ObjectIdInPath:
    """Return a function that gives the id of the network, security group or key in the path."""
    return lambda path: record_id(resource_type, path["name"])


def adds_object_state(object_id: ObjectIdInPath) -> Callable[[Route[P, T]], Route[P, T]]:
    """Let a route add the state of its object to the bad input that it refuses, as in other refusals.

    Most input is parsed before the object is read, so the state is read only if it is needed.
    """

    def decorate(route: Route[P, T]) -> Route[P, T]:
        @wraps(route)
        async def wrapped(*args: P.args, **named: P.kwargs) -> T:
            try:
                return await route(*args, **named)
            except BadInput as error:
                request = named["request"]
                assert isinstance(request, TumblebugRequest)
                error.state = error.state or await _state(request, object_id)
                raise

        return wrapped

    return decorate


async def _state(request: TumblebugRequest, object_id: ObjectIdInPath) -> str | None:
    path = request.path_params
    record = await request.service.engine.store.reader.object(Key(path["ns"], object_id(path)))
    return None if record is None or record.removed else record.state
