"""The controller of nodes in a process: the hub of their agents, the follower of the journal, the watch of leases."""

import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import Random

from stateward.access.lifecycle import TOKEN
from stateward.aio.supervise import Loop, background, supervise
from stateward.domains.systems.backends.names import NODES
from stateward.domains.systems.backends.nodes_backend import NodesBackend
from stateward.domains.systems.context import SystemContext
from stateward.domains.systems.lifecycle import INSTANCE, NODE, SERVICE, ServiceState
from stateward.domains.systems.model import system_spec
from stateward.domains.systems.nodes.node_hub import NodeHub
from stateward.domains.systems.nodes.node_watch import NodeWatch
from stateward.domains.systems.object_ids import system_of
from stateward.domains.systems.service_handlers import REDEPLOY
from stateward.engine import Denied, Engine
from stateward.lifecycle import CONTROLLER
from stateward.store.errors import StoreError
from stateward.store.filters import Page, Selector
from stateward.store.records import JournalEntry

log = logging.getLogger("stateward.systems")

FOLLOWED = frozenset({NODE.kind, INSTANCE.kind, TOKEN.kind})
RETRY_EVENTS = frozenset({"ready", "uncordon", "drain"})
"""The events of a node after which failed services are tried again: it has room for them, or they must leave it."""


class NodeController:
    """The nodes of all namespaces, as this process serves and watches them."""

    hub: NodeHub

    def __init__(self, context: SystemContext, random: Random, server_url: str = "") -> None:
        self._context, self._random, self._server_url = context, random, server_url

    @property
    def _backend(self) -> NodesBackend | None:
        backend = self._context.backends.get(NODES)
        return backend if isinstance(backend, NodesBackend) else None

    def bind_engine(self, engine: Engine) -> None:
        """Create the parts that need the engine."""
        settings, secrets = self._context.settings, self._context.secrets
        self.hub = NodeHub(engine, self._random, settings.node_lease, secrets.values, self._server_url)
        if self._backend is not None:
            self._backend.bind_engine(engine, self.hub)

    @asynccontextmanager
    async def running(self, *, works: bool) -> AsyncIterator[None]:
        """Serve agents; in a process with a worker, watch leases, and tell the backend what has changed."""
        engine, settings = self._context.engine, self._context.settings
        last_seq = await engine.store.reader.last_journal_seq()
        backend = self._backend if works else None
        watches: list[Loop] = []
        if backend is not None:
            await backend.refresh_all()
            watches.append(NodeWatch(engine, settings.node_lease, settings.node_margin, time.monotonic).run)
        supervised = [supervise("watch of nodes", watch, log, transient=StoreError) for watch in watches]
        async with self.hub.running(last_seq, partial(self._on_journal, backend)), background(*supervised):
            yield

    async def _on_journal(self, backend: NodesBackend | None, page: Sequence[JournalEntry]) -> None:
        entries = [entry for entry in page if entry.kind in FOLLOWED]
        if entries:
            self.hub.on_journal(entries)
            if backend is not None:
                await backend.on_journal(entries)
                await self._retry_failed(entries)

    async def _retry_failed(self, entries: Sequence[JournalEntry]) -> None:
        """Roll out services again that failed, when a node gets room for them or is to be left."""
        engine = self._context.engine
        for ns in {entry.ns for entry in entries if entry.kind == NODE.kind and entry.event in RETRY_EVENTS}:
            failed = Selector(ns, SERVICE.kind, states=(ServiceState.FAILED.word,))
            for service in await engine.store.reader.list_objects(failed, Page(None, 10_000)):
                system = await self._context.recent_object(ns, system_of(service.id))
                if system is None or system_spec(system).backend != NODES:
                    continue
                try:
                    await engine.act(*service.key, "updating", actor=CONTROLLER, who="nodes", args={REDEPLOY: True})
                except Denied as denied:
                    log.info("service %s in %s is not rolled out again: %s", service.id, ns, denied)
