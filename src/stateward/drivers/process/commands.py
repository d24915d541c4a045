"""Creates and actions of the drivers of this host: concurrent, but one at a time per machine.

A call that has started is finished even if its caller was cancelled. Otherwise the machine's lock would be free while a
thread still starts its process.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CallUnanswered,
    MachineHandle,
    MachineSpec,
    Meter,
    Outcome,
    ProviderRegion,
    RefusalReason,
    TransientFailure,
)
from stateward.drivers.process.errors import BadMachineRecord, MachineLocked, ProcessStillRunning
from stateward.drivers.process.machine_dir import MachineDir, MachinePhase, MachineRecord, ProcessStatus, new_record
from stateward.drivers.process.supervisor import MachineKind, Milestone, ProcessSupervisor
from stateward.errors import BadInput

THREADS = 8
ENDED_RETENTION_S = 3600.0
"""How long a machine that has ended is still listed."""
SWEEP_INTERVAL_S = 60.0

P = ParamSpec("P")
T = TypeVar("T")
Check = Callable[[str, str, str], CallRefused | None]


class MachineCommands:
    """Carries out creates and actions on the machines of one region."""

    def __init__(self, provider_region: ProviderRegion, kind: MachineKind, meter: Meter, milestone: Milestone) -> None:
        self.meter = meter
        self.supervisor = ProcessSupervisor(_folder(provider_region), kind, milestone)
        self._keep = float(provider_region.options.get("keep", ENDED_RETENTION_S))
        self._swept = time.monotonic()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="machines")
        self._work: set[asyncio.Task[Outcome]] = set()

    async def in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking function in the thread pool."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: function(*args, **kwargs))

    async def create(self, machine_specs: Sequence[MachineSpec], check: Check) -> Sequence[Outcome]:
        """Create machines, each key once."""
        if time.monotonic() > self._swept + min(self._keep, SWEEP_INTERVAL_S):
            await self.forget_ended_machines()
        return await asyncio.gather(
            *(self._run_to_end(self._create(machine_spec, check)) for machine_spec in machine_specs)
        )

    async def act(
        self, handles: Sequence[MachineHandle], action: Callable[[MachineHandle, MachineRecord], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        """Carry out an action on machines that have a record."""
        return await asyncio.gather(*(self._run_to_end(self._act(handle, action)) for handle in handles))

    def _run_to_end(self, work: Coroutine[None, None, Outcome]) -> asyncio.Future[Outcome]:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return asyncio.shield(task)

    async def _create(self, machine_spec: MachineSpec, check: Check) -> Outcome:
        if refusal := check(machine_spec.key, machine_spec.spec, machine_spec.image):
            return refusal
        try:
            async with self.supervisor.machine_dir.lock(machine_spec.key):
                return await self.in_thread(self._start, machine_spec)
        except (OSError, MachineLocked, BadMachineRecord) as error:
            return TransientFailure(machine_spec.key, str(error))

    def _start(self, machine_spec: MachineSpec) -> Outcome:
        record = self.supervisor.machine_dir.read(machine_spec.key)
        if record is not None and (record.phase is not MachinePhase.STARTING or record.boot > 1):
            return AlreadyDone(record.key, record.native_id)
        self.meter("spawn")
        if record is None:
            record = new_record(machine_spec, self.supervisor.machine_dir.root)
            return self._start_new(record)
        try:
            self.supervisor.finish_start(record)
        except ProcessStillRunning as error:
            return CallUnanswered(record.key, str(error))
        return CallAccepted(record.key, record.native_id)

    def _start_new(self, record: MachineRecord) -> Outcome:
        try:
            self.supervisor.start(record)
        except OSError as error:
            if (
                self.supervisor.inspect(record).process is not None
            ):  # only the record failed: the next try takes the process over
                return TransientFailure(record.key, str(error))
            self.supervisor.machine_dir.remove(record.key)
            unable = isinstance(error, (FileNotFoundError, PermissionError))
            return (
                CallRefused(record.key, RefusalReason.UNABLE, str(error))
                if unable
                else TransientFailure(record.key, str(error))
            )
        return CallAccepted(record.key, record.native_id)

    async def _act(
        self, handle: MachineHandle, action: Callable[[MachineHandle, MachineRecord], Awaitable[Outcome]]
    ) -> Outcome:
        try:
            if await self.in_thread(self.supervisor.machine_dir.read, handle.key) is None:
                return CallRefused(handle.key, RefusalReason.NOT_FOUND, "there is no such machine here")
            async with self.supervisor.machine_dir.lock(handle.key):
                return await self._act_on(handle, action)
        except ProcessStillRunning as error:
            return CallUnanswered(handle.key, str(error))
        except (OSError, MachineLocked, BadMachineRecord) as error:
            return TransientFailure(handle.key, str(error))

    async def _act_on(
        self, handle: MachineHandle, action: Callable[[MachineHandle, MachineRecord], Awaitable[Outcome]]
    ) -> Outcome:
        record = await self.in_thread(self.supervisor.machine_dir.read, handle.key)
        if record is None:
            return CallRefused(handle.key, RefusalReason.NOT_FOUND, "there is no such machine here any more")
        return await action(handle, record)

    async def forget_ended_machines(self) -> None:
        """Remove the machines that ended long ago."""
        self._swept = time.monotonic()
        scan = await self.in_thread(self.supervisor.scan)
        for status in scan.machines:
            if status.process_status is ProcessStatus.GONE:
                await self._run_to_end(
                    self._act(
                        MachineHandle(status.record.key), lambda _, record: self.in_thread(self._forget_if_old, record)
                    )
                )

    def _forget_if_old(self, record: MachineRecord) -> Outcome:
        """Remove a machine that ended long ago; one that was found dead is first recorded as ended."""
        status = self.supervisor.inspect(record)
        if status.process_status is ProcessStatus.GONE and record.phase is not MachinePhase.ENDING:
            self.supervisor.terminate(record)
        elif (
            status.process_status is ProcessStatus.GONE
            and self.supervisor.machine_dir.record_age_s(record.key) > self._keep
        ):
            self.supervisor.machine_dir.remove(record.key)
        return AlreadyDone(record.key, record.native_id)

    async def close(self) -> None:
        """Finish the calls under way."""
        await asyncio.gather(*self._work, return_exceptions=True)
        self._pool.shutdown(wait=False)


def _folder(provider_region: ProviderRegion) -> MachineDir:
    path = provider_region.options.get("folder", "")
    if not path:
        raise BadInput("folder", path, "a folder for the machines of this region")
    try:
        return MachineDir(Path(path).absolute())
    except OSError as error:
        raise BadInput("folder", path, f"a folder that can be used ({error.strerror})") from error
