"""Drift detection: an object at rest follows the power that its node shows.

An observation is three-valued: a node shows a machine, its complete listing does not have it, or it cannot say. Only
the first two count, and only if two observations agree that are so far apart that the second one is younger than the
first. A VM that has lost its power becomes HALTED; a firewall that has lost its power is started again.

Every process with a worker runs a detector; a node is checked by one of them at a time, which claims it by a
compare-and-set. Only then it reads the objects of the namespace, and keeps what is on the nodes that it has claimed. An
action that began since the object was read has changed its version, so that the drift is refused.
Orphans (`orphan_scan`) are noted with the node; the files of disks and images, which all nodes share, with one node of
each namespace.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from random import Random

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stateward.aio.supervise import repeat
from stateward.domains.ovc.firewalls import FIREWALL_ON_STATES
from stateward.domains.ovc.lifecycle import CLOUDSPACE, NODE, VM, NodeState, OvcVmState
from stateward.domains.ovc.model import NodeSeen, cloudspace_seen, node_seen, vm_seen
from stateward.domains.ovc.nodes import DiskStore, Hypervisor, NodeRegistry, NoDiskStore, Power
from stateward.domains.ovc.object_updates import update_seen
from stateward.domains.ovc.orphan_scan import OrphanScanner, record_orphans
from stateward.engine import Denied, Engine
from stateward.engine.queries import list_all
from stateward.engine.troubles import FaultIsolation
from stateward.engine.unit_of_work import UnitOfWork
from stateward.engine.work_errors import WorkError
from stateward.lifecycle import CONTROLLER, PROVIDER
from stateward.store.errors import StoreError
from stateward.store.filters import Selector
from stateward.store.port import Tx
from stateward.store.records import Key

log = logging.getLogger("stateward.ovc")

CONFIRM_DELAY_S = 0.5
"""Seconds between two observations that must agree, in addition to the lag of the node."""

DRIFT_EVENTS: dict[tuple[str, Power], str] = {
    (OvcVmState.RUNNING, Power.OFF):    "shows off",
    (OvcVmState.PAUSED,  Power.OFF):    "shows off",
    (OvcVmState.RUNNING, Power.FROZEN): "shows frozen",
    (OvcVmState.PAUSED,  Power.ON):     "shows on",
}  # fmt: skip
"""The event of a VM at rest, by its state and the power that its node shows; other pairs are no drift."""

CLAIMED_TOGETHER = 100
"""Nodes that one transaction claims, at most."""

READ_CONCURRENTLY = 4
"""Namespaces whose objects are read concurrently, at most; their nodes are checked concurrently, however many."""

IN_SERVICE = (NodeState.ENABLED, NodeState.MAINTENANCE)
"""The states of a node that is checked for orphans, also if no known machine is on it."""


class WatchedObject(Struct, frozen=True):
    """An object at rest, and where its machine runs; there are as many of these in memory as VMs on claimed nodes."""

    key: Key
    kind: str
    state: str
    version: int
    node: str
    machine: str

    def drift_event(self, power: Power) -> str:
        """Return the event of the object's drift; empty if its machine has the right power."""
        if self.kind == VM.kind:
            return DRIFT_EVENTS.get((self.state, power), "")
        return "place firewall" if power is Power.OFF else ""


