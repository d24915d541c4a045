"""The runtime of a domain: what its plug-in adds to a process.

    kinds         its lifecycles, with handlers, routes and guards
    routes        its HTTP routes beside the generic API
    bind_engine   gets the engine, before the worker can call a handler
    running       its background tasks while the process runs (reconcilers, connections of agents)
    demo          its activity in the demo
    find_part_actions, describe_effects   what a preview of an action says about its parts, its costs, its capacity

The server creates the runtimes before the engine, because the engine needs their kinds.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from stateward.aio.supervise import background, supervise
from stateward.engine import Engine, Kind, Request
from stateward.lifecycle import NO_FACTS
from stateward.plugin.entry_points import FoundPart
from stateward.plugin.templates import Template
from stateward.store.filters import Selector
from stateward.store.records import Object
from stateward.workloads.confinement import Confinement

if TYPE_CHECKING:  # a client of the tables alone must not wait for the web framework
    from litestar.types import ControllerRouterHandler

log = logging.getLogger("stateward.plugin")

BackgroundTask = Callable[[Engine], Awaitable[None]]
"""A function that a process runs while its engine is open, such as a reconciler or a demo."""

CompositeParts = Mapping[tuple[str, str], str]
"""The kind of the parts, by the composite's kind and the action: the action on a composite is done to all its parts."""


class PartAction(Struct, frozen=True):
    """An action on parts of a composite, to which an action on the composite leads."""

    parts: Selector
    action: str
    facts: frozenset[str] = NO_FACTS
    actor: str | None = None  # that of the composite's action, if none is given


class ExpectedChange(Struct, frozen=True):
    """An object that an action would touch, and the state in which the action is to end."""

    object: Object
    desired: str


class ProcessContext(Struct, frozen=True):
    """The process that a runtime is created in."""

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
    parts: Mapping[str, Sequence[FoundPart]] = {}  # that domains bring beside entry points, by their groups
    is_embedded: bool = True  # the database is in the data folder, and no process elsewhere works on it
    server_url: str = ""  # at which other servers reach this one
    server_port: int = 0  # on which the server of this process listens
    templates: dict[str, Template] = {}  # by which domains create objects of other domains; each domain adds its own


class DomainRuntime:
    """A domain in a process; subclasses need the engine or the settings in their handlers."""

    composite_parts: ClassVar[CompositeParts] = {}

    def __init__(
        self,
        kinds: Sequence[Kind],
        routes: "Sequence[ControllerRouterHandler]" = (),
        *,
        tasks: Sequence[BackgroundTask] = (),
        demo: BackgroundTask | None = None,
    ) -> None:
        self.kinds = list(kinds)
        self._routes = routes
        self._tasks = tuple(tasks)
        self._demo = demo

    @cached_property
    def routes(self) -> "Sequence[ControllerRouterHandler]":
        """Its HTTP routes; only a server needs them, and those of a domain take some ten milliseconds to make."""
        return list(self._routes)

    def bind_engine(self, engine: Engine) -> None:
        """Keep the engine. It is not open yet; once it is, the worker may call a handler at once."""

    @asynccontextmanager
    async def running(self, engine: Engine, *, works: bool) -> AsyncIterator[None]:
        """Run background tasks while the engine is open; `works` is true in a process that has a worker."""
        tasks = self._tasks if works else ()
        async with background(*(supervise(task.__qualname__, partial(task, engine), log) for task in tasks)):
            yield

    def acts_without_parts(self, request: Request, record: Object) -> bool:  # noqa: ARG002
        """Return whether an action of `composite_parts` is one on the composite alone while it has no parts."""
        return False

    async def find_part_actions(self, request: Request, record: Object) -> Sequence[PartAction]:
        """Return the actions on parts that an action on a composite leads to; none if it touches the object alone."""
        kind = self.composite_parts.get((record.kind, request.action))
        return (
            () if kind is None else (PartAction(Selector(record.ns, kind, record.id), request.action, request.facts),)
        )

    async def describe_effects(self, request: Request, changes: Sequence[ExpectedChange]) -> Sequence[str]:  # noqa: ARG002
        """Return sentences on the effects of a planned action, such as its cost; a preview shows them."""
        return ()

    async def demo(self, engine: Engine) -> None:
        """Keep a few objects changing, for the demo, until cancelled."""
        if self._demo is not None:
            await self._demo(engine)
