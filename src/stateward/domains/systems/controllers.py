"""Following: a system follows its services, and a service follows its instances.

The journal tells which services and node pools had news; what they add up to is counted, and the system moved there. A
backend tells which instances had news; a service that nobody is changing is moved to where they say it is. Both can be
done by several processes at once: the second one finds nothing to do.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from stateward.domains.systems.backends.port import Backend, Home, Ref
from stateward.domains.systems.context import Premises
from stateward.domains.systems.lifecycle import NODEPOOL, SERVICE, SYSTEM, NodePoolState, ServiceState, SystemState
from stateward.domains.systems.model import Wanted, spec_of
from stateward.domains.systems.object_ids import path_of, service_id, system_of
from stateward.domains.systems.service_handlers import lacking
from stateward.domains.systems.states import OWN, followed, service_state, settled_facts
from stateward.engine import Denied
from stateward.engine.troubles import FaultIsolation
from stateward.lifecycle import CONTROLLER
from stateward.locks.paths import parse_path
from stateward.store.filters import JournalFilter, Selector

log = logging.getLogger("stateward.systems")

AGAIN = 1.0
"""How many seconds pass before a service is looked at again that could not be moved."""

TRIES = 5
WHO = "systems"

SYSTEM_STATES = {one.word: one for one in SystemState}
SERVICE_STATES = {one.word: one for one in ServiceState}
POOL_STATES = {one.word: one for one in NodePoolState}


class RollUps:
    """Keeps systems in step with their services and node pools."""

    def __init__(self, premises: Premises) -> None:
        self._premises = premises
        self._faults = FaultIsolation(log)

    async def refresh(self, home: Home) -> None:
        """Move a system to what its parts add up to; whoever is faster has done it."""
        engine = self._premises.engine
        for _ in range(TRIES):
            found = await self._premises.object(home.ns, home.system)
            if found is None or found.kind != SYSTEM.kind or found.state in OWN:
                return
            target = await self._target(home, SYSTEM_STATES[found.state])
            if target == found.state:
                return
            with suppress(Denied):
                await engine.act(home.ns, home.system, target.word, actor=CONTROLLER, who=WHO, version=found.version)

    async def _target(self, home: Home, state: SystemState) -> SystemState:
        reader = self._premises.engine.store.reader
        counts = await reader.count_states(Selector(home.ns, parent=home.system))
        services = [SERVICE_STATES[word] for kind, word in counts if kind == SERVICE.kind]
        return followed(state, services, [POOL_STATES[word] for kind, word in counts if kind == NODEPOOL.kind])

    async def run(self) -> None:
        """Follow the journal, for ever; several news of one system are one."""
        engine = self._premises.engine
        after = await engine.store.reader.last_journal_seq()
        # All systems at first: something may have changed while nobody followed.
        dirty = {Home(one.ns, one.id): None for one in await self._premises.systems()}
        news, loop = asyncio.Event(), asyncio.get_running_loop()
        news.set()

        def mark_dirty(home: Home) -> None:
            dirty[home] = None
            news.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen(after, mark_dirty))
            while True:
                await news.wait()
                news.clear()
                began = loop.time()
                for home in list(dirty):
                    del dirty[home]
                    if not await self._refresh_alone(home):
                        loop.call_later(AGAIN, mark_dirty, home)
                await asyncio.sleep(loop.time() - began)  # half of the time is enough for it, however much there is

    async def _listen(self, after: int, mark_dirty: Callable[[Home], None]) -> None:
        async for line in self._premises.engine.watch(after, JournalFilter()):
            if line.kind in (SERVICE.kind, NODEPOOL.kind) and line.source != line.target:
                mark_dirty(Home(line.ns, system_of(line.object)))

    async def _refresh_alone(self, home: Home) -> bool:
        """Move a system, and tell whether that was done; an error with it is not the others'."""
        done = False
        with self._faults.isolate(f"following of system {home.system} in {home.ns}"):
            await self.refresh(home)
            done = True
        return done  # noqa: RET504 - an error ends the block above early


class Watch:
    """Keeps services in step with their instances, at one backend."""

    def __init__(self, premises: Premises, name: str, backend: Backend) -> None:
        self._premises, self._name, self._backend = premises, name, backend
        self._again: dict[Ref, None] = {}
        self._faults = FaultIsolation(log)

    async def run(self) -> None:
        """Follow the backend, and the node pools, for ever."""
        after = await self._premises.engine.store.reader.last_journal_seq()
        await self._sweep()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listening())
            group.create_task(self._heeding_pools(after))
            group.create_task(self._looking_again())

    async def _sweep(self) -> None:
        """Look at all services once: what is lost since somebody looked last has nobody to tell of it."""
        for one in await self._premises.systems():
            with self._faults.isolate(f"look at system {one.id} in {one.ns}"):
                if await self._premises.is_here(one, self._name):
                    for service in await self._premises.services(Home(one.ns, one.id)):
                        await self._look_alone(Ref(Home(one.ns, one.id), str(path_of(service.id))))

    async def _heeding_pools(self, after: int) -> None:
        """Look at the services of node pools that change; a little later, because most changes are over by then."""
        async for line in self._premises.engine.watch(after, JournalFilter(kind=NODEPOOL.kind)):
            if line.source != line.target:
                with self._faults.isolate(f"news of node pool {line.object} in {line.ns}"):
                    await self._heed_pool(Home(line.ns, system_of(line.object)), line.object.partition("~")[2])

    async def _heed_pool(self, home: Home, pool: str) -> None:
        system = await self._premises.object(home.ns, home.system)
        if system is not None and await self._premises.is_here(system, self._name):
            for one in await self._premises.services(home):
                wanted = spec_of(one, Wanted)
                if wanted is not None and wanted.service.node_pool == pool:
                    self._again[Ref(home, str(path_of(one.id)))] = None

    async def _listening(self) -> None:
        async for ref in self._backend.news():
            await self._look_alone(ref)

    async def _looking_again(self) -> None:
        while True:
            await asyncio.sleep(AGAIN)
            for ref in list(self._again):
                await self._look_alone(ref)

    async def _look_alone(self, ref: Ref) -> None:
        """Look at a service; if that fails, it is looked at again later, and the others go on."""
        done = False
        with self._faults.isolate(f"look at service {ref} in {ref.home.ns}"):
            await self._look(ref)
            done = True
        if not done:
            self._again[ref] = None

    async def _look(self, ref: Ref) -> None:
        """Move a service to where its instances say it is, unless somebody is changing it; then look again later."""
        self._again.pop(ref, None)
        found = await self._premises.object(ref.home.ns, service_id(ref.home.system, parse_path(ref.path)))
        wanted = None if found is None else spec_of(found, Wanted)
        if found is None or wanted is None:
            return
        if found.op is not None:
            self._again[ref] = None
            return
        seen = await self._backend.instances(ref)
        provided = not await lacking(self._premises, ref, wanted.service)
        provided = provided and await self._backend.is_addressed(ref, wanted.service.address)
        state = service_state(settled_facts(wanted.service.instances, wanted.revision, seen, provided=provided))
        if state == found.state or (found.state == ServiceState.FAILED and state != ServiceState.STABLE):
            return
        engine = self._premises.engine
        try:
            told = {"revision": wanted.revision, "ready": sum(one.ready for one in seen)}
            ill = {one.name: one.why for one in seen if one.why}
            await engine.act(
                found.ns,
                found.id,
                state.word,
                actor=CONTROLLER,
                who=WHO,
                version=found.version,
                seen={**told, "ill": ill} if ill else told,
            )
        except Denied:
            self._again[ref] = None
