"""The watch of nodes: those that do not renew their lease are lost, and drains end when their node is empty.

Every process with a worker watches. Each measures by its own clock for how long it has seen no renewal, so that no
jump of a wall clock can end a lease early; after a restart it measures anew.
"""

import asyncio
import logging
from collections.abc import Callable

from stateward.domains.systems.lifecycle import INSTANCE, NODE, SERVING, SystemNodeState
from stateward.domains.systems.nodes.lease_rules import Watched, is_overdue, watch_renewals
from stateward.domains.systems.nodes.node_model import NODE_LABEL, node_status
from stateward.domains.systems.nodes.node_records import lose_node
from stateward.domains.systems.nodes.placement_records import ROOM_STATES
from stateward.engine import Engine, ExternalReport
from stateward.lifecycle import CONTROLLER
from stateward.store.changes import Changes
from stateward.store.filters import Page, Selector
from stateward.store.port import Tx
from stateward.store.records import Key, Object, Progress

log = logging.getLogger("stateward.systems")

MAX_LISTED = 100_000


class NodeWatch:
    """Watches the leases and the drains of all nodes."""

    def __init__(self, engine: Engine, lease_s: float, margin_s: float, clock: Callable[[], float]) -> None:
        self._engine, self._lease_s, self._margin_s, self._clock = engine, lease_s, margin_s, clock
        self._watched: dict[Key, Watched] = {}
        self._left: dict[Key, int] = {}  # how many instances a draining node had at the last look

    async def run(self) -> None:
        """Look at all nodes ten times per lease, in a loop."""
        while True:
            await self.look()
            await asyncio.sleep(min(1.0, self._lease_s / 10))

    async def look(self) -> None:
        """Look at all nodes once."""
        reader = self._engine.store.reader
        seen: set[Key] = set()
        for ns in await reader.namespaces():
            serving = Selector(ns, NODE.kind, states=tuple(one.word for one in SERVING))
            for node in await reader.list_objects(serving, Page(None, MAX_LISTED)):
                seen.add(node.key)
                await self._check_lease(node)
                if node.state == SystemNodeState.DRAINING:
                    await self._check_drain(node)
        for gone in self._watched.keys() - seen:
            del self._watched[gone]
        for gone in self._left.keys() - seen:
            del self._left[gone]

    async def _check_lease(self, node: Object) -> None:
        status, now = node_status(node), self._clock()
        renewals, lease_s = status.renewals, max(status.lease, self._lease_s)
        watched = self._watched[node.key] = watch_renewals(self._watched.get(node.key), renewals, now)
        if is_overdue(watched, now, lease_s, self._margin_s):
            kinds = self._engine.kinds
            if await self._engine.store.transact(lambda tx: lose_node(tx, kinds, node.key, renewals)):
                log.warning("node %s in %s did not renew its lease; its instances are replaced", node.id, node.ns)

    async def _check_drain(self, node: Object) -> None:
        chosen = Selector(node.ns, INSTANCE.kind, states=ROOM_STATES, labels=((NODE_LABEL, node.id),))
        left = len(await self._engine.store.reader.list_objects(chosen, Page(None, MAX_LISTED)))
        if node.op is None:
            return
        if left:
            if self._left.get(node.key) != left:
                self._left[node.key] = left
                await self._engine.store.transact(lambda tx: _write_progress(tx, node, left))
            return
        # No placement can come in between: a draining node takes none.
        about = ExternalReport(*node.key, op=node.op, generation=node.generation, event="drained", actor=CONTROLLER)
        await self._engine.report(about)


async def _write_progress(tx: Tx, node: Object, left: int) -> None:
    text = f"{left} {'instance is' if left == 1 else 'instances are'} left"
    await tx.apply(Changes(progress=[Progress(node.ns, node.op or "", tx.now, text, None, None)]))
