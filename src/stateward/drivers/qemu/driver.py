"""The driver for virtual machines under QEMU on this host, without libvirt.

Each machine is one QEMU process. The process supervisor (`process/supervisor.py`) starts, finds and ends it; the QMP
monitor reports the state of the guest. If a monitor does not answer, the listing is incomplete, and no machine with a
living process counts as terminated.
"""

import asyncio
import errno
from collections.abc import AsyncGenerator, Collection, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CallUnanswered,
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
    Suspension,
    TransientFailure,
)
from stateward.drivers.process.host_driver import HostDriver, conflict, observation
from stateward.drivers.process.machine_dir import (
    MachinePhase,
    MachineRecord,
    MachineStatus,
    ProcessStatus,
    open_private,
)
from stateward.drivers.process.shell_machine import size_of
from stateward.drivers.process.ssh_daemon import HOST_KEY
from stateward.drivers.process.supervisor import Milestone, ignore_milestone
from stateward.drivers.qemu.errors import CommandRejected, MonitorError, MonitorNotAnswered, MonitorNotReached
from stateward.drivers.qemu.guest_images import SEED, firmware_problem
from stateward.drivers.qemu.hardware import CONSOLE, FROM_DISK, MAX_PROCESSORS, OWN_GUEST, Hardware
from stateward.drivers.qemu.monitor import Monitor, open_monitor, state_of
from stateward.drivers.qemu.monitor_events import MonitorEvents
from stateward.drivers.qemu.seed_volume import seed_volume
from stateward.drivers.ssh_keys import login_keys_of
from stateward.procfs import host_memory, process_age_s
from stateward.workloads.host_ports import LOOPBACK

MAX_MONITORS = 16
"""How many monitors are queried at the same time."""
STARTUP_TIMEOUT_S = 30.0
"""How long a process may take to open its monitor."""
QUIT_TIMEOUT_S = 2.0
"""How long a machine may take to quit before it is killed."""
POLL_INTERVAL_S = 0.005
MAX_TEXT_CHARS = 1000
RESET_STARTED = "reset begun"
"""The entry of the record with the token of a reset, from before it is sent until it is confirmed."""


class MonitorCommand(Struct, frozen=True):
    """The QMP command of an action: the state that it needs, and the state in which it is already done."""

    needs: MachineState
    done: MachineState | None
    command: str


MONITOR_COMMANDS = {
    MachineAction.SUSPEND: MonitorCommand(MachineState.RUNNING,   MachineState.SUSPENDED, "stop"),
    MachineAction.RESUME:  MonitorCommand(MachineState.SUSPENDED, MachineState.RUNNING,   "cont"),
    MachineAction.REBOOT:  MonitorCommand(MachineState.RUNNING,   None,                   "system_reset"),
}  # fmt: skip


