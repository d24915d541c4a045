"""The site of a node's agent: it starts and stops instances by a local backend, and tells how they are.

The records of what was ordered are on disk before anything is started. What runs is read from the local backend.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stateward.agents.local_state import Deployed, LocalState
from stateward.agents.messages import (
    MAX_ANSWER_CHARS,
    AgentOrder,
    CommandRequest,
    Existing,
    LogPart,
    LogRequest,
    OrderAction,
)
from stateward.agents.published_ports import PublishedAddress
from stateward.agents.site import InstanceMeasure, ReportProgress, SiteCommandResult, SiteError, ThingStatus
from stateward.domains.systems.backends.local import LocalBackend
from stateward.domains.systems.backends.local.launch import HostPlace
from stateward.domains.systems.backends.port import ReadSecrets, ServiceInstance, ServiceRef, no_secrets
from stateward.domains.systems.nodes.lease_watchdog import INSTANCES, kill_instances
from stateward.domains.systems.nodes.node_lease import LeaseFile
from stateward.domains.systems.nodes.node_model import NodeOrder
from stateward.drivers.confinement import Confinement
from stateward.errors import StatewardError
from stateward.store.records import to_json

POLL_INTERVAL_S = 0.1
"""The time between two looks at the instances."""

KIND = "instance"


class NodeSite:
    """The instances of this host, below one folder; implements `AgentSite`."""

    def __init__(
        self, folder: Path, node: str, address: str, confinement: Confinement, read_secrets: ReadSecrets = no_secrets
    ) -> None:
        self._folder, self._node = folder, node
        self._known = LocalState(folder / "things")
        place = HostPlace(address, LeaseFile(folder).is_valid)
        self._backend = LocalBackend(folder / INSTANCES, confinement, read_secrets, place)
        self._running = AsyncExitStack()

    async def start(self) -> None:
        """Supervise the instances; none is started without a lease."""
        await self._running.enter_async_context(self._backend.live())

    async def close(self) -> None:
        """End the supervision; what runs goes on until the end of the lease."""
        await self._running.aclose()

    async def observe(self) -> Mapping[str, Existing]:
        """Return the instances that were ordered, and not removed since."""
        return {one.name: Existing(one.generation, one.whole) for one in self._known}

    def ports_of(self, name: str) -> tuple[PublishedAddress, ...]:  # noqa: ARG002 - the same for all
        """Return nothing: where an instance listens is in its status."""
        return ()

    async def execute(self, order: AgentOrder, report_progress: ReportProgress) -> None:  # noqa: ARG002 - it is quick
        """Start or stop an instance."""
        former = self._known.get(order.name)
        try:
            if former is not None and former.generation != order.generation:
                await self._remove(former)
            if order.work is OrderAction.DELETE:
                if former is not None:
                    await self._remove(former)
                return
            await self._start(order)
        except (OSError, msgspec.DecodeError) as error:
            raise SiteError(str(error)) from error

    async def _start(self, order: AgentOrder) -> None:
        wanted = msgspec.json.decode(order.spec, type=NodeOrder)
        self._known.save(Deployed(order.name, KIND, order.generation, whole=True, spec=order.spec))
        await self._backend.prepare(wanted.ref.system)
        service = wanted.want.service
        named = replace(service, env={**service.env, "STATEWARD_NODE": self._node})
        await self._backend.start(wanted.ref, replace(wanted.want, service=named))

    async def _remove(self, known: Deployed) -> None:
        """Stop an instance, and wait until all its processes have ended; then nothing is left of it."""
        wanted = msgspec.json.decode(known.spec, type=NodeOrder)
        name, ref = wanted.want.name, wanted.ref
        await self._backend.stop(ref, name)
        while any(one.name == name for one in await self._backend.instances(ref)):
            await self._backend.pause(ref, POLL_INTERVAL_S)
        self._known.remove(known.name)
        if not any(msgspec.json.decode(one.spec, type=NodeOrder).ref == ref for one in self._known):
            await self._backend.forget(ref)

    async def measure(self) -> Mapping[str, InstanceMeasure]:
        """Return nothing: the controller of nodes asks for no measures."""
        return {}

    async def read_log(self, request: LogRequest) -> Sequence[LogPart]:
        """Return what an instance has written."""
        known = self._known.get(request.name)
        if known is None:
            raise SiteError(f"there is no {request.name}")
        wanted = msgspec.json.decode(known.spec, type=NodeOrder)
        after = int(request.after) if request.after.isdecimal() else None
        found = await self._backend.logs(wanted.ref, wanted.want.name, after, min(request.most, MAX_ANSWER_CHARS))
        return [LogPart(one.instance, one.text, str(one.next)) for one in found]

    async def run_command(self, request: CommandRequest) -> SiteCommandResult:
        """Run a command in an instance: with its user, in its confinement and its folder."""
        known = self._known.get(request.name)
        if known is None:
            raise SiteError(f"there is no {request.name}")
        wanted = msgspec.json.decode(known.spec, type=NodeOrder)
        try:
            done = await self._backend.run_command(
                wanted.ref, wanted.want.name, request.argv, request.within, MAX_ANSWER_CHARS
            )
        except StatewardError as error:
            raise SiteError(str(error)) from error
        return SiteCommandResult(done.exit_status, done.stdout, errors=done.stderr, is_cut=done.truncated)

    async def stop_all(self) -> None:
        """Kill and remove everything, because the lease has ended: a controller may have moved it."""
        await asyncio.to_thread(kill_instances, self._folder)
        await asyncio.gather(*(self._remove(one) for one in self._known))

    async def statuses(self) -> AsyncIterator[ThingStatus]:
        """Yield the state of each instance, and again when it has changed."""
        told: dict[str, ThingStatus] = {}
        while True:
            current = await self._current()
            for name, one in current.items():
                if told.get(name) != one:
                    yield one
            told = current
            await asyncio.sleep(POLL_INTERVAL_S)

    async def _current(self) -> dict[str, ThingStatus]:
        wanted = {one.name: (one, msgspec.json.decode(one.spec, type=NodeOrder)) for one in self._known}
        refs: set[ServiceRef] = {order.ref for _, order in wanted.values()}
        seen: dict[ServiceRef, dict[str, ServiceInstance]] = {
            ref: {one.name: one for one in await self._backend.instances(ref)} for ref in refs
        }
        found = {}
        for name, (known, order) in wanted.items():
            instance = seen[order.ref].get(order.want.name)
            if instance is not None:
                found[name] = ThingStatus(name, known.generation, to_json(instance))
        return found
