"""The driver for machines that are process groups on this host: real, small and without privileges.

A machine that was killed out of band counts as terminated, not as failed. Its record exists, no process has its
identity, and the kernel has released its liveness lock. Nothing of it can run or cost anything, and its key creates no
new machine. Other providers call that terminated too.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from pathlib import Path

from msgspec.structs import replace

from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    Capabilities,
    Idempotency,
    MachineAction,
    MachineHandle,
    MachineListing,
    MachineSpec,
    MachineState,
    Meter,
    Observation,
    Outcome,
    ProviderRegion,
    RefusalReason,
    ResourceKind,
    Suspension,
    TransientFailure,
)
from stateward.drivers.process.host_driver import HostDriver, conflict, observation
from stateward.drivers.process.jobs import run_job
from stateward.drivers.process.machine_dir import MachinePhase, MachineRecord, MachineStatus, ProcessStatus
from stateward.drivers.process.machine_processes import continue_all, is_any_running, stop_all, stopped_by_tenant
from stateward.drivers.process.shell_machine import ShellMachine, size_of
from stateward.drivers.process.ssh_daemon import SshDaemon, is_ssh_installed
from stateward.drivers.process.supervisor import POLL_INTERVAL_S, Milestone, ignore_milestone
from stateward.drivers.ssh_keys import login_keys_of
from stateward.procfs import ProcessId
from stateward.workloads.confinement import Confinement

IMAGE = "sh"
SIGNAL_TIMEOUT_S = 1.0
"""How long the kernel may take to stop or continue a process after the signal."""
NATIVE_STATES = {"R": "running", "S": "sleeping", "D": "waiting", "I": "idle", "T": "stopped", "t": "traced"}


class ProcessDriver(HostDriver):
    """Process groups on this host, in `folder`. The options `specs` and `images` add names, separated by commas."""

    capabilities = Capabilities(
        suspension=Suspension.NATIVE,
        idempotency=Idempotency.NAME,
        max_bulk=100,
        runs_commands=True,
        has_resources=False,
        lists_reboot_tokens=True,
    )
    no_resources = "a {} is nothing on this host"

    def __init__(
        self,
        provider_region: ProviderRegion,
        meter: Meter = ignore_milestone,
        milestone: Milestone = ignore_milestone,
        confinement: Confinement | None = None,
    ) -> None:
        super().__init__(provider_region, ShellMachine(confinement or Confinement()), meter, milestone)
        self._ssh = SshDaemon(self._supervisor.machine_dir.root)
        self._images = {IMAGE, *_names(provider_region, "images")}  # bounded by: the registered images
        self._specs = _names(provider_region, "specs")

    def path_of(self, key: str) -> Path:
        """Return the folder of a machine on this host, which has its files in `work`."""
        return self._supervisor.machine_dir.path_of(key)

    def register(self, spec: str, image: str) -> None:
        """Register a size and an image by name; they make no difference to a process."""
        self._specs.add(spec)
        self._images.add(image)

    def _check(self, key: str, spec: str, image: str) -> CallRefused | None:
        if size_of(spec) is None and spec not in self._specs:
            return CallRefused(key, RefusalReason.NOT_FOUND, f"there is no spec {spec!r} here")
        if image not in self._images:
            return CallRefused(key, RefusalReason.NOT_FOUND, f"there is no image {image!r} here")
        return None

    def _prepare_login(self, machine_spec: MachineSpec, record: MachineRecord) -> MachineRecord:
        """Give a machine with keys an SSH port, if the extra `ssh` is installed; without keys nobody could log in."""
        keys = login_keys_of(machine_spec)
        return self._claim_login(record, keys) if keys and is_ssh_installed() else record

    def _start(self, machine_spec: MachineSpec) -> Outcome:
        outcome = super()._start(machine_spec)
        if machine_spec.authorized_keys or ResourceKind.SSH_KEY in machine_spec.resources:
            record = self._supervisor.machine_dir.read(machine_spec.key)
            if record is not None and record.ssh_port:
                self._ssh.ensure_running()
                self._ssh.notify(record.key)
        return outcome

    async def _act(self, action: MachineAction, handle: MachineHandle, record: MachineRecord) -> Outcome:
        outcome = await self._in_thread(self._do, action, handle, record)
        if record.ssh_port:
            self._ssh.notify(record.key)
        return outcome

    def _do(self, action: MachineAction, handle: MachineHandle, record: MachineRecord) -> Outcome:
        status = self._supervisor.inspect(record)
        match action:
            case MachineAction.SUSPEND:
                return self._suspend(status)
            case MachineAction.RESUME:
                return self._resume(status)
            case MachineAction.REBOOT:
                return self._reboot(status, handle.token)
            case MachineAction.TERMINATE:
                return self._terminate(status)

    def _suspend(self, status: MachineStatus) -> Outcome:
        """Stop all processes of a machine, also if its leader is stopped already."""
        record, leader = status.record, status.process
        if leader is None or record.phase is MachinePhase.ENDING:
            return conflict(status)
        if not is_any_running(record, leader):
            return AlreadyDone(record.key, record.native_id)
        self._meter("kill")
        if record.stopped_before is None:
            record = replace(record, stopped_before=stopped_by_tenant(record, leader))
            self._supervisor.machine_dir.write_durably(record)
        if not stop_all(record, leader, SIGNAL_TIMEOUT_S):
            return TransientFailure(record.key, f"some of its processes did not stop in {SIGNAL_TIMEOUT_S:g} s")
        if self._supervisor.inspect(record).process_status is not ProcessStatus.STOPPED:
            return CallRefused(record.key, RefusalReason.CONFLICT, "it has just ended")
        return CallAccepted(record.key, record.native_id)

    def _resume(self, status: MachineStatus) -> Outcome:
        """Continue the processes that a suspension has stopped, or that were stopped out of band."""
        record, leader = status.record, status.process
        if leader is None or record.phase is MachinePhase.ENDING:
            return conflict(status)
        if record.stopped_before is None and status.process_status is ProcessStatus.RUNNING:
            return AlreadyDone(record.key, record.native_id)
        self._meter("kill")
        is_changed = continue_all(record, leader)
        self._supervisor.machine_dir.write(replace(record, stopped_before=None))
        if not is_changed:
            return AlreadyDone(record.key, record.native_id)
        self._wait_until_running(record)
        return CallAccepted(record.key, record.native_id)

    def _wait_until_running(self, record: MachineRecord) -> None:
        """Wait until /proc shows the effect of a signal: the kernel continues a process when it next schedules it."""
        deadline = time.monotonic() + SIGNAL_TIMEOUT_S
        while self._supervisor.inspect(record).process_status is ProcessStatus.STOPPED and time.monotonic() < deadline:
            time.sleep(POLL_INTERVAL_S)

    def _reboot(self, status: MachineStatus, token: str) -> Outcome:
        """Start a new boot, or finish the one that was started with this token."""
        record = status.record
        begun = record.boot > 1 and token != "" and record.token == token
        if begun and record.phase is MachinePhase.UP and status.process is not None:
            return AlreadyDone(record.key, record.native_id)
        if not begun and (status.process_status is not ProcessStatus.RUNNING or record.phase is MachinePhase.ENDING):
            return conflict(status)
        if begun and record.phase is not MachinePhase.STARTING:
            return conflict(status)
        self._meter("spawn")
        if begun:
            self._supervisor.finish_start(record)
        else:
            known = replace(record, process=status.process)
            self._supervisor.start(replace(known, boot=record.boot + 1, phase=MachinePhase.STARTING, token=token))
        return CallAccepted(record.key, record.native_id)

    def _terminate(self, status: MachineStatus) -> Outcome:
        record = status.record
        if record.phase is MachinePhase.ENDING and status.process_status is ProcessStatus.GONE:
            return AlreadyDone(record.key, record.native_id)
        self._meter("kill")
        self._supervisor.terminate(record)
        if record.ssh_port:
            self._ports.release(record.ssh_port, self._supervisor.machine_dir.path_of(record.key))
        return CallAccepted(record.key, record.native_id)

    async def observe(self, keys: Collection[str] | None = None) -> MachineListing:
        """List machines."""
        self._meter("list")
        scan = await self._scan(keys)
        if any(machine.record.ssh_port and machine.process is not None for machine in scan.machines):
            await self._in_thread(self._ssh.ensure_running)  # it may have been killed
        return MachineListing(
            [_observation(machine) for machine in scan.machines], not scan.problems, "; ".join(scan.problems)
        )

    async def run(self, handle: MachineHandle, command: str, user: str, seconds: float) -> str:
        """Run a command on a machine, as one of its processes; `user` only sets USER and LOGNAME."""
        scan = await self._scan([handle.key])
        record, process = next(((scanned.record, scanned.process) for scanned in scan.machines), (None, None))
        if record is None or process is None:
            raise ProcessLookupError(f"{handle.key} is not there to run anything {'; '.join(scan.problems)}")
        self._meter("run")
        machine = self._supervisor.machine_dir.path_of(handle.key)
        async with asyncio.timeout(seconds):
            home = Path(record.home or machine)
            return await run_job(machine, home, process, command, user, lambda: self._is_up(handle.key, process))

    async def _is_up(self, key: str, process: ProcessId) -> bool:
        scan = await self._scan([key])
        return any(machine.process == process for machine in scan.machines)

    async def watch(self) -> AsyncIterator[str]:
        """Yield nothing: a listing is cheap here."""
        nothing: tuple[str, ...] = ()
        for key in nothing:
            yield key


def _names(provider_region: ProviderRegion, option: str) -> set[str]:
    return {name.strip() for name in provider_region.options.get(option, "").split(",")} - {""}


def _observation(status: MachineStatus) -> Observation:
    return observation(status, _state(status), _native_state(status), {}, private_ip="127.0.0.1")


def _state(status: MachineStatus) -> MachineState:
    record = status.record
    if status.process_status is ProcessStatus.GONE:
        return MachineState.TERMINATED
    if record.phase is MachinePhase.ENDING or status.process_status is ProcessStatus.EXITING:
        return MachineState.TERMINATING
    if status.process_status is ProcessStatus.NOT_YET:
        return MachineState.PENDING if record.boot == 1 else MachineState.REBOOTING
    return MachineState.SUSPENDED if status.process_status is ProcessStatus.STOPPED else MachineState.RUNNING


def _native_state(status: MachineStatus) -> str:
    if status.stat is not None:
        # A bare "sleeping" would read like a fault: it is the usual state of a process that waits for work.
        return f"process: {NATIVE_STATES.get(status.stat.state, status.stat.state)}"
    if status.process_status is ProcessStatus.GONE:
        return "ended" if status.record.phase is MachinePhase.ENDING else "killed"
    return str(status.process_status)
