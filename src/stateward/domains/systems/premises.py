"""What the work of this domain needs beside its job: the store to look into, and the backends."""

from collections.abc import Mapping

from stateward.domains.systems.backends.port import Backend, Elsewhere, Home
from stateward.domains.systems.lifecycle import NODEPOOL, SERVICE, SYSTEM
from stateward.domains.systems.names import service_id
from stateward.domains.systems.specs import Lives, SystemSpec, seen_of, spec_of
from stateward.engine import Engine, NotFound, Temporary
from stateward.errors import UnknownName
from stateward.locks.paths import ROOT, Path
from stateward.store.records import Key, Object
from stateward.store.selection import Page, Selector

PAGE = 1_000
LATER = 1.0
"""How many seconds pass before work is offered again that belongs to another machine."""


class Premises:
    """The engine, once it is attached, and the backends by name."""

    engine: Engine

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self.backends = backends

    async def object(self, ns: str, id: str) -> Object | None:  # noqa: A002 - the glossary's word
        """Return an object that is there."""
        found = await self.engine.store.reader.object(Key(ns, id))
        return None if found is None or found.removed else found

    async def backend(self, home: Home) -> Backend:
        """Return the backend of a system; work for a system that lives on another machine is left to others."""
        found = await self.object(home.ns, home.system)
        if found is None:
            raise NotFound(home.ns, home.system)
        backend = self.named((spec_of(found, SystemSpec) or SystemSpec()).backend)
        lives = seen_of(found, Lives)
        here = Lives(**await backend.prepare(home))
        if lives not in (Lives(), here):
            raise Temporary(str(Elsewhere(home, f"{lives.host} ({lives.folder})")), after=LATER)
        return backend

    def named(self, name: str) -> Backend:
        """Return a backend by its name, or raise with those there are."""
        try:
            return self.backends[name]
        except KeyError:
            raise UnknownName("backend", name, self.backends) from None

    async def systems(self) -> list[Object]:
        """Return the systems of all namespaces."""
        namespaces = await self.engine.store.reader.namespaces()
        return [one for ns in namespaces for one in await self._listed(Selector(ns, SYSTEM.kind), "")]

    async def services(self, home: Home, top: Path = ROOT) -> list[Object]:
        """Return the services at a path and below it, by id."""
        if top == ROOT:
            return await self._listed(Selector(home.ns, SERVICE.kind, home.system), "")
        own = await self.object(home.ns, service_id(home.system, top))
        below = f"{service_id(home.system, top)}."
        return [*([own] if own else []), *await self._listed(Selector(home.ns, SERVICE.kind, home.system), below)]

    async def pools(self, home: Home) -> list[Object]:
        """Return the node pools of a system, by id."""
        return await self._listed(Selector(home.ns, NODEPOOL.kind, home.system), "")

    async def _listed(self, chosen: Selector, prefix: str) -> list[Object]:
        """Return the chosen objects whose ids begin alike: they stand together in the order of ids."""
        reader = self.engine.store.reader
        found: list[Object] = []
        after: str | None = prefix or None
        while True:
            page = await reader.list_objects(chosen, Page(after, PAGE))
            fitting = [one for one in page if one.id.startswith(prefix)]
            found += fitting
            if len(fitting) < PAGE:
                return found
            after = page[-1].id
