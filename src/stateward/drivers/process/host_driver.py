"""The base of the drivers whose machines are processes of this host: creates and actions.

Calls run concurrently, but one at a time per machine. A call that has started is finished even if its caller was
cancelled. Otherwise the machine's lock would be free while a thread still starts its process.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ClassVar, ParamSpec, TypeVar

from msgspec.structs import replace

from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CallUnanswered,
    Capabilities,
    CloudResource,
    MachineAction,
    MachineHandle,
    MachineSpec,
    MachineState,
    Meter,
    Observation,
    Outcome,
    ProviderRegion,
    RefusalReason,
    ResourceListing,
    TransientFailure,
)
from stateward.drivers.process.errors import BadMachineRecord, MachineLocked, ProcessStillRunning, os_error_text
from stateward.drivers.process.machine_dir import (
    MachineDir,
    MachinePhase,
    MachineRecord,
    MachineStatus,
    ProcessStatus,
    new_record,
    open_private,
)
from stateward.drivers.process.ssh_daemon import HOST_KEY, SSH
from stateward.drivers.process.supervisor import MachineKind, MachineScan, Milestone, ProcessSupervisor
from stateward.drivers.ssh_keys import new_ssh_key_pair
from stateward.errors import BadInput
from stateward.workloads.host_ports import PortClaims

THREADS = 8
DEFAULT_PORTS = "20000-29999"
"""The ports of SSH servers of machines: below those of outgoing connections."""

ENDED_RETENTION_S = 3600.0
"""How long a machine that has ended is still listed."""
SWEEP_INTERVAL_S = 60.0

P = ParamSpec("P")
T = TypeVar("T")
RecordAction = Callable[[MachineRecord], Awaitable[Outcome]]


class HostDriver(ABC):
    """A driver of one kind of machine in one folder; a subclass carries out the actions and lists the machines."""

    capabilities: ClassVar[Capabilities]
    no_resources: ClassVar[str]
    """The refusal of a resource, as a format string of its kind."""

    def __init__(self, provider_region: ProviderRegion, kind: MachineKind, meter: Meter, milestone: Milestone) -> None:
        self._meter = meter
        self._supervisor = ProcessSupervisor(_folder(provider_region), kind, milestone)
        root, ports = self._supervisor.machine_dir.root, provider_region.options.get("ssh_ports", DEFAULT_PORTS)
        self._ports = PortClaims(port_range(ports), root / SSH / "ports")
        self._keep = float(provider_region.options.get("keep", ENDED_RETENTION_S))
        self._swept = time.monotonic()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="machines")
        self._work: set[asyncio.Task[Outcome]] = set()

    @property
    def caps(self) -> Capabilities:
        """The capabilities of this kind of machine."""
        return self.capabilities

    async def check(self, spec: str, image: str) -> CallRefused | None:
        """Return why a machine of this size and image cannot be created here; None if it can."""
        return self._check("", spec, image)

    @abstractmethod
    def _check(self, key: str, spec: str, image: str) -> CallRefused | None: ...

    @abstractmethod
    async def _act(self, action: MachineAction, handle: MachineHandle, record: MachineRecord) -> Outcome:
        """Carry out an action on a machine whose lock is held."""

    async def ensure(self, resource: CloudResource) -> Outcome:
        """Refuse: there are no resources here."""
        return CallRefused(resource.key, RefusalReason.UNABLE, self.no_resources.format(resource.kind))

    async def remove(self, resource: CloudResource) -> Outcome:
        """Refuse: there are no resources here."""
        return await self.ensure(resource)

    async def list_resources(self) -> ResourceListing:
        """List nothing: there are no resources here."""
        return ResourceListing((), complete=True)

    async def close(self) -> None:
        """Finish the calls under way; the machines stay as they are."""
        await asyncio.gather(*self._work, return_exceptions=True)
        self._pool.shutdown(wait=False)

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking function in the thread pool."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: function(*args, **kwargs))

    async def _scan(self, keys: Collection[str] | None = None) -> MachineScan:
        return await self._in_thread(self._supervisor.scan, keys)

    def _run_to_end(self, key: str, work: Awaitable[Outcome]) -> asyncio.Future[Outcome]:
        """Start work on a machine, which goes on if the caller is cancelled; its errors become outcomes."""
        task = asyncio.create_task(_outcome_of(key, work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return asyncio.shield(task)

    # --- creates -----------------------------------------------------------------------------------------------------

    async def create(self, machine_specs: Sequence[MachineSpec]) -> Sequence[Outcome]:
        """Create machines, each key once."""
        if time.monotonic() > self._swept + min(self._keep, SWEEP_INTERVAL_S):
            await self._forget_ended_machines()
        return await asyncio.gather(
            *(self._run_to_end(machine_spec.key, self._create(machine_spec)) for machine_spec in machine_specs)
        )

    async def _create(self, machine_spec: MachineSpec) -> Outcome:
        if refusal := self._check(machine_spec.key, machine_spec.spec, machine_spec.image):
            return refusal
        async with self._supervisor.machine_dir.lock(machine_spec.key):
            return await self._in_thread(self._start, machine_spec)

    def _start(self, machine_spec: MachineSpec) -> Outcome:
        record = self._supervisor.machine_dir.read(machine_spec.key)
        if record is not None and (record.phase is not MachinePhase.STARTING or record.boot > 1):
            return AlreadyDone(record.key, record.native_id)
        self._meter("spawn")
        if record is None:
            return self._start_first(machine_spec)
        self._supervisor.finish_start(record)
        return CallAccepted(record.key, record.native_id)

    def _start_first(self, machine_spec: MachineSpec) -> Outcome:
        record = new_record(machine_spec, self._supervisor.machine_dir.root)
        try:
            ready = self._prepare_login(machine_spec, record)
        except (BadInput, OSError) as error:
            self._supervisor.machine_dir.remove(record.key)
            if isinstance(error, OSError):
                return TransientFailure(record.key, os_error_text(error))
            return CallRefused(record.key, RefusalReason.INVALID, str(error))
        return self._start_new(ready)

    def _prepare_login(self, machine_spec: MachineSpec, record: MachineRecord) -> MachineRecord:  # noqa: ARG002
        """Return the record of a new machine with its SSH port and keys; a subclass whose machines have SSH does."""
        return record

    def _claim_login(self, record: MachineRecord, keys: tuple[str, ...]) -> MachineRecord:
        """Give a new machine a port of this host and a host key, whose private half is in its folder."""
        folder = self._supervisor.machine_dir.path_of(record.key)
        pair = new_ssh_key_pair()
        with open(folder / HOST_KEY, "w", opener=open_private) as file:
            file.write(pair.private)
        port = self._ports.claim(folder)
        return replace(record, ssh_port=port, host_key=pair.public, authorized_keys=keys)

    def _start_new(self, record: MachineRecord) -> Outcome:
        try:
            self._supervisor.start(record)
        except OSError as error:
            if self._supervisor.inspect(record).process is not None:
                return TransientFailure(
                    record.key, os_error_text(error)
                )  # only the record failed: a retry takes it over
            self._supervisor.machine_dir.remove(record.key)
            if isinstance(error, (FileNotFoundError, PermissionError)):
                return CallRefused(record.key, RefusalReason.UNABLE, str(error))
            return TransientFailure(record.key, os_error_text(error))
        return CallAccepted(record.key, record.native_id)

    # --- actions -----------------------------------------------------------------------------------------------------

    async def act(self, action: MachineAction, handles: Sequence[MachineHandle]) -> Sequence[Outcome]:
        """Carry out an action on machines that have a record."""
        return await asyncio.gather(
            *(self._change(handle.key, partial(self._act, action, handle)) for handle in handles)
        )

    def _change(self, key: str, change: RecordAction) -> asyncio.Future[Outcome]:
        """Change a machine that has a record, while nobody else does."""
        return self._run_to_end(key, self._change_locked(key, change))

    async def _change_locked(self, key: str, change: RecordAction) -> Outcome:
        if await self._in_thread(self._supervisor.machine_dir.read, key) is None:
            return CallRefused(key, RefusalReason.NOT_FOUND, "there is no such machine here")
        async with self._supervisor.machine_dir.lock(key):
            record = await self._in_thread(self._supervisor.machine_dir.read, key)
            if record is None:
                return CallRefused(key, RefusalReason.NOT_FOUND, "there is no such machine here any more")
            return await change(record)

    # --- machines that have ended ------------------------------------------------------------------------------------

    async def _forget_ended_machines(self) -> None:
        """Remove the machines that ended long ago."""
        self._swept = time.monotonic()
        for status in (await self._scan()).machines:
            if status.process_status is ProcessStatus.GONE:
                await self._change(status.record.key, lambda record: self._in_thread(self._forget_if_old, record))

    def _forget_if_old(self, record: MachineRecord) -> Outcome:
        """Remove a machine that ended long ago; one that was found dead is first recorded as ended."""
        if self._supervisor.inspect(record).process_status is ProcessStatus.GONE:
            if record.phase is not MachinePhase.ENDING:
                self._supervisor.terminate(record)
            elif self._supervisor.machine_dir.record_age_s(record.key) > self._keep:
                self._supervisor.machine_dir.remove(record.key)
        return AlreadyDone(record.key, record.native_id)


async def _outcome_of(key: str, work: Awaitable[Outcome]) -> Outcome:
    try:
        return await work
    except ProcessStillRunning as error:
        return CallUnanswered(key, str(error))
    except OSError as error:
        return TransientFailure(key, os_error_text(error))
    except (MachineLocked, BadMachineRecord) as error:
        return TransientFailure(key, str(error))


def conflict(status: MachineStatus) -> CallRefused:
    """Refuse an action in the present state of a machine."""
    return CallRefused(status.record.key, RefusalReason.CONFLICT, str(status))


def observation(
    status: MachineStatus,
    state: MachineState,
    native_state: str,
    details: Mapping[str, str],
    *,
    private_ip: str = "",
    unconfirmed_reboot: str = "",
) -> Observation:
    """Return a machine of this host as a listing shows it."""
    record = status.record
    pid = {} if status.process is None else {"pid": str(status.process.pid)}
    return Observation(
        record.key,
        record.native_id,
        state,
        native_state,
        record.name,
        private_ip=private_ip,
        ssh_port=record.ssh_port,
        host_key=record.host_key,
        details={"boots": str(record.boot), "spec": record.spec, "image": record.image, **pid, **details},
        reboot_tokens=(record.token,) if record.token else (),
        unconfirmed_reboot=unconfirmed_reboot,
    )


def _folder(provider_region: ProviderRegion) -> MachineDir:
    path = provider_region.options.get("folder", "")
    if not path:
        raise BadInput("folder", path, "a folder for the machines of this region")
    try:
        return MachineDir(Path(path).absolute())
    except OSError as error:
        raise BadInput("folder", path, f"a folder that can be used ({error.strerror})") from error


def port_range(text: str) -> range:
    """Read a range of ports such as `20000-29999`."""
    first, dash, last = text.partition("-")
    numbers = [int(part) if part.strip().isdecimal() else 0 for part in (first, last)]
    if not dash or not 1024 <= numbers[0] <= numbers[1] <= 65535:
        raise BadInput("ssh_ports", text, f"two ports from 1024 to 65535, the lower one first, such as {DEFAULT_PORTS}")
    return range(numbers[0], numbers[1] + 1)
