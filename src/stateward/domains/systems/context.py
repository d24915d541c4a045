"""The context of the domain's handlers: the engine, the backends, and shared reads of objects.

The handlers of one deploy work on hundreds of services at once, and all of them read the same few objects. Concurrent
reads of one object share one query.
"""

import asyncio
from collections.abc import Mapping
from math import inf

from stateward.domains.systems.address_choice import AllowedPorts
from stateward.domains.systems.backends.port import Backend, ServiceRef, SystemRef
from stateward.domains.systems.errors import OnOtherHost
from stateward.domains.systems.lifecycle import JOB, JOBRUN, NODEPOOL, SERVICE, SYSTEM
from stateward.domains.systems.model import DesiredTree, SystemLocation, seen_of, system_spec
from stateward.domains.systems.object_ids import path_of, service_id
from stateward.domains.systems.secrets.secret_actions import SecretReader
from stateward.domains.systems.settings import SystemsSettings
from stateward.engine import Engine, NotFound, Temporary
from stateward.errors import BadInput, UnknownName
from stateward.locks.paths import ROOT, Path
from stateward.store.filters import Page, Selector
from stateward.store.records import Key, Object

PAGE_SIZE, FIRST_PAGE_SIZE = 1_000, 32
"""The page size of a listing, and that of the first page below a path, where objects are few."""

OTHER_HOST_RETRY_S = 1.0
"""When work is offered again that belongs to another host."""


READ_CACHE_S = 5.0
"""How long the result of a read is kept."""


class PendingRead:
    """A shared read of an object: when it started (infinity before), and its result."""

    __slots__ = ("result", "started_at")

    def __init__(self, seen: "asyncio.Future[Object | None]") -> None:
        self.started_at, self.result = inf, seen


