"""The plug-in of a domain: what the domain adds to a process.

    kinds         its lifecycles, with handlers, routes and guards
    routes        its HTTP routes beside the generic API
    bind_engine   gets the engine, before the worker can call a handler
    running       its background tasks while the process runs (reconcilers, connections of agents)
    demo          its activity in the demo

The server creates the plug-ins before the engine, because the engine needs their kinds.

The module also has the options by which a route of a domain declares its right, and the accessors of a request.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from stateward.access import Grant, Right
from stateward.access.roles import ACTORS
from stateward.domains.templates import Template
from stateward.drivers.confinement import Confinement
from stateward.engine import Engine, Kind
from stateward.engine.privacy import Disclosure
from stateward.lifecycle import ADMIN

if TYPE_CHECKING:  # a client of the tables alone must not wait for the web framework
    from litestar.types import ControllerRouterHandler

CompositeParts = Mapping[tuple[str, str], str]
"""The kind of the parts, by the composite's kind and the action: the action on a composite is done to all its parts."""

RIGHT, EVERYWHERE, OPEN, MESSAGES = "right", "everywhere", "open", "messages"
"""The options by which a route declares the right that it needs, and whether its errors have a field `message`."""

BODY, PLAIN_PROBLEMS = "body", "plain problems"
"""The options for the OpenAPI document: an example of a body that the route decodes itself; its own form of errors.

The form of errors is a function of the server's response and the error. It returns the response that clients read.
"""


def needs(right: Right, *, everywhere: bool = False, messages: bool = False) -> dict[str, Any]:
    """Return the options of a route that needs a right: in the namespace `ns` of its path, or in all of them.

    With `messages`, the text of an error is also in a field `message`, where clients of that API expect it.
    """
    return {RIGHT: right, EVERYWHERE: everywhere, MESSAGES: messages}


def reads(example: dict[str, Any]) -> dict[str, Any]:
    """Return the option of a route that decodes its body itself, with an example of such a body."""
    return {BODY: example}


def open_to_all(why: str) -> dict[str, Any]:
    """Return the options of a route that needs no token; `why` is the reason, for a reader of the code."""
    return {OPEN: why}


def engine_of(request: Any) -> Engine:  # noqa: ANN401 - a request or a WebSocket of any application
    """Return the engine of the application that serves a request."""
    engine: Engine = request.app.state.engine
    return engine


def grant_of(request: Any) -> Grant:  # noqa: ANN401
    """Return the rights of the caller."""
    grant: Grant = request.scope["auth"]
    return grant


def actor_of(request: Any) -> str:  # noqa: ANN401
    """Return the caller's actor, as the lifecycle tables name it."""
    return ACTORS[grant_of(request).role]


def disclosure_of(request: Any) -> Disclosure:  # noqa: ANN401
    """Return which fields of stored records the caller sees: administrators see internal ones, too."""
    return engine_of(request).kinds.disclosure(internal=actor_of(request) == ADMIN)


class ProcessContext(Struct, frozen=True):
    """The process that a plug-in is created in."""

    data_dir: Path  # the folder for files that must outlive the process
    demo: bool = False
    offers_local: bool = True  # whether tenants can use this host as a cloud
    random: Random = Random()  # noqa: S311 - for jitter and simulations, not for secrets
    on_provider_call: Callable[[str, str], None] = lambda _provider, _call: None  # called with each call to a provider
    on_calls_saved: Callable[[str, int], None] = lambda _provider, _calls: (
        None
    )  # called with the number of calls that caching saved
    confinement: Confinement = Confinement()  # of tenants' programs on this host
    settings: Mapping[str, Any] = {}  # the settings of domains, by their prefix
    templates: dict[str, Template] = {}  # by which domains create objects of other domains; each domain adds its own


class DomainPlugin:
    """The base of plug-ins: a domain with nothing but its lifecycles."""

    composite_parts: ClassVar[CompositeParts] = {}

    def __init__(self, kinds: Sequence[Kind], routes: "Sequence[ControllerRouterHandler]" = ()) -> None:
        self.kinds = list(kinds)
        self.routes = list(routes)

    def bind_engine(self, engine: Engine) -> None:
        """Keep the engine. It is not open yet; once it is, the worker may call a handler at once."""

    @asynccontextmanager
    async def running(self, engine: Engine, *, works: bool) -> AsyncIterator[None]:  # noqa: ARG002 - for subclasses
        """Run background tasks while the engine is open; `works` is true in a process that has a worker."""
        yield

    async def demo(self, engine: Engine) -> None:
        """Keep a few objects changing, for the demo, until cancelled."""