class QemuDriver(HostDriver):
    """QEMU machines on this host, in `folder`; see `Hardware` for further options."""

    capabilities = Capabilities(
        suspension=Suspension.NATIVE,
        idempotency=Idempotency.NAME,
        max_bulk=20,
        has_events=True,
        has_resources=False,
        lists_reboot_tokens=True,
    )
    no_resources = "a {} is nothing for machines without a network"

    def __init__(
        self,
        provider_region: ProviderRegion,
        meter: Meter = ignore_milestone,
        milestone: Milestone = ignore_milestone,
        hardware: Hardware | None = None,
    ) -> None:
        self._hardware = hardware or Hardware(provider_region)
        super().__init__(provider_region, self._hardware, meter, milestone)
        self._events = MonitorEvents(self._scan, self.folder_of, meter)
        self._monitor_slots = asyncio.Semaphore(MAX_MONITORS)

    def folder_of(self, key: str) -> Path:
        """Return the folder of a machine's files."""
        return self._supervisor.machine_dir.path_of(key)

    # --- creates -----------------------------------------------------------------------------------------------------

    def _check(self, key: str, spec: str, image: str) -> CallRefused | None:
        size = size_of(spec)
        if size is None:
            return CallRefused(key, RefusalReason.NOT_FOUND, f"there is no spec {spec!r} here")
        if image not in (*self._hardware.built_in_images, *self._hardware.images):
            names = ", ".join((OWN_GUEST, *self._hardware.images))
            return CallRefused(key, RefusalReason.NOT_FOUND, f"there is no image {image!r} here, only {names}")
        if size.processors > MAX_PROCESSORS or size.mib > host_mib():
            return CallRefused(key, RefusalReason.CAPACITY, f"{spec} is more than this host has")
        if self._hardware.program is None:
            board = self._hardware.board
            return CallRefused(
                key, RefusalReason.UNABLE, f"{board.program} is not installed (Debian has it in {board.package})"
            )
        if image == FROM_DISK and (why := firmware_problem(self._hardware.arch)):
            return CallRefused(key, RefusalReason.UNABLE, why)
        if image in self._hardware.images and (why := self._hardware.images[image].problem(self._hardware.arch)):
            return CallRefused(key, RefusalReason.UNABLE, why)
        return None

    def _prepare_login(self, machine_spec: MachineSpec, record: MachineRecord) -> MachineRecord:
        """Give a machine whose image one can log in to a port, a host key, a seed and a disk."""
        image = self._hardware.images.get(machine_spec.image)
        if image is None:
            return record
        folder = self.folder_of(record.key)
        record = self._claim_login(record, login_keys_of(machine_spec))
        with open(folder / SEED, "wb", opener=open_private) as file:
            file.write(seed_volume(record, (folder / HOST_KEY).read_text()))
        image.prepare(folder)
        return record

    async def create(self, machine_specs: Sequence[MachineSpec]) -> Sequence[Outcome]:
        """Create machines, and listen to their events from now on."""
        outcomes = await super().create(machine_specs)
        for outcome in outcomes:
            if isinstance(outcome, CallAccepted):
                self._events.notify_created(outcome.key)
        return outcomes

    # --- actions -----------------------------------------------------------------------------------------------------

    async def _act(self, action: MachineAction, handle: MachineHandle, record: MachineRecord) -> Outcome:
        status = await self._in_thread(self._supervisor.inspect, record)
        if action is MachineAction.TERMINATE:
            return await self._terminate(status)
        if status.process is None or record.phase is MachinePhase.ENDING:
            return conflict(status)
        if record.phase is MachinePhase.STARTING:
            record = await self._in_thread(self._supervisor.finish_start, record)
        return await self._send_command(action, handle, record)

    async def _send_command(self, action: MachineAction, handle: MachineHandle, record: MachineRecord) -> Outcome:
        try:
            async with self._monitor_slots, open_monitor(self.folder_of(record.key), self._meter) as monitor:
                return await self._apply(action, handle, record, monitor)
        except MonitorNotReached as error:
            young = record.process is not None and process_age_s(record.process) < STARTUP_TIMEOUT_S
            return (
                CallRefused(record.key, RefusalReason.CONFLICT, "it is coming up")
                if young
                else TransientFailure(record.key, str(error))
            )
        except MonitorNotAnswered as error:
            return CallUnanswered(record.key, str(error))
        except CommandRejected as error:
            return CallRefused(record.key, RefusalReason.CONFLICT, str(error))

    async def _apply(
        self, action: MachineAction, handle: MachineHandle, record: MachineRecord, monitor: Monitor
    ) -> Outcome:
        state = state_of(await monitor.status())
        rule = MONITOR_COMMANDS[action]
        repeated = action is MachineAction.REBOOT and handle.token != "" and record.token == handle.token
        if repeated or state is rule.done:
            return AlreadyDone(record.key, record.native_id)
        if state is not rule.needs:
            return CallRefused(record.key, RefusalReason.CONFLICT, f"it is {state}")
        if action is MachineAction.REBOOT:
            await self._reset(monitor, record, handle.token)
        else:
            await monitor.execute(rule.command)
        return CallAccepted(record.key, record.native_id)

    async def _reset(self, monitor: Monitor, record: MachineRecord, token: str) -> None:
        """Reset a machine. The record is written before and after, so an interrupted reset shows as unconfirmed."""
        write, in_thread = self._supervisor.machine_dir.write, self._in_thread
        await in_thread(write, replace(record, more={**record.more, RESET_STARTED: token}))
        try:
            await monitor.execute(MONITOR_COMMANDS[MachineAction.REBOOT].command)
        except CommandRejected:
            await in_thread(write, record)
            raise
        more = {name: value for name, value in record.more.items() if name != RESET_STARTED}
        await in_thread(write, replace(record, boot=record.boot + 1, token=token, more=more))

    async def _terminate(self, status: MachineStatus) -> Outcome:
        """End a machine by `quit`, so that it closes its disks, or else by SIGKILL."""
        record = status.record
        if record.phase is MachinePhase.ENDING and status.process_status is ProcessStatus.GONE:
            return AlreadyDone(record.key, record.native_id)
        self._meter("end")
        if record.ssh_port:
            await self._in_thread(self._ports.release, record.ssh_port, self.folder_of(record.key))
        known = await self._in_thread(self._supervisor.record_end, record)
        if status.process_status is not ProcessStatus.RUNNING or not await self._quits(record.key):
            await self._in_thread(self._supervisor.kill, known)
        return CallAccepted(record.key, record.native_id)

    async def _quits(self, key: str) -> bool:
        try:
            async with open_monitor(self.folder_of(key), self._meter, QUIT_TIMEOUT_S) as monitor:
                await monitor.execute("quit")
        except (MonitorNotReached, MonitorNotAnswered, CommandRejected):
            return False
        deadline = asyncio.get_running_loop().time() + QUIT_TIMEOUT_S
        while self._supervisor.machine_dir.is_alive(key) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(POLL_INTERVAL_S)
        return not self._supervisor.machine_dir.is_alive(key)

    # --- listings ----------------------------------------------------------------------------------------------------

    async def observe(self, keys: Collection[str] | None = None) -> MachineListing:
        """List machines: all their processes at once, and then the monitor of each."""
        self._meter("list")
        scan = await self._scan(keys)
        seen = await asyncio.gather(*(self._observe(status) for status in scan.machines))
        problems = [*scan.problems, *(answer for answer in seen if isinstance(answer, str))]
        return MachineListing(
            [answer for answer in seen if isinstance(answer, Observation)], not problems, "; ".join(problems)
        )

    async def _observe(self, status: MachineStatus) -> Observation | str:
        """Return the observation of a machine, or why there is none."""
        if decided := self._by_process(status):
            return decided
        try:
            async with (
                self._monitor_slots,
                open_monitor(self.folder_of(status.record.key), self._meter) as monitor,
            ):
                native_state = await monitor.status()
        except MonitorError as error:
            now = await self._in_thread(self._supervisor.inspect, status.record)
            return self._by_process(now) or _without_monitor(now, error)
        return _observation(status, state_of(native_state), native_state)

    def _by_process(self, status: MachineStatus) -> Observation | str | None:
        """Return the observation if the process alone decides it."""
        if status.process_status is ProcessStatus.HIDDEN:
            return f"{status.record.key} is {status.process_status}"
        if status.process is None:
            return self._without_process(status)
        if status.record.phase is MachinePhase.ENDING:
            return _observation(status, MachineState.TERMINATING, "quitting")
        if status.process_status is ProcessStatus.STOPPED:
            return f"{status.record.key}: its process is stopped, and its monitor cannot answer"
        return None

    def _without_process(self, status: MachineStatus) -> Observation:
        if status.process_status is ProcessStatus.NOT_YET:
            return _observation(status, MachineState.PENDING, str(status.process_status))
        if status.process_status is ProcessStatus.EXITING:
            return _observation(status, MachineState.TERMINATING, str(status.process_status))
        if status.record.phase is MachinePhase.ENDING:
            return _observation(status, MachineState.TERMINATED, "quit")
        if complaint := self._complaint(status.record.key):
            return _observation(status, MachineState.FAILED, "never came up", complaint)
        return _observation(status, MachineState.TERMINATED, "gone")

    def _complaint(self, key: str) -> str:
        """Return QEMU's output, if QEMU ended before its guest wrote anything."""
        return "" if _text(self.folder_of(key) / CONSOLE) else _text(self.folder_of(key) / "log")

    async def run(self, handle: MachineHandle, command: str, user: str, seconds: float) -> str:  # noqa: ARG002 - it is refused
        """Refuse: the guest has no shell."""
        raise OSError(errno.ENOTSUP, "the guest of a QEMU machine runs no commands", handle.key)

    def watch(self) -> AsyncGenerator[str, None]:
        """Yield the keys of machines with an event, and of those that appear or disappear."""
        return self._events.watch()

    async def close(self) -> None:
        """Finish the calls under way; the machines stay as they are."""
        await self._events.close()
        await super().close()


def _without_monitor(status: MachineStatus, error: MonitorError) -> Observation | str:
    """Return the observation of a machine without a monitor: it may just be starting."""
    if (
        isinstance(error, MonitorNotReached)
        and status.process is not None
        and process_age_s(status.process) < STARTUP_TIMEOUT_S
    ):
        return _observation(status, MachineState.PENDING, "coming up")
    return f"{status.record.key}: {error}"


def _observation(status: MachineStatus, state: MachineState, native_state: str, complaint: str = "") -> Observation:
    details = {"complaint": complaint} if complaint else {}
    address = LOOPBACK if status.record.ssh_port else ""
    return observation(
        status,
        state,
        native_state,
        details,
        private_ip=address,
        unconfirmed_reboot=status.record.more.get(RESET_STARTED, ""),
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")[-MAX_TEXT_CHARS:].strip()
    except OSError:
        return ""


def host_mib() -> int:
    """Return the memory of this host in MiB."""
    return host_memory() >> 20
