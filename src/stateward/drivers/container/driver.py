"""The driver for machines that are containers of Docker or Podman.

The name of a container follows from its machine's key, so an engine creates one container for a key, however many
callers ask. An ended machine's container stays for a while: as long as it does, its key creates no new one. A container
that ended by itself counts as terminated, as a machine of a cloud that was switched off for good.

Whoever can create containers owns the host of the engine. A connection with this driver therefore starts without
grants, and machines get no capability, no path of the host, and no network unless the connection names one.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from functools import partial
from hashlib import sha256

from stateward.containers import (
    KEY_LABEL,
    ContainerEngine,
    ContainerRecord,
    ContainerSpec,
    ContainerState,
    EngineRefusal,
    EngineRefused,
    EngineUnavailable,
    ExecEnd,
    registry_of,
    start_created,
)
from stateward.drivers.container.ended_containers import EndedContainers
from stateward.drivers.container.engine_answers import (
    NAME_LABEL,
    REASONS,
    SPEC_LABEL,
    conflict,
    observation,
    outcome_of,
)
from stateward.drivers.container.machine_options import SIZE_MEANS, limits_of, open_engine, read_options
from stateward.drivers.container.reboot_records import RebootRecord, RebootRecords
from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CallUnanswered,
    Capabilities,
    CloudResource,
    CommandFailed,
    Idempotency,
    Inconclusive,
    MachineAction,
    MachineHandle,
    MachineListing,
    MachineSpec,
    Meter,
    Outcome,
    ProviderRegion,
    RefusalReason,
    ResourceListing,
    Suspension,
)
from stateward.workloads.images import EngineImageStore

REGION_LABEL = "stateward.region"
PARALLEL_CALLS = 8
"""How many machines are worked on at once: engines start containers one after the other anyway."""
MAX_OUTPUT_BYTES = 1 << 20
"""How much of a command's output is kept: the end of it."""

CAPABILITIES = Capabilities(
    suspension=Suspension.NATIVE,
    idempotency=Idempotency.NAME,
    max_bulk=100,
    has_events=True,
    runs_commands=True,
    has_ssh=False,
    has_resources=False,
    lists_reboot_tokens=True,
)


def _count_nothing(_call: str) -> None:
    """Meter of drivers whose calls nobody counts."""


