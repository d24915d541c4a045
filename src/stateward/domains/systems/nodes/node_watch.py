"""The watch of nodes: those that do not renew their lease are lost, and drains end when their node is empty.

Every process with a worker watches. Each measures by its own clock for how long it has seen no renewal, so that no
jump of a wall clock can end a lease early; after a restart it measures anew.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from stateward.domains.systems.lifecycle import NODE, SERVING, SystemNodeState
from stateward.domains.systems.nodes.lease_rules import Watched, is_overdue, watch_renewals
from stateward.domains.systems.nodes.node_instances import NodeInstances
from stateward.domains.systems.nodes.node_model import node_status, placed_instance
from stateward.domains.systems.nodes.node_records import lose_node
from stateward.domains.systems.nodes.placement_records import ROOM_STATES, find_room_problems
from stateward.engine import Engine, ExternalReport
from stateward.errors import count_text
from stateward.lifecycle import CONTROLLER
from stateward.store.changes import Changes
from stateward.store.filters import Page, Selector
from stateward.store.port import Tx
from stateward.store.records import Key, Object, Progress

log = logging.getLogger("stateward.systems")

MAX_LISTED = 100_000
MAX_SERVICES_NAMED = 3
"""How many services without room a drain names."""
ROOM_SEARCH_INTERVAL_S = 5.0
"""How often a drain that does not go on looks for what it waits for."""


class NodeWatch:
    """Watches the leases and the drains of all nodes."""

    def __init__(self, engine: Engine, lease_s: float, margin_s: float, clock: Callable[[], float]) -> None:
        self._engine, self._lease_s, self._margin_s, self._clock = engine, lease_s, margin_s, clock
        self._instances = NodeInstances(engine)
        self._watched: dict[Key, Watched] = {}
        self._drains: dict[Key, DrainReport] = {}  # of draining nodes

    async def run(self) -> None:
        """Look at all nodes ten times per lease, in a loop."""
        while True:
            await self.look()
            await asyncio.sleep(min(1.0, self._lease_s / 10))

    async def look(self) -> None:
        """Look at all nodes once."""
        reader = self._engine.store.reader
        seen: set[Key] = set()
        draining: dict[Key, Object] = {}
        for ns in await reader.namespaces():
            serving = Selector(ns, NODE.kind, states=tuple(state.word for state in SERVING))
            for node in await reader.list_objects(serving, Page(None, MAX_LISTED)):
                seen.add(node.key)
                await self._check_lease(node)
                if node.state == SystemNodeState.DRAINING:
                    draining[node.key] = node
        for key, there in (await self._instances.by_node(draining)).items():
            await self._check_drain(draining[key], [instance for instance in there if instance.state in ROOM_STATES])
        for gone in self._watched.keys() - seen:
            del self._watched[gone]
        for gone in self._drains.keys() - seen:
            del self._drains[gone]

    async def _check_lease(self, node: Object) -> None:
        status, now = node_status(node), self._clock()
        renewals, lease_s = status.renewals, max(status.lease, self._lease_s)
        watched = self._watched[node.key] = watch_renewals(self._watched.get(node.key), renewals, now)
        if is_overdue(watched, now, lease_s, self._margin_s):
            kinds = self._engine.kinds
            if await self._engine.store.transact(lambda tx: lose_node(tx, kinds, node.key, renewals)):
                log.warning("node %s in %s did not renew its lease; its instances are replaced", node.id, node.ns)

    async def _check_drain(self, node: Object, left: Sequence[Object]) -> None:
        if node.op is None:
            return
        if left:
            await self._report_drain(node, left)
            return
        # No placement can come in between: a draining node takes none.
        about = ExternalReport(*node.key, op=node.op, generation=node.generation, event="drained", actor=CONTROLLER)
        await self._engine.report(about)

    async def _report_drain(self, node: Object, left: Sequence[Object]) -> None:
        """Store what a drain waits for, if that has changed; the search for room reads all instances."""
        known, now = self._drains.get(node.key), self._clock()
        is_same_drain = known is not None and known.op == node.op
        if known is not None and is_same_drain and known.left == len(left) and now - known.at < ROOM_SEARCH_INTERVAL_S:
            return
        services = {instance.parent or "": instance for instance in left if not placed_instance(instance).want.run_once}
        reader = self._engine.store.reader
        problems = await find_room_problems(reader, node.ns, list(services.values())) if services else {}
        runs = sum(placed_instance(instance).want.run_once for instance in left)
        text = drain_text(len(left), runs, problems)
        self._drains[node.key] = DrainReport(node.op or "", len(left), now, text)
        if known is None or not is_same_drain or known.text != text:
            await self._engine.store.transact(lambda tx: _write_progress(tx, node, text))


class DrainReport(Struct, frozen=True):
    """What was last found out about a drain: its operation, how many instances were left, when, and in words."""

    op: str
    left: int
    at: float
    text: str


def drain_text(left: int, runs: int, problems: Mapping[str, str]) -> str:
    """Return what a drain waits for: instances that are left, runs of jobs, and services that no node has room for."""
    said = [f"{left} {'instance is' if left == 1 else 'instances are'} left"]
    if runs:
        said.append(f"{count_text(runs, 'instance')} of jobs {'runs' if runs == 1 else 'run'} to the end")
    for service, problem in sorted(problems.items())[:MAX_SERVICES_NAMED]:
        said.append(f"service {service} stays: {problem}")
    more = len(problems) - MAX_SERVICES_NAMED
    return "; ".join([*said, f"{count_text(more, 'more service')} without room"] if more > 0 else said)


async def _write_progress(tx: Tx, node: Object, text: str) -> None:
    await tx.apply(Changes(progress=[Progress(node.ns, node.op or "", tx.now, text, None, None)]))
