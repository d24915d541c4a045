"""The plug-in of the edge domain: its kinds, its API, the agents' connections, and its policies."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from stateward.access.lifecycle import TOKEN
from stateward.agents.messages import Load
from stateward.domains.edge.agents.agent_hub import HEARTBEAT_INTERVAL_S, ORDER_RETRY_S, AgentHub
from stateward.domains.edge.agents.controller_lease import CONTROLLER_LEASE_S, ControllerLease
from stateward.domains.edge.api.routes import routes
from stateward.domains.edge.demo import run_demo
from stateward.domains.edge.handlers import Handlers
from stateward.domains.edge.lifecycle import APP, AUTOPROV, AUTOSCALE, FLAVOR, LISTENER
from stateward.domains.edge.policy.demand import ClusterLoad
from stateward.domains.edge.policy.policy_controller import POLICY_INTERVAL_S, PolicyController
from stateward.domains.edge.references import guard_record, referenced_records
from stateward.domains.edge.service import Service
from stateward.domains.plugin import DomainPlugin, ProcessContext
from stateward.engine import Engine, Kind, NotFound
from stateward.store.errors import StoreError
from stateward.store.filters import JournalFilter
from stateward.store.port import Store, Topic
from stateward.store.records import JournalEntry

log = logging.getLogger("stateward.edge")

PAGE = 500
SAFETY = 5.0
"""How many seconds pass at most between two looks at the journal, should a wake-up call be lost."""

Loop = Callable[[], Awaitable[None]]


class EdgePlugin(DomainPlugin):
    """The edge domain in a process."""

    service: Service
    office: AgentHub
    steward: PolicyController

    def __init__(
        self,
        context: ProcessContext,
        *,
        beat: float = HEARTBEAT_INTERVAL_S,
        retry: float = ORDER_RETRY_S,
        lease: float = CONTROLLER_LEASE_S,
        every: float = POLICY_INTERVAL_S,
    ) -> None:
        self._context = context
        self._times = {"heartbeat_s": beat, "retry_s": retry}
        self._lease, self._every = lease, every
        self._handlers = Handlers()
        records = [
            Kind(one, guard=guard_record, lock_set=referenced_records, general=True)
            for one in (FLAVOR, APP, AUTOSCALE, AUTOPROV)
        ]
        kinds = [*self._handlers.kinds(), *records, Kind(LISTENER)]
        super().__init__(kinds, routes(lambda: self.service, lambda: self.office, lambda: self.steward))

    def bind_engine(self, engine: Engine) -> None:
        """Create the parts of the domain that need the engine."""
        self._handlers.engine = engine
        self.service = Service(engine)
        self.steward = PolicyController(self.service, every=self._every)
        self.presence = ControllerLease(engine, lease=self._lease)
        self.office = AgentHub(engine, self.presence.id, self._context.random, self._loaded, **self._times)

    async def _loaded(self, ns: str, cluster: str, load: Load) -> None:
        if not load.is_in_range:
            log.warning("a load was reported of %s that is out of range: it does not count", cluster)
            return
        try:
            await self.service.report_load(ns, cluster, ClusterLoad(load.cpu, load.mem, load.connections))
        except NotFound:
            log.warning("a load was reported of %s, which is not known", cluster)

    @asynccontextmanager
    async def running(self, engine: Engine, *, works: bool) -> AsyncIterator[None]:
        """Follow the journal and the agents' connections; where there is a worker, apply policies."""
        self._after = await engine.store.reader.last_journal_seq()
        await self.presence.acquire()
        await self.office.record_disconnects(await self.presence.lost_connections())

        async def follow() -> None:
            await self._follow(engine.store, works=works)

        loops: list[Loop] = [follow, self.presence.keep_renewing, self.office.watch_connections]
        if works:
            loops.append(self.steward.run)
        tasks = [asyncio.create_task(_tireless(loop)) for loop in loops]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.office.close()
            await self.presence.release()

    async def _follow(self, store: Store, *, works: bool) -> None:
        """Take what is new in the journal to those whom it concerns."""
        async for seq, lines in pages(store, self._after):
            if any(one.kind == LISTENER.kind and one.event != "listen" for one in lines):
                await self.office.record_disconnects(await self.presence.lost_connections())
            self.office.on_journal(lines)
            if works:
                await self.steward.on_journal(lines)
            self._after = seq

    async def demo(self, engine: Engine) -> None:  # noqa: ARG002 - the service knows it
        """Keep a few cloudlets in motion."""
        await run_demo(self.service, self.office, self._context.random)


async def pages(store: Store, after: int) -> AsyncIterator[tuple[int, Sequence[JournalEntry]]]:
    """Yield what is new of this domain in the journal, page by page, each with its last number, for ever."""
    news = asyncio.Event()

    def told(topics: Topic) -> None:
        if topics & Topic.JOURNAL:
            news.set()

    stop = store.subscribe(told)
    try:
        while True:
            news.clear()
            lines = await store.reader.journal(after, PAGE, JournalFilter())
            if lines:
                after = lines[-1].seq
                yield after, [one for one in lines if one.kind.startswith("edge.") or one.kind == TOKEN.kind]
            if len(lines) < PAGE:
                try:
                    async with asyncio.timeout(SAFETY):
                        await news.wait()
                except TimeoutError:
                    continue
    finally:
        stop()


async def _tireless(loop: Loop) -> None:
    """Run a loop, and again should it fail."""
    while True:
        try:
            await loop()
        except StoreError as error:
            log.warning("waits for the store: %s", error)
        except Exception:
            log.exception("has failed and goes on")
        await asyncio.sleep(1.0)


def create_plugin(context: ProcessContext) -> DomainPlugin:
    """Create the plug-in; STATEWARD_EDGE_BEAT sets the seconds between two heartbeats of an agent."""
    return EdgePlugin(context, beat=float(os.environ.get("STATEWARD_EDGE_BEAT", HEARTBEAT_INTERVAL_S)))
