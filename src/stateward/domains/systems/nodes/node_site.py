"""The site of a node's agent: it starts and stops instances, and tells how they are.

Processes are run by a local backend, and containers by a container backend, if the host has an engine for them. The
records of what was ordered are on disk before anything is started. What runs is read from the backends.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeAlias
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from stateward.agents.local_state import Deployed, LocalState
from stateward.agents.message_types import clip_text
from stateward.agents.messages import (
    MAX_ANSWER_CHARS,
    AgentOrder,
    CommandRequest,
    Existing,
    LogPart,
    LogRequest,
    OrderAction,
)
from stateward.agents.node_messages import FoundImage, ImageAnswer, ImageRequest, VolumeRemoval, VolumesRemoved
from stateward.agents.site import AgentSite, ReportProgress, SiteCommandResult, SiteError, ThingStatus
from stateward.containers import ContainerEngine, EngineUnavailable
from stateward.domains.systems.backends.container import ContainerBackend
from stateward.domains.systems.backends.container.container_specs import EngineReach
from stateward.domains.systems.backends.local import LocalBackend
from stateward.domains.systems.backends.local.launch import HostPlace
from stateward.domains.systems.backends.port import InstancePhase, ReadSecrets, SystemRef, no_secrets
from stateward.domains.systems.definition import Service
from stateward.domains.systems.nodes.container_fence import CONTAINERS
from stateward.domains.systems.nodes.lease_watchdog import INSTANCES, kill_instances
from stateward.domains.systems.nodes.node_model import NodeOrder, NodeRecord, ended_without_trace
from stateward.errors import StatewardError
from stateward.store.records import to_json
from stateward.workloads.confinement import Confinement

POLL_INTERVAL_S = 0.1
"""The time between two looks at the instances."""

KIND = "instance"
STOPPED = "it was stopped"
NO_ENGINE = "this node has no container engine"
NO_SYSTEM = SystemRef("", "")

InstanceBackend: TypeAlias = LocalBackend | ContainerBackend


class NodeSite(AgentSite):
    """The instances of this host, below one folder."""

    def __init__(
        self,
        folder: Path,
        node: str,
        place: HostPlace,
        confinement: Confinement,
        read_secrets: ReadSecrets = no_secrets,
        engine: ContainerEngine | None = None,
    ) -> None:
        self._folder, self._node = folder, node
        self._known = LocalState(folder / "things")
        self._processes = LocalBackend(folder / INSTANCES, confinement, read_secrets, place)
        self._containers: ContainerBackend | None = None
        if engine is not None:
            reach = EngineReach(place.host, place.host)
            self._containers = ContainerBackend(
                folder / CONTAINERS,
                engine,
                reach,
                read_secrets,
                place,
                open_networks=True,  # a node has one namespace
            )
        self._running = AsyncExitStack()
        self._locks: WeakValueDictionary[SystemRef, asyncio.Lock] = WeakValueDictionary()

    def count_containers(self) -> int:
        """Return how many of the instances that were ordered are containers."""
        return sum(_read(thing).want.service.image is not None for thing in self._known)

    async def start(self) -> None:
        """Supervise the instances; none is started without a lease."""
        for record in map(_read, self._known):
            if record.ended is not None:  # the agent may have been killed before it was stopped
                await self._backend(record).stop(record.ref, record.want.name)
        await self._running.enter_async_context(self._processes.live())
        if self._containers is not None:
            await self._running.enter_async_context(self._containers.live())

    def _backend(self, wanted: NodeOrder) -> InstanceBackend:
        if wanted.want.service.image is None:
            return self._processes
        if self._containers is None:
            raise SiteError(NO_ENGINE)
        return self._containers

    async def close(self) -> None:
        """End the supervision; what runs goes on until the end of the lease."""
        await self._running.aclose()

    async def observe(self) -> Mapping[str, Existing]:
        """Return the instances that were ordered, and not removed since."""
        return {thing.name: Existing(thing.generation, thing.whole) for thing in self._known}

    async def execute(self, order: AgentOrder, report_progress: ReportProgress) -> None:  # noqa: ARG002 - it is quick
        """Start an instance, or remove it; an update stops one of a job, and keeps its log."""
        former = self._known.get(order.name)
        try:
            if order.work is OrderAction.UPDATE:
                await self._halt(former or self._new_record(order), order.generation, STOPPED)
                return
            if former is not None and former.generation != order.generation:
                await self._remove(former)
            if order.work is OrderAction.DELETE:
                if former is not None:
                    await self._remove(former)
                return
            await self._start(order)
        except (OSError, msgspec.DecodeError) as error:
            raise SiteError(str(error)) from error

    def _new_record(self, order: AgentOrder) -> Deployed:
        record = msgspec.json.decode(order.spec, type=NodeRecord)
        return Deployed(order.name, KIND, order.generation, whole=False, spec=to_json(record))

    async def _start(self, order: AgentOrder) -> None:
        """Start an instance; the record is whole when the backend has the order, so after a crash it comes again."""
        known = self._known.get(order.name) or self._new_record(order)
        wanted = _read(known)
        backend = self._backend(wanted)
        async with self._lock(wanted.ref.system):
            known = self._known.save(known)
            if wanted.ended is None:
                await backend.prepare(wanted.ref.system)
                service = wanted.want.service
                named = replace(service, env={**service.env, "STATEWARD_NODE": self._node})
                await backend.start(wanted.ref, replace(wanted.want, service=named))
            self._known.save(replace(known, whole=True))

    def _lock(self, system_ref: SystemRef) -> asyncio.Lock:
        """Return the lock of a system: the removal of its last instance must not remove what a new one has written."""
        return self._locks.setdefault(system_ref, asyncio.Lock())

    async def _halt(self, known: Deployed, generation: int, why: str) -> None:
        """Stop an instance that was to run once, and keep how it ended, and its log."""
        wanted = _read(known)
        if wanted.ended is None:
            listed = await self._backend(wanted).instances(wanted.ref)
            seen = [instance for instance in listed if instance.name == wanted.want.name]
            has_ended = bool(seen) and seen[0].phase is InstancePhase.ENDED
            ended = seen[0] if has_ended else ended_without_trace(wanted.want, self._node, why)
            wanted = replace(wanted, ended=ended)
            self._known.save(replace(known, spec=to_json(wanted)))  # before it is stopped: it is never started again
        await self._stop(wanted)
        self._known.save(replace(known, generation=generation, whole=True, spec=to_json(wanted)))

    async def _stop(self, wanted: NodeRecord) -> None:
        """Stop an instance, and wait until all its processes have ended."""
        backend = self._backend(wanted)
        await backend.stop(wanted.ref, wanted.want.name)
        while any(instance.name == wanted.want.name for instance in await backend.instances(wanted.ref)):
            await backend.pause(wanted.ref, POLL_INTERVAL_S)

    async def _remove(self, known: Deployed) -> None:
        """Stop an instance, and remove its record; its log goes with the last one of its service or run."""
        wanted = _read(known)
        await self._stop(wanted)
        async with self._lock(wanted.ref.system):
            self._known.remove(known.name)
            backend = self._backend(wanted)
            left = [record for record in map(_read, self._known) if self._backend(record) is backend]
            if not any(record.ref == wanted.ref for record in left):
                await backend.forget(wanted.ref)
            if isinstance(backend, ContainerBackend) and not any(
                record.ref.system == wanted.ref.system for record in left
            ):
                await backend.leave(wanted.ref.system)

    async def read_log(self, request: LogRequest) -> Sequence[LogPart]:
        """Return what an instance has written."""
        known = self._known.get(request.name)
        if known is None:
            raise SiteError(f"there is no {request.name}")
        wanted = _read(known)
        after = int(request.after) if request.after.isdecimal() else None
        backend, most = self._backend(wanted), min(request.most, MAX_ANSWER_CHARS)
        try:
            excerpts = await backend.logs(wanted.ref, wanted.want.name, after, most)
        except StatewardError as error:
            raise SiteError(str(error)) from error
        return [LogPart(excerpt.instance, excerpt.text, str(excerpt.next)) for excerpt in excerpts]

    async def run_command(self, request: CommandRequest) -> SiteCommandResult:
        """Run a command in an instance: with its user, in its confinement and its folder."""
        known = self._known.get(request.name)
        if known is None:
            raise SiteError(f"there is no {request.name}")
        wanted = _read(known)
        try:
            done = await self._backend(wanted).run_command(
                wanted.ref, wanted.want.name, request.argv, request.within, MAX_ANSWER_CHARS
            )
        except StatewardError as error:
            raise SiteError(str(error)) from error
        return SiteCommandResult(done.exit_status, done.stdout, errors=done.stderr, is_cut=done.truncated)

    async def find_images(self, request: ImageRequest) -> ImageAnswer:
        """Return what images are now for the container engine."""
        if self._containers is None:
            raise SiteError(NO_ENGINE)
        services = {
            str(number): Service(image=image.image, pull=image.pull, registry_login=image.login)  # type: ignore[arg-type]
            for number, image in enumerate(request.images)
        }
        numbers = request.request, request.notify
        try:
            pinned = await self._containers.pin_images(NO_SYSTEM, services, no_report)
        except EngineUnavailable as error:
            raise SiteError(str(error)) from error
        except StatewardError as error:
            return ImageAnswer(*numbers, refusal=clip_text(str(error)))
        return ImageAnswer(*numbers, tuple(FoundImage(pinned[name].id, pinned[name].digest) for name in services))

    async def remove_volumes(self, request: VolumeRemoval) -> VolumesRemoved:
        """Remove the volumes of systems that were deleted."""
        if self._containers is None:
            raise SiteError(NO_ENGINE)
        for system_ref in (SystemRef(request.ns, name) for name in request.systems):
            if any(_read(thing).ref.system == system_ref for thing in self._known):
                raise SiteError(f"instances of {system_ref.system} are here")
            try:
                await self._containers.remove(system_ref)
            except (StatewardError, OSError) as error:
                raise SiteError(str(error)) from error
        return VolumesRemoved(request.request, request.notify)

    async def stop_all(self) -> None:
        """Kill everything, because the lease has ended: a controller may have moved it. Only ends of jobs are kept."""
        await asyncio.to_thread(kill_instances, self._folder)
        await asyncio.gather(*(self._clear(thing) for thing in self._known))

    async def _clear(self, known: Deployed) -> None:
        if _read(known).want.run_once:
            await self._halt(known, known.generation, f"the lease of its node {self._node} ended")
        else:
            await self._remove(known)

    async def statuses(self) -> AsyncIterator[ThingStatus]:
        """Yield the state of each instance, and again when it has changed."""
        told: dict[str, ThingStatus] = {}
        while True:
            current = await self._current()
            for name, status in current.items():
                if told.get(name) != status:
                    yield status
            told = current
            await asyncio.sleep(POLL_INTERVAL_S)

    async def _current(self) -> dict[str, ThingStatus]:
        wanted = {thing.name: (thing, _read(thing)) for thing in self._known}
        services = {(self._backend(record), record.ref) for _, record in wanted.values() if record.ended is None}
        seen = {
            (backend, ref): {shown.name: shown for shown in await backend.instances(ref)} for backend, ref in services
        }
        statuses = {}
        for name, (known, record) in wanted.items():
            instance = record.ended or seen[self._backend(record), record.ref].get(record.want.name)
            if instance is None:
                continue
            statuses[name] = ThingStatus(name, known.generation, to_json(instance))
            if instance.phase is InstancePhase.ENDED and record.ended is None and self._known.get(name) is known:
                # Only then the backend may remove its folder; its log stays.
                self._known.save(replace(known, spec=to_json(replace(record, ended=instance))))
                await self._backend(record).stop(record.ref, record.want.name)
        return statuses


async def no_report(text: str) -> None:
    """Drop a line about the progress of a pull: the answer tells how it ended."""


def _read(known: Deployed) -> NodeRecord:
    return msgspec.json.decode(known.spec, type=NodeRecord)
