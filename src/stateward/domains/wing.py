"""A wing: a domain in a process. It is furnished before the engine, and lives beside it.

    kinds     its lifecycles, with handlers, routes and guards
    routes    what it mounts over HTTP beside the generic API
    attach    gets to know the engine, before its worker can call a handler
    live      what runs beside the engine while the process does (looking after drift, listening to agents)
    show      what it does by itself in the demo

A domain that brings no wing has its kinds all the same: objects of them can be made and moved over the generic API.
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
from stateward.lifecycle import ADMIN, Lifecycle

if TYPE_CHECKING:  # whoever only asks the tables is not to wait for a web framework
    from litestar.types import ControllerRouterHandler

PartsOf = Mapping[tuple[str, str], str]
"""The kind of the parts to all of which an action on a whole is done, by the whole's kind and the action."""

RIGHT, EVERYWHERE, OPEN, MESSAGES = "right", "everywhere", "open", "messages"
"""The options by which a route of a domain tells who may use it, and how errors are worded for its clients."""

BODY, PLAIN_PROBLEMS = "body", "plain problems"
"""The options by which it describes what cannot be seen: the body that it reads by itself; its own form of errors.

The form of errors is a function from the server's answer and the error to the answer that its clients read.
"""


def needs(right: Right, *, everywhere: bool = False, messages: bool = False) -> dict[str, Any]:
    """Return the options of a route that needs a right: in the namespace `ns` of its path, or in all of them.

    `messages` says that its clients look for the text of an error in a field `message`.
    """
    return {RIGHT: right, EVERYWHERE: everywhere, MESSAGES: messages}


def reads(example: dict[str, Any]) -> dict[str, Any]:
    """Return the option of a route that reads its body by itself, or as any JSON object: such as this one."""
    return {BODY: example}


def open_to_all(why: str) -> dict[str, Any]:
    """Return the options of a route that needs no token."""
    return {OPEN: why}


def engine_of(request: Any) -> Engine:  # noqa: ANN401 - a request or a WebSocket of any application
    """Return the engine behind the application that a call is to."""
    engine: Engine = request.app.state.engine
    return engine


def grant_of(request: Any) -> Grant:  # noqa: ANN401
    """Return what the caller may do."""
    grant: Grant = request.scope["auth"]
    return grant


def actor_of(request: Any) -> str:  # noqa: ANN401
    """Return the actor that the caller is in the tables."""
    return ACTORS[grant_of(request).role]


def disclosure_of(request: Any) -> Disclosure:  # noqa: ANN401
    """Return what the caller sees of stored records: administrators see what is internal."""
    return engine_of(request).kinds.disclosure(internal=actor_of(request) == ADMIN)


class Site(Struct, frozen=True):
    """What a wing is told of the process that it is in."""

    data: Path  # a folder for what must outlive the process
    demo: bool = False
    local: bool = True  # whether the connection to this host is offered
    chance: Random = Random()  # noqa: S311 - for jitter and simulations, not for secrets
    called: Callable[[str, str], None] = lambda _provider, _call: None  # is told of each call to a provider
    saved: Callable[[str, int], None] = lambda _provider, _calls: None  # and how many were not needed
    confinement: Confinement = Confinement()  # of programs of tenants on this host
    settings: Mapping[str, Any] = {}  # the settings of domains, by their prefix
    templates: dict[str, Template] = {}  # how domains make objects of others; each domain adds its own


class Wing:
    """A domain that brings nothing but its lifecycles; others bring more."""

    parts_of: ClassVar[PartsOf] = {}

    def __init__(self, kinds: Sequence[Kind], routes: "Sequence[ControllerRouterHandler]" = ()) -> None:
        self.kinds = list(kinds)
        self.routes = list(routes)

    def attach(self, engine: Engine) -> None:
        """Get to know the engine, before it is opened: its worker may call a handler at once."""

    @asynccontextmanager
    async def live(self, engine: Engine, *, works: bool) -> AsyncIterator[None]:  # noqa: ARG002 - others need them
        """Live beside an open engine; `works` says that this process has a worker."""
        yield

    async def show(self, engine: Engine) -> None:
        """Keep a few objects in motion, for the demo, until cancelled."""


def general_kind(lifecycle: Lifecycle) -> Kind:
    """Return a kind whose objects are made over the general API."""
    return Kind(lifecycle, general=True)


def bare(lifecycles: Sequence[Lifecycle], make: Callable[[Lifecycle], Kind] = general_kind) -> Wing:
    """Return the wing of a domain that brings none itself: its objects are made over the general API alone."""
    return Wing([make(one) for one in lifecycles])