class DriftDetector:
    """Checks the machines of all nodes periodically."""

    def __init__(
        self,
        engine: Engine,
        nodes: NodeRegistry,
        chance: Random,
        every: float,
        apart: float = CONFIRM_DELAY_S,
        disk_store: DiskStore | None = None,
    ) -> None:
        self._engine, self._nodes, self._chance = engine, nodes, chance
        self._every, self._apart = every, apart
        self._faults = FaultIsolation(log)
        self._readers = asyncio.Semaphore(READ_CONCURRENTLY)
        self._orphans = OrphanScanner(engine.store.reader, disk_store or NoDiskStore(), apart, every)

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Check all nodes periodically, until cancelled."""

        def interval_s() -> float:
            return self._every * self._chance.uniform(0.7, 1.3)

        await repeat("drift detection of nodes", self.check_all, interval_s, log, transient=StoreError, sleep=sleep)

    async def check_all(self) -> None:
        """Check the nodes of all namespaces that are due."""
        namespaces = await self._engine.store.reader.namespaces()
        await asyncio.gather(*(self._check_isolated(ns) for ns in namespaces))

    async def _check_isolated(self, ns: str) -> None:
        with self._faults.isolate(f"look at the nodes of {ns}"):
            await self.check_namespace(ns)

    async def check_namespace(self, ns: str) -> None:
        """Check the nodes of a namespace that are due, concurrently."""
        async with self._readers:
            # the nodes in service, and those that no process has checked lately: the claims decide about them
            serving: dict[str, None] = {}
            due: list[str] = []
            lately = await self._engine.store.reader.time() - self._every * 0.6
            async for node in list_all(self._engine.store.reader, Selector(ns, NODE.kind)):
                if node.state in IN_SERVICE:
                    serving[node.id] = None
                with self._faults.isolate(f"look at node {node.id} of {ns}"):
                    if node_seen(node).looked <= lately:
                        due.append(node.id)
            claimed: dict[str, NodeSeen] = {}
            for first in range(0, len(due), CLAIMED_TOGETHER):
                some = [Key(ns, id_) for id_ in due[first : first + CLAIMED_TOGETHER]]
                claimed |= await self._engine.store.transact(partial(_claim_turns, nodes=some, rest=self._every * 0.6))
            watched = await self._list_watched(ns, claimed) if claimed else {}
        keeper = next(iter(serving), None)
        # on no node: no power for certain
        await self._report_all([(watch, Power.OFF) for watch in watched.get("", ())])
        await asyncio.gather(
            *(
                self._check_node_isolated(Key(ns, id_), seen, watched.get(id_, []), id_ == keeper)
                for id_, seen in claimed.items()
                if id_ in watched or id_ in serving
            )
        )

    async def _list_watched(self, ns: str, nodes: Collection[str]) -> dict[str, list[WatchedObject]]:
        """Return the objects at rest that have a machine on one of the nodes, or should have one, by node."""
        reader = self._engine.store.reader
        vms = list_all(reader, Selector(ns, VM.kind, states=(OvcVmState.RUNNING, OvcVmState.PAUSED)))
        boxes = list_all(reader, Selector(ns, CLOUDSPACE.kind, states=FIREWALL_ON_STATES))
        watched: defaultdict[str, list[WatchedObject]] = defaultdict(list)
        for records, reader_of in ((vms, vm_seen), (boxes, cloudspace_seen)):
            async for record in records:
                with self._faults.isolate(f"look at {record.id} in {ns}"):
                    at = reader_of(record)
                    node = at.node if at.machine else ""
                    if record.op is None and (node in nodes or (record.kind == CLOUDSPACE.kind and not at.machine)):
                        watch = WatchedObject(
                            record.key, record.kind, record.state, record.version, at.node, at.machine
                        )
                        watched[node].append(watch)
        return dict(watched)

    async def _check_node_isolated(self, node: Key, seen: NodeSeen, those: list[WatchedObject], keeper: bool) -> None:
        """Check a node; an error does not affect the other nodes."""
        with self._faults.isolate(f"look at node {node.id} of {node.ns}"):
            hypervisor = await self._connect(node, seen)
            if hypervisor is None:
                return
            await self._report_all(await self._confirm_drift(node, seen, hypervisor, those))
            machines = {watch.machine for watch in those}
            orphans, complete = await self._orphans.find_machines(node, hypervisor, machines)
            if keeper:
                orphans |= await self._orphans.find_files()
            if orphans or seen.orphans:
                await self._engine.store.transact(lambda tx: record_orphans(tx, node, orphans, complete=complete))

    async def _connect(self, node: Key, seen: NodeSeen) -> Hypervisor | None:
        try:
            return await self._nodes.get(*node)
        except (WorkError, msgspec.ValidationError) as error:
            await self._record_trouble(node, seen, str(error))
            return None

    # --- claims ------------------------------------------------------------------------------------------------------

    async def _record_trouble(self, node: Key, seen: NodeSeen, trouble: str) -> None:
        async def save(tx: Tx) -> None:
            uow = UnitOfWork(tx)
            await uow.load([node])
            record = uow.objects.get(node)
            if record is not None and node_seen(record).trouble != trouble:
                update_seen(uow, record, replace(node_seen(record), trouble=trouble))
                await uow.apply()

        if trouble != seen.trouble:
            await self._engine.store.transact(save)

    # --- observation -------------------------------------------------------------------------------------------------

    async def _confirm_drift(
        self, node: Key, seen: NodeSeen, hypervisor: Hypervisor, those: list[WatchedObject]
    ) -> list[tuple[WatchedObject, Power]]:
        """Return the objects whose drift two observations confirm."""
        first = await hypervisor.get_powers([watch.machine for watch in those])
        unknown = sum(power is Power.UNKNOWN for power in first.values())
        await self._record_trouble(node, seen, f"it cannot say what {unknown} of its machines are" if unknown else "")
        doubtful = [watch for watch in those if watch.drift_event(first[watch.machine])]
        if not doubtful:
            return []
        await asyncio.sleep(hypervisor.lag + self._apart)
        again = await hypervisor.get_powers([watch.machine for watch in doubtful])
        shown = [(watch, again[watch.machine]) for watch in doubtful]
        return [(watch, power) for watch, power in shown if power is first[watch.machine]]

    async def _report_all(self, news: list[tuple[WatchedObject, Power]]) -> None:
        for watch, power in news:
            with self._faults.isolate(f"news of {watch.key.id} in {watch.key.ns}"):
                actor = PROVIDER if watch.kind == VM.kind else CONTROLLER
                with suppress(Denied):  # an action began meanwhile: its own observation counts
                    await self._engine.act(
                        *watch.key, watch.drift_event(power), actor=actor, who=watch.node, version=watch.version
                    )


async def _claim_turns(tx: Tx, nodes: Sequence[Key], rest: float) -> dict[str, NodeSeen]:
    uow = UnitOfWork(tx)
    await uow.load(nodes)
    claimed: dict[str, NodeSeen] = {}
    for key in nodes:
        record = uow.objects.get(key)
        if record is None or record.removed or record.kind != NODE.kind or node_seen(record).looked > uow.now - rest:
            continue
        claimed[key.id] = replace(node_seen(record), looked=uow.now)
        update_seen(uow, record, claimed[key.id])
    if claimed:
        await uow.apply()
    return claimed