class SystemContext:
    """The engine, once it is bound, and the backends by name."""

    engine: Engine

    def __init__(
        self, backends: Mapping[str, Backend], settings: SystemsSettings, secrets: SecretReader, ports: AllowedPorts
    ) -> None:
        self.backends, self.settings, self.secrets, self.ports = backends, settings, secrets, ports
        self._reads: dict[Key, PendingRead] = {}
        self.polled_runs: set[ServiceRef] = set()
        """The runs of jobs that a worker of this process polls."""

    async def object(self, ns: str, id: str) -> Object | None:  # noqa: A002 - the glossary's word
        """Return an object, or None if it does not exist."""
        record = await self.engine.store.reader.object(Key(ns, id))
        return None if record is None or record.removed else record

    async def recent_object(self, ns: str, id: str, age: float = 0.0) -> Object | None:  # noqa: A002 - the glossary's word
        """Return an object from a read that is at most `age` seconds old; joins a read that has not started yet."""
        key, now = Key(ns, id), asyncio.get_running_loop().time()
        pending = self._reads.get(key)
        if pending is None or pending.started_at < now - age:
            pending = self._reads[key] = PendingRead(asyncio.ensure_future(self._read(key)))
        return await asyncio.shield(pending.result)

    async def _read(self, key: Key) -> Object | None:
        pending, loop = self._reads[key], asyncio.get_running_loop()
        pending.started_at = loop.time()
        try:
            return await self.object(*key)
        finally:
            loop.call_later(READ_CACHE_S, self._forget, key, pending)

    def _forget(self, key: Key, pending: "PendingRead") -> None:
        if self._reads.get(key) is pending:
            del self._reads[key]

    async def backend(self, system_ref: SystemRef) -> Backend:
        """Return the backend of a system; raises `Temporary` if the system runs on another host."""
        system = await self.recent_object(system_ref.ns, system_ref.system)
        if system is None:
            raise NotFound(system_ref.ns, system_ref.system)
        backend = self.backend_of(system)
        location = seen_of(system, SystemLocation)
        here = SystemLocation(**await backend.prepare(system_ref))
        if location not in (SystemLocation(), here):
            raise Temporary(
                str(OnOtherHost(system_ref.system, f"{location.host} ({location.folder})")), after=OTHER_HOST_RETRY_S
            )
        return backend

    async def is_local(self, system: Object, name: str) -> bool:
        """Tell whether a system uses this backend, and runs on this host."""
        if system_spec(system).backend != name:
            return False
        location, backend = seen_of(system, SystemLocation), self.backend_of(system)
        return location == SystemLocation() or location == SystemLocation(
            **await backend.prepare(SystemRef(system.ns, system.id))
        )

    async def check_folders(self, system: Object, wanted: DesiredTree) -> None:
        """Refuse folders that instances on this host could not use; a node tells when it starts an instance."""
        name = system_spec(system).backend
        if name in self.backends and await self.is_local(system, name):
            await self.check_folders_here(system.ns, name, wanted)

    async def check_folders_here(self, ns: str, backend: str, wanted: DesiredTree) -> None:
        """Refuse folders that instances of a backend on this host could not use."""
        folders = {program.folder: path for path, program in wanted.programs.items() if program.folder is not None}
        if not self.settings.may_use(backend, ns):  # the guard refuses it, and discloses nothing about files
            return
        for folder, path in folders.items():
            problem = await asyncio.to_thread(self.backends[backend].folder_problem, folder)
            if problem:
                raise BadInput(f"{wanted.field_of(path)}.folder", folder, problem)

    def backend_of(self, system: Object) -> Backend:
        """Return the backend of a system, wherever it runs; raises `UnknownName`."""
        name = system_spec(system).backend
        try:
            return self.backends[name]
        except KeyError:
            raise UnknownName("backend", name, self.backends) from None

    async def systems(self, ns: str | None = None) -> list[Object]:
        """Return the systems of a namespace, or of all."""
        namespaces = await self.engine.store.reader.namespaces() if ns is None else [ns]
        return [system for ns in namespaces for system in await self._list_by_prefix(Selector(ns, SYSTEM.kind), "")]

    async def services(self, system_ref: SystemRef, top: Path = ROOT) -> list[Object]:
        """Return the services at a path and below it, by id."""
        if top == ROOT:
            return await self._list_by_prefix(Selector(system_ref.ns, SERVICE.kind, system_ref.system), "")
        own = await self.object(system_ref.ns, service_id(system_ref.system, top))
        below = f"{service_id(system_ref.system, top)}."
        return [
            *([own] if own else []),
            *await self._list_by_prefix(Selector(system_ref.ns, SERVICE.kind, system_ref.system), below),
        ]

    async def pools(self, system_ref: SystemRef) -> list[Object]:
        """Return the node pools of a system, by id."""
        return await self._list_by_prefix(Selector(system_ref.ns, NODEPOOL.kind, system_ref.system), "")

    async def jobs(self, system_ref: SystemRef, top: Path = ROOT) -> list[Object]:
        """Return the jobs at a path and below it, by id."""
        jobs = await self._list_by_prefix(Selector(system_ref.ns, JOB.kind, system_ref.system), "")
        return [job for job in jobs if path_of(job.id)[: len(top)] == top]

    async def runs(self, ns: str, job: str) -> list[Object]:
        """Return the runs of a job, by id."""
        return await self._list_by_prefix(Selector(ns, JOBRUN.kind, job), "")

    async def runs_of_system(self, system_ref: SystemRef) -> list[Object]:
        """Return the runs of all jobs of a system, by id."""
        return await self._list_by_prefix(Selector(system_ref.ns, JOBRUN.kind), f"{system_ref.system}.")

    async def changes(self, system_ref: SystemRef, kind: str) -> list[Object]:
        """Return the deploys, or the teardowns, of a system, by id."""
        return await self._list_by_prefix(Selector(system_ref.ns, kind, system_ref.system), "")

    async def _list_by_prefix(self, chosen: Selector, prefix: str) -> list[Object]:
        """Return the objects whose ids start with a prefix: they are adjacent in the order of ids."""
        reader = self.engine.store.reader
        records: list[Object] = []
        after: str | None = prefix or None
        size = FIRST_PAGE_SIZE if prefix else PAGE_SIZE
        while True:
            page = await reader.list_objects(chosen, Page(after, size))
            fitting = [record for record in page if record.id.startswith(prefix)]
            records += fitting
            if len(fitting) < size:
                return records
            after, size = page[-1].id, min(4 * size, PAGE_SIZE)
