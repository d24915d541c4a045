"""The nodes backend: instances run on other hosts, by the agents of nodes.

The backend only stores which instance is to run on which node; the node hub of the process that has the connection
sends the orders. What agents report is stored with the instance. So any process can work on any system.

The shared port of a service is a TCP proxy on each host with a worker; it forwards to the nodes.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

from msgspec.structs import replace

from stateward.agents.node_messages import WantedImage
from stateward.aio.supervise import wait_for_event
from stateward.domains.systems.backends.changed_services import ChangedServices
from stateward.domains.systems.backends.local import LocalBackend
from stateward.domains.systems.backends.port import (
    CommandOutcome,
    InstancePhase,
    InstanceSpec,
    LogExcerpt,
    ReportText,
    ServiceInstance,
    ServiceRef,
    SystemRef,
    choose_running,
)
from stateward.domains.systems.definition import NodePool, PinnedImage, Service
from stateward.domains.systems.errors import NodeCannotAnswer, NodesFull
from stateward.domains.systems.lifecycle import INSTANCE, NODE, SERVING, InstanceState, SystemNodeState
from stateward.domains.systems.nodes.node_hub import NodeHub
from stateward.domains.systems.nodes.node_model import (
    instance_id,
    node_spec,
    node_status,
    placed_instance,
    placed_status,
    ref_of_instance,
    service_key,
)
from stateward.domains.systems.nodes.node_records import forget_instances, stop_instances
from stateward.domains.systems.nodes.placement import has_labels
from stateward.domains.systems.nodes.placement_records import PlaceRequest, find_room_problems, place_instances
from stateward.engine import Engine, Permanent
from stateward.engine.transaction_batcher import TransactionBatcher, transaction_batcher
from stateward.store.filters import Page, Selector
from stateward.store.records import JournalEntry, Key, Object

MAX_LISTED = 100_000
MOVING_RETRY_S = 0.5
"""How long after a change services are tried again that must leave a node; there may be many changes."""
MAX_NAME_CHARS = 250
"""The longest name of an instance in a message to an agent."""


class NodesBackend:
    """Runs instances on nodes; `folder` has the TCP proxies of shared ports on this host."""

    _place: TransactionBatcher[PlaceRequest, NodesFull | None]
    _stop: TransactionBatcher[Key, None]
    _forget: TransactionBatcher[Key, None]
    hub: NodeHub

    def __init__(self, folder: Path, chance: Random) -> None:
        self._chance = chance
        self._ready: dict[ServiceRef, list[str]] = {}
        self._refreshes = count(1)
        self._refreshed: dict[ServiceRef, int] = {}  # the refresh that has set the addresses
        self._proxies = LocalBackend(folder, ready_addresses=lambda ref: self._ready.get(ref, []))
        self._changed = ChangedServices()
        self._moved: dict[ServiceRef, asyncio.Event] = {}
        self._moving: set[ServiceRef] = set()  # that must leave a node, and may have to wait for room
        self._is_retried = False

    def bind_engine(self, engine: Engine, hub: NodeHub) -> None:
        """Create the parts that need the engine; the hub asks agents for logs."""
        self._engine, self.hub = engine, hub
        batcher = partial(transaction_batcher, engine.store, self._chance)
        self._place = batcher(lambda tx, many: place_instances(tx, engine.kinds, many))
        self._stop = batcher(lambda tx, many: stop_instances(tx, engine.kinds, many))
        self._forget = batcher(lambda tx, many: forget_instances(tx, engine.kinds, many))

    # --- instances ---------------------------------------------------------------------------------------------------

    async def prepare(self, system_ref: SystemRef) -> Mapping[str, str]:  # noqa: ARG002 - the same for all
        """Return a location that is the same in all processes: there is nothing to prepare."""
        return {"host": "nodes"}

    async def pin_images(
        self, system_ref: SystemRef, services: Mapping[str, Service], report: ReportText
    ) -> Mapping[str, PinnedImage]:
        """Return what the images of services are now, as one node with a container engine finds them."""
        wanted = {
            path: WantedImage(service.image, service.pull, service.registry_login)
            for path, service in services.items()
            if service.image is not None and service.pinned is None
        }
        distinct = list(dict.fromkeys(wanted.values()))
        pinned = (
            dict(zip(distinct, await self.hub.images.find(system_ref.ns, distinct, report), strict=True))
            if distinct
            else {}
        )
        return {path: PinnedImage(pinned[image].id, pinned[image].digest) for path, image in wanted.items()}

    async def instances(self, ref: ServiceRef) -> Sequence[ServiceInstance]:
        """Return the instances of a service, without those of which only the log is kept."""
        placed, nodes = await self._placed(ref)
        present = [record for record in placed if record.state != InstanceState.KEPT]
        seen = [shown_instance(record, nodes.get(placed_instance(record).node)) for record in present]
        moving = [] if ref.is_job_run else [record for record, how in zip(present, seen, strict=True) if how.must_move]
        if not moving:
            return seen
        self._moving.add(ref)  # before the search: room that is made meanwhile must not be missed
        problems = await find_room_problems(self._engine.store.reader, ref.system.ns, moving[-1:])
        why = problems.get(service_key(ref), "")
        return [replace(instance, no_room=why) if instance.must_move else instance for instance in seen]

    async def _placed(self, ref: ServiceRef) -> tuple[list[Object], dict[str, Object]]:
        """Return the stored instances of a service, and the nodes by name."""
        placed = await self._list(Selector(ref.system.ns, INSTANCE.kind, service_key(ref)))
        nodes = await self._engine.store.reader.objects(
            {Key(record.ns, placed_instance(record).node) for record in placed}
        )
        return placed, {node.id: node for node in nodes.values() if node.kind == NODE.kind and not node.removed}

    async def start(self, ref: ServiceRef, want: InstanceSpec) -> None:
        """Place an instance on a node."""
        if len(instance_id(ref, want.name)) > MAX_NAME_CHARS:
            raise Permanent(f"the path {ref.path} is too long for the backend nodes")
        full = await self._place.submit(PlaceRequest(ref, want))
        if full is not None:
            raise full

    async def stop(self, ref: ServiceRef, name: str) -> None:
        """Store that an instance is to be stopped; the proxy of this host forwards nothing more to it."""
        await self._stop.submit(Key(ref.system.ns, instance_id(ref, name)))
        await self._refresh_ready(ref)

    # --- addresses ---------------------------------------------------------------------------------------------------

    async def address(self, ref: ServiceRef, port: int | None) -> int | None:
        """Open or close the shared port of a service on this host."""
        await self._refresh_ready(ref)
        return await self._proxies.address(ref, port)

    async def address_problem(self, ref: ServiceRef, port: int | None) -> str:
        """Return why the shared port is not open on this host; a host that has yet to open it opens it."""
        if port is not None and not self._proxies.has_proxy(ref):
            await self._refresh_ready(ref)
            await self._proxies.address(ref, port)
            return ""
        return await self._proxies.address_problem(ref, port)

    async def _refresh_ready(self, ref: ServiceRef) -> None:
        """Give the addresses of the ready instances to the proxy of this host.

        A node that has only lost its connection still counts, or a restart of the controller would close all ports.
        """
        number = next(self._refreshes)
        placed, nodes = await self._placed(ref)
        if number < self._refreshed.get(ref, 0):
            return  # one that has read later was faster
        self._refreshed[ref] = number
        addresses = (ready_address(record, nodes.get(placed_instance(record).node)) for record in placed)
        self._ready[ref] = [address for address in addresses if address is not None]
        self._proxies.wake()

    # --- removal and node pools --------------------------------------------------------------------------------------

    def folder_problem(self, folder: str) -> str:  # noqa: ARG002
        """Return nothing: a node tells when it starts an instance."""
        return ""

    async def forget(self, ref: ServiceRef, *, keep_logs: bool = False) -> None:  # noqa: ARG002 - nodes have removed them
        """Close the shared port of a service on this host, and remove the logs that nodes keep of a run."""
        await self._proxies.forget(ref)
        self._ready.pop(ref, None)
        self._refreshed.pop(ref, None)
        self._moving.discard(ref)
        kept = [record.key for record in (await self._placed(ref))[0] if record.state == InstanceState.KEPT]
        await asyncio.gather(*(self._forget.submit(key) for key in kept))

    async def remove(self, system_ref: SystemRef) -> None:
        """Remove the volumes of a system on its nodes, and its files on this host."""
        await self.hub.volumes.on_system_deleted(system_ref)
        await self._proxies.remove(system_ref)

    async def ensure_pool(self, system_ref: SystemRef, name: str, pool: NodePool) -> None:
        """Check that enough nodes have the labels of a pool; placements read its definition."""
        nodes = await self._list(Selector(system_ref.ns, NODE.kind))
        fitting = [node for node in nodes if has_labels(node_spec(node).labels, pool.labels)]
        if len(fitting) < pool.nodes:
            raise NodesFull(f"{pool.nodes} nodes for pool {name}", f"{len(fitting)} with its labels are registered")

    async def remove_pool(self, system_ref: SystemRef, name: str) -> None:
        """Do nothing: a pool is only its definition."""

    async def logs(self, ref: ServiceRef, instance: str | None, after: int | None, most: int) -> Sequence[LogExcerpt]:
        """Return the logs of the present instances, and those that are kept, by the agents of their nodes."""
        placed = [(record.id, placed_instance(record)) for record in (await self._placed(ref))[0]]
        excerpts: list[LogExcerpt] = []
        for key, spec in placed:
            if instance in (None, spec.want.name):
                try:
                    parts = await self.hub.read_log(Key(ref.system.ns, spec.node), key, after, most)
                except NodeCannotAnswer as error:
                    if instance is not None:
                        raise
                    excerpts.append(LogExcerpt(spec.want.name, "", after or 0, why=str(error)))
                else:
                    ends = (int(part.next) if part.next.isdecimal() else 0 for part in parts)
                    excerpts += [
                        LogExcerpt(spec.want.name, part.text, end) for part, end in zip(parts, ends, strict=True)
                    ]
        return excerpts

    async def run_command(
        self,
        ref: ServiceRef,
        instance: str | None,
        argv: Sequence[str],
        timeout_s: float,
        max_output: int,  # noqa: ARG002 - the agent's own limit is lower
    ) -> CommandOutcome:
        """Run a command in an instance, by the agent of its node."""
        running = choose_running(str(ref), await self.instances(ref), instance)
        node = Key(ref.system.ns, running.node or "")
        done = await self.hub.run_command(node, instance_id(ref, running.name), argv, timeout_s)
        return CommandOutcome(running.name, done.status, done.written, done.errors, truncated=done.is_cut)

    async def servers(self, ref: ServiceRef) -> Mapping[str, str]:
        """Return the servers that the agents of the instances' nodes are connected to."""
        placed, nodes = await self._placed(ref)
        specs = [placed_instance(record) for record in placed]
        return {spec.want.name: self.hub.server_of(nodes[spec.node]) if spec.node in nodes else "" for spec in specs}

    # --- changes -----------------------------------------------------------------------------------------------------

    async def pause(self, ref: ServiceRef, seconds: float) -> None:
        """Wait until a service has changed, at most so many seconds."""
        moved = self._moved.setdefault(ref, asyncio.Event())
        moved.clear()
        try:
            await wait_for_event(moved, seconds)
        finally:
            self._moved.pop(ref, None)

    async def on_journal(self, entries: Sequence[JournalEntry]) -> None:
        """Act on journal entries: services change with their instances, and with the nodes of these."""
        if self._moving and not self._is_retried and any(map(_may_give_room, entries)):
            self._is_retried = True
            asyncio.get_running_loop().call_later(MOVING_RETRY_S, self._retry_moving)
        refs = {ref_of_instance(entry.ns, entry.object): None for entry in entries if entry.kind == INSTANCE.kind}
        changed_nodes = {Key(entry.ns, entry.object) for entry in entries if entry.kind == NODE.kind}
        for there in (await self.hub.instances.by_node(changed_nodes)).values():
            refs |= {ref_of_instance(*record.key): None for record in there}
        for ref in refs:
            if self._proxies.has_proxy(ref):
                await self._refresh_ready(ref)
            if ref in self._moved:
                self._moved[ref].set()
            self._changed.add(ref)

    def _retry_moving(self) -> None:
        """Let services be reconciled that must leave a node; those without room are noted again."""
        self._is_retried = False
        for ref in self._moving:
            self._changed.add(ref)
        self._moving.clear()

    async def refresh_all(self) -> None:
        """Give all addresses to the proxies of this host: they may have changed before this process started."""
        for ref in self._proxies.proxied_services():
            await self._refresh_ready(ref)

    def changed_services(self) -> AsyncIterator[ServiceRef]:
        """Yield the services whose instances have changed."""
        return aiter(self._changed)

    def live(self) -> AbstractAsyncContextManager[None]:
        """Supervise the TCP proxies of this host."""
        return self._proxies.live()

    async def _list(self, chosen: Selector) -> list[Object]:
        return await self._engine.store.reader.list_objects(chosen, Page(None, MAX_LISTED))


