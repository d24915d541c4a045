"""The parts of the application that every request uses, and the request class."""

from typing import Any

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from msgspec import Struct

from stateward.access import Grant, Tokens
from stateward.access.quotas import Quotas
from stateward.access.sessions import Sessions
from stateward.config import Config
from stateward.engine import Engine
from stateward.plugin.registry import Plugins
from stateward.server.auth.audit import AuditLog
from stateward.server.auth.authenticator import Authenticator
from stateward.server.drawings import Drawings
from stateward.server.http.security_headers import Headers
from stateward.server.presenter import Presenter, sees_internal
from stateward.server.routes.composite_actions import CompositeActions
from stateward.server.transition_history import TransitionHistory
from stateward.server.views import StateClasses
from stateward.store.port import Reader

AnyConnection = ASGIConnection[Any, Any, Any, Any]


class Service(Struct, frozen=True):
    """The parts that all requests of an application share."""

    engine: Engine
    tokens: Tokens
    sessions: Sessions
    quotas: Quotas
    config: Config
    authenticator: Authenticator
    audit: AuditLog
    state_classes: StateClasses
    drawings: Drawings
    headers: Headers
    composite_actions: CompositeActions
    plugins: Plugins
    history: TransitionHistory

    @property
    def reader(self) -> Reader:
        """The reader of the store."""
        return self.engine.store.reader

    def page_size(self, limit: int) -> int:
        """Return the size of a page: the limit that the caller asks for, or the configured one."""
        return min(limit, self.config.page_limit)


def service_of(connection: AnyConnection) -> Service:
    """Return the parts of the application that serves a connection."""
    service: Service = connection.app.state["service"]
    return service


class ApiRequest(Request[Any, Grant, State]):
    """A request to the API, after authentication."""

    @property
    def service(self) -> Service:
        """The parts of the application."""
        return service_of(self)

    @property
    def grant(self) -> Grant:
        """The caller's grant."""
        grant: Grant = self.scope["auth"]
        return grant

    @property
    def presenter(self) -> Presenter:
        """The presenter of stored records for the caller."""
        service = self.service
        return Presenter(service.engine.kinds.disclosure(internal=sees_internal(self.grant)), service.state_classes)
