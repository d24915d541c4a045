"""The hall: what every call of this API finds, and what every answer carries.

Who calls under an id of their own (`x-request-id`) finds it in the answer, and can ask later what became of the call.
"""

import re
import time
from collections.abc import Awaitable, Callable, Mapping
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
from stateward.domains.mci.api.route_params import normalize_id
from stateward.domains.mci.guards.connection_grants import check_grant, is_granted, unknown_connection
from stateward.domains.mci.model import CloudConnection, record_id, vm_id
from stateward.domains.mci.provider.catalogue import Catalogue
from stateward.domains.mci.provider.provider_pool import ProviderClients
from stateward.domains.mci.service import Service
from stateward.domains.plugin import actor_of, grant_of
from stateward.errors import BadInput, UnknownName
from stateward.naming import IDEMPOTENCY_KEY, new_id
from stateward.schemas.caller import Caller
from stateward.store.records import Key

REQUEST_ID = b"x-request-id"
CONTEXT_KEY, LOG_ENTRY_KEY = "mci.hall", "mci.entry"

AnyResponse = Response[Any]


class MciDomain(Protocol):
    """The domain in this process, as far as its API needs it."""

    catalogue: Catalogue
    clients: ProviderClients

    @property
    def service(self) -> Service:
        """What can be asked; it is there when the engine is."""


class ApiContext(Struct, frozen=True):
    """What all calls share."""

    domain: MciDomain
    live_status: LiveStatus
    request_log: RequestLog


class TumblebugRequest(Request[Any, Grant, State]):
    """A request to this API."""

    @property
    def context(self) -> ApiContext:
        """What all calls share."""
        hall: ApiContext = self.scope[CONTEXT_KEY]  # type: ignore[literal-required]
        return hall

    @property
    def service(self) -> Service:
        """What can be asked."""
        return self.context.domain.service

    @property
    def catalogue(self) -> Catalogue:
        """What is known of connections, specs and images."""
        return self.context.domain.catalogue

    @property
    def caller(self) -> Caller:
        """Who asks."""
        return Caller(actor_of(self), grant_of(self).name)

    async def fields(self) -> Fields:
        """Return the body, to be read leniently."""
        return parse_body(await self.body())

    def link_operation(self, ns: str, op: str | None) -> None:
        """Note the operation that the call has led to, for whoever asks later."""
        entry: RequestLogEntry | None = self.scope.get(LOG_ENTRY_KEY)  # type: ignore[assignment]
        if entry is not None and op is not None:
            entry.operation = Key(ns, op)

    async def visible_connections(self) -> list[CloudConnection]:
        """Return the connections that one of the caller's namespaces may use; readers of everything see all."""
        namespaces = grant_of(self).namespace_filter
        found = await self.catalogue.connections()
        return [one for one in found if namespaces is None or any(is_granted(one, ns) for ns in namespaces)]

    async def visible_connection(self, name: str) -> CloudConnection:
        """Return a connection that one of the caller's namespaces may use."""
        found = {one.name: one for one in await self.visible_connections()}
        if name not in found:
            raise UnknownName("connection", name, found)
        return found[name]

    async def require_connection(self, field: str, name: str, ns: str | None = None) -> CloudConnection:
        """Return a connection that a body names; one that the namespace `ns` may not use is refused."""
        try:
            found = await self.catalogue.connection(name)
        except UnknownName as error:
            visible = [one.name for one in await self.visible_connections()]
            raise unknown_connection(field, name, visible) from error
        if ns is not None:
            check_grant(found, ns)
        return found


class RequestLogMiddleware:
    """A layer around the routes: hands out what they share, and keeps the diary."""

    def __init__(self, app: ASGIApp, hall: ApiContext) -> None:
        self._app, self._hall = app, hall

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a call on."""
        given = dict(scope["headers"]).get(REQUEST_ID, b"").decode("latin-1")
        id_ = given if re.match(IDEMPOTENCY_KEY, given) else new_id()
        entry = self._hall.request_log.begin(id_, scope, time.time())
        scope[CONTEXT_KEY], scope[LOG_ENTRY_KEY] = self._hall, entry  # type: ignore[literal-required]
        to_keep = id_ == given and entry.changes
        if to_keep:
            await store_request(self._hall.domain.service.engine, entry.to_logged_request())

        async def received() -> Any:  # noqa: ANN401 - a message
            message = await receive()
            if message["type"] == "http.request":
                entry.add_request_body(message.get("body", b""))
            return message

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (REQUEST_ID, id_.encode())]
                entry.code = message["status"]
            elif message["type"] == "http.response.body":
                entry.add_response_body(message.get("body", b""), time.time())
                if to_keep and not message.get("more_body"):
                    await store_request(self._hall.domain.service.engine, entry.to_logged_request())
            await send(message)

        await self._app(scope, received, sent)


P = ParamSpec("P")
T = TypeVar("T")
ObjectIdInPath = Callable[[Mapping[str, str]], str]
"""Returns the id of the object that a call is about, of what stands in its path."""

Route = Callable[P, Awaitable[T]]


def mci_in_path(path: Mapping[str, str]) -> str:
    """Return the id of the MCI that a call is about."""
    return path["mci"]


def vm_in_path(path: Mapping[str, str]) -> str:
    """Return the id of the VM that a call is about."""
    return vm_id(path["mci"], normalize_id(path["vm"]))


def resource_in_path(word: str) -> ObjectIdInPath:
    """Return what gives the id of the network, security group or key that a call is about."""
    return lambda path: record_id(word, path["name"])


def adds_object_state(meant: ObjectIdInPath) -> Callable[[Route[P, T]], Route[P, T]]:
    """Let a route tell the state of what it is about with the bad input that it refuses."""

    def telling(route: Route[P, T]) -> Route[P, T]:
        @wraps(route)
        async def told(*args: P.args, **named: P.kwargs) -> T:
            try:
                return await route(*args, **named)
            except BadInput as error:
                request = named["request"]
                assert isinstance(request, TumblebugRequest)
                error.state = error.state or await _state(request, meant)
                raise

        return told

    return telling


async def _state(request: TumblebugRequest, meant: ObjectIdInPath) -> str | None:
    path = request.path_params
    found = await request.service.engine.store.reader.object(Key(path["ns"], meant(path)))
    return None if found is None or found.removed else found.state