def _may_give_room(entry: JournalEntry) -> bool:
    """Tell whether a node may have more room since an entry."""
    return entry.kind == NODE.kind or (entry.kind == INSTANCE.kind and entry.event not in ("place", "report"))


def shown_instance(record: Object, node: Object | None) -> ServiceInstance:
    """Return an instance as last reported; on a node without a connection it does not count as ready."""
    placed, status = placed_instance(record), placed_status(record)
    seen = status.seen or ServiceInstance(placed.want.name, placed.want.revision, InstancePhase.STARTING)
    seen = replace(seen, node=placed.node)
    if record.state in (InstanceState.LEAVING, InstanceState.HALTING):
        return replace(seen, phase=InstancePhase.STOPPING, ready=False, stop_s=placed.want.service.stop_s)
    if node is None or seen.phase is InstancePhase.ENDED:
        return seen
    there = node_status(node)
    seen = replace(seen, host=there.address, must_move=node.state == SystemNodeState.DRAINING)
    if there.connected:
        return seen
    return replace(seen, ready=False, why=f"node {placed.node} is not connected")


def ready_address(record: Object, node: Object | None) -> str | None:
    """Return HOST:PORT of an instance that is to run and was last reported as ready; None if its node is lost."""
    seen = placed_status(record).seen
    if record.state != InstanceState.PLACED or seen is None or not seen.ready or not seen.port:
        return None
    return f"{node_status(node).address}:{seen.port}" if node is not None and node.state in SERVING else None