class ContainerDriver:
    """Containers of one engine that carry the label of the region."""

    def __init__(
        self, region: ProviderRegion, meter: Meter = _count_nothing, engine: ContainerEngine | None = None
    ) -> None:
        self._options = read_options(region)
        self._engine = engine or open_engine(region)
        self._images = EngineImageStore(self._engine)
        self._meter = meter
        self._region = {REGION_LABEL: "/".join(filter(None, (region.provider, region.region, region.zone)))}
        self._records = RebootRecords(self._engine, self._region)
        self._gate = asyncio.Semaphore(PARALLEL_CALLS)
        self._ended = EndedContainers(self._engine, self._records, self._options.keep_s, meter)

    @property
    def caps(self) -> Capabilities:
        """The capabilities of containers."""
        return CAPABILITIES

    async def check(self, spec: str, image: str) -> CallRefused | Inconclusive | None:
        """Return why a machine of this size and image cannot be created here; None if it can."""
        if limits_of(spec) is None:
            return _unknown_size("", spec)
        self._meter("inspect image")
        try:
            await self._engine.inspect_image(image)
        except EngineRefused as error:
            if error.reason is EngineRefusal.IMAGE_MISSING and self._options.pulls:
                return None
            refused = outcome_of("", error)
            return refused if isinstance(refused, CallRefused) else None
        except EngineUnavailable as error:
            unavailable = outcome_of("", error)
            return unavailable if not isinstance(unavailable, CallRefused) else None
        return None

    # --- resources ---------------------------------------------------------------------------------------------------

    async def ensure(self, resource: CloudResource) -> Outcome:
        """Refuse: an engine has networks, but no security groups that would hold."""
        message = f"a {resource.kind} is nothing here; the connection's option `network` names the network"
        return CallRefused(resource.key, RefusalReason.UNABLE, message)

    async def remove(self, resource: CloudResource) -> Outcome:
        """Refuse: there are no resources here."""
        return await self.ensure(resource)

    async def list_resources(self) -> ResourceListing:
        """List nothing: there are no resources here."""
        return ResourceListing((), complete=True)

    # --- creates -----------------------------------------------------------------------------------------------------

    async def create(self, machine_specs: Sequence[MachineSpec]) -> Sequence[Outcome]:
        """Create machines, each key once."""
        return await asyncio.gather(
            *(self._answer(machine_spec.key, partial(self._create, machine_spec)) for machine_spec in machine_specs)
        )

    async def _create(self, machine_spec: MachineSpec) -> Outcome:
        limits = limits_of(machine_spec.spec)
        if limits is None:
            return _unknown_size(machine_spec.key, machine_spec.spec)
        spec = ContainerSpec(
            self._name_of(machine_spec.key),
            machine_spec.key,
            machine_spec.image,
            self._options.command,
            labels={
                **{f"stateward.tag.{name}": value for name, value in machine_spec.tags.items()},
                **self._region,
                NAME_LABEL: machine_spec.name,
                SPEC_LABEL: machine_spec.spec,
            },
            network=self._options.network,
            limits=limits,
            hostname=_hostname(machine_spec.name),
        )
        await self._create_container(spec)
        return await _after_effect(spec.key, self._start(spec))

    async def _create_container(self, spec: ContainerSpec) -> None:
        """Create a container, unless there is one with its name and key; an image that is missing may be pulled."""
        self._meter("create")
        try:
            await self._engine.create_container(spec)
        except EngineRefused as error:
            if await self._find(spec.key) is not None:  # the image of a container may be gone
                return
            if error.reason is not EngineRefusal.IMAGE_MISSING or not self._options.pulls:
                raise
            self._meter("pull")
            login = self._options.login
            if login is not None and login.server != registry_of(spec.image):
                login = None  # engines send it to the registry of the image, and tenants choose the image
            async for _ in self._images.pull(spec.image, login):
                pass
            await self._engine.create_container(spec)

    async def _start(self, spec: ContainerSpec) -> Outcome:
        """Start a container, unless it was started before: it may have ended since."""
        container = await self._inspect_created(spec)
        if container.state is not ContainerState.CREATED:
            return AlreadyDone(spec.key, container.id)
        self._meter("start")
        try:
            started = await start_created(self._engine, container.id, partial(self._engine.create_container, spec))
        except EngineRefused as error:
            if error.reason in REASONS:  # no repetition would start it
                self._meter("remove")
                await self._engine.remove_container(container.id, force=True)
            raise
        return CallAccepted(spec.key, started.id) if started.was_started else AlreadyDone(spec.key, started.id)

    async def _inspect_created(self, spec: ContainerSpec) -> ContainerRecord:
        """Inspect a container that was created; one that a killed engine has forgotten is created again."""
        self._meter("inspect")
        try:
            return await self._engine.inspect_container(spec.name)
        except EngineRefused as error:
            if error.reason is not EngineRefusal.NOT_FOUND:
                raise
        await self._create_container(spec)
        return await self._engine.inspect_container(spec.name)

    # --- actions -----------------------------------------------------------------------------------------------------

    async def act(self, action: MachineAction, handles: Sequence[MachineHandle]) -> Sequence[Outcome]:
        """Carry out an action on machines."""
        return await asyncio.gather(
            *(self._answer(handle.key, partial(self._act, action, handle)) for handle in handles)
        )

    async def _act(self, action: MachineAction, handle: MachineHandle) -> Outcome:
        container = await self._find(handle.key)
        if container is None:
            return CallRefused(handle.key, RefusalReason.NOT_FOUND, "there is no such machine here")
        match action:
            case MachineAction.SUSPEND:
                return await self._freeze(handle.key, container, self._engine.pause_container, ContainerState.RUNNING)
            case MachineAction.RESUME:
                return await self._freeze(handle.key, container, self._engine.unpause_container, ContainerState.PAUSED)
            case MachineAction.REBOOT:
                return await self._reboot(handle, container)
            case MachineAction.TERMINATE:
                return await self._terminate(handle.key, container)

    async def _freeze(
        self,
        key: str,
        container: ContainerRecord,
        act: Callable[[str], Awaitable[bool]],
        source: ContainerState,
    ) -> Outcome:
        """Pause a container, or let it continue."""
        if container.state not in (ContainerState.RUNNING, ContainerState.PAUSED):
            return conflict(key, container)
        if container.state is not source:
            return AlreadyDone(key, container.id)
        self._meter("pause" if source is ContainerState.RUNNING else "unpause")
        return CallAccepted(key, container.id) if await act(container.id) else AlreadyDone(key, container.id)

    async def _reboot(self, handle: MachineHandle, container: ContainerRecord) -> Outcome:
        """Restart a container, or finish the restart that was begun with this token."""
        self._meter("list volumes")
        known = await self._records.list_all(handle.key)
        begun = next((record for record in known if handle.token and record.token == handle.token), None)
        if begun is not None and begun.is_done(container):
            await self._records.confirm(begun, known)
            return AlreadyDone(handle.key, container.id)
        may_be_down = (ContainerState.EXITED,) if begun is not None else ()
        if container.state not in (ContainerState.RUNNING, *may_be_down):
            return conflict(handle.key, container)
        if begun is None and handle.token:
            self._meter("create volume")
            begun = await self._records.begin(handle.key, handle.token, container)
        self._meter("restart")
        await self._engine.restart_container(container.id)
        if begun is None:
            return CallAccepted(handle.key, container.id)
        return await _after_effect(handle.key, self._confirm(begun, known, container.id))

    async def _confirm(self, begun: RebootRecord, known: Sequence[RebootRecord], native_id: str) -> Outcome:
        await self._records.confirm(begun, known)
        return CallAccepted(begun.key, native_id)

    async def _terminate(self, key: str, container: ContainerRecord) -> Outcome:
        """End a container for good; a reboot that is not confirmed must not make it look as if it came back."""
        self._meter("list volumes")
        records = await self._records.list_all(key)
        if container.state.has_ended and all(record.is_confirmed for record in records):
            return AlreadyDone(key, container.id)
        await self._records.remove(records)
        if container.state is ContainerState.CREATED:
            self._meter("remove")
            await self._engine.remove_container(container.id, force=True)
        else:
            self._meter("kill")
            await self._engine.kill_container(container.id)
        return CallAccepted(key, container.id)

    # --- listings ----------------------------------------------------------------------------------------------------

    async def observe(self, keys: Collection[str] | None = None) -> MachineListing:
        """List machines: all containers of the region by one call, and the records of reboots by another."""
        if keys is not None and not keys:
            return MachineListing((), complete=True)
        self._meter("list")
        labels = (KEY_LABEL, *(f"{name}={value}" for name, value in self._region.items()))
        try:
            # Records first: a reboot that begins in between shows a container that runs, and not one that has ended.
            records = await self._records.list_all()
            containers = await self._engine.list_containers(labels)
        except (EngineRefused, EngineUnavailable) as error:
            return MachineListing((), complete=False, problem=str(error))
        await self._ended.sweep(containers, records)
        reboots = {record.key: record for record in sorted(records, key=lambda record: not record.is_confirmed)}
        wanted = None if keys is None else set(keys)
        machines = [
            observation(container, reboots.get(container.key))
            for container in containers
            if wanted is None or container.key in wanted
        ]
        return MachineListing(machines, complete=True)

    async def watch(self) -> AsyncGenerator[str]:
        """Yield the keys of machines that may have changed; ends when the engine does."""
        self._meter("events")
        try:
            async with aclosing(self._engine.watch_events()) as events:
                async for event in events:
                    key = event.labels.get(KEY_LABEL)
                    if event.kind == "container" and key and self._region.items() <= event.labels.items():
                        yield key
        except (EngineRefused, EngineUnavailable):
            return

    async def run(self, handle: MachineHandle, command: str, user: str, seconds: float) -> str:
        """Run a command on a machine by its shell, as its own user; `user` only sets USER and LOGNAME."""
        self._meter("exec")
        written, status = bytearray(), 0
        argv, env = ("sh", "-c", command), {"USER": user, "LOGNAME": user}
        try:
            async with (
                asyncio.timeout(seconds),
                aclosing(self._engine.stream_exec(self._name_of(handle.key), argv, env=env)) as chunks,
            ):
                async for chunk in chunks:
                    if isinstance(chunk, ExecEnd):
                        status = chunk.exit_code
                        continue
                    written += chunk.data
                    del written[:-MAX_OUTPUT_BYTES]
        except EngineRefused as error:
            raise ProcessLookupError(str(error)) from error
        except EngineUnavailable as error:
            raise ConnectionError(str(error)) from error
        output = written.decode(errors="replace")
        if status:
            raise CommandFailed(status, output)
        return output

    async def close(self) -> None:
        """Close the connections; the machines stay as they are."""
        await self._images.close()
        await self._engine.close()

    # --- in common ---------------------------------------------------------------------------------------------------

    def _name_of(self, key: str) -> str:
        return f"sw-{sha256(f'{self._region[REGION_LABEL]} {key}'.encode()).hexdigest()[:32]}"

    async def _find(self, key: str) -> ContainerRecord | None:
        """Return the container of a machine; one of the same name that has another key is not ours."""
        self._meter("inspect")
        try:
            container = await self._engine.inspect_container(self._name_of(key))
        except EngineRefused as error:
            if error.reason is EngineRefusal.NOT_FOUND:
                return None
            raise
        return container if container.key == key else None

    async def _answer(self, key: str, work: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Do work on a machine, a few machines at once; errors of the engine become outcomes."""
        async with self._gate:
            try:
                return await work()
            except (EngineRefused, EngineUnavailable) as error:
                return outcome_of(key, error)


async def _after_effect(key: str, work: Awaitable[Outcome]) -> Outcome:
    """Do the second part of work: without an answer now, nobody may say that nothing was done."""
    try:
        return await work
    except EngineUnavailable as error:
        return CallUnanswered(key, str(error))


def _unknown_size(key: str, spec: str) -> CallRefused:
    return CallRefused(key, RefusalReason.INVALID, f"spec: {spec!r} must be {SIZE_MEANS}")


def _hostname(name: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:63].strip("-")
