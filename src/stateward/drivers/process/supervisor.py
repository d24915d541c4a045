"""The supervisor of machines that are processes of this host: started once per key, found again, and ended.

The controller may die after any step. The order is: write the record, start the process, write the process into the
record. The next controller finds a record without a process, looks for the process by the mark in its arguments, and
takes it over or starts it. The machine's liveness lock prevents a second process meanwhile.

All methods block on the disk, so they run in a thread. A caller that changes something holds the machine's lock.
"""

import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from stateward.drivers.process.errors import BadMachineRecord, ProcessStillRunning, os_error_text
from stateward.drivers.process.machine_dir import MachineDir, MachinePhase, MachineRecord, MachineStatus, ProcessStatus
from stateward.drivers.process.machine_processes import kill_all, label_process
from stateward.procfs import (
    ProcessId,
    find_leader,
    is_same_process,
    is_stopped,
    process_of,
    signal_group,
    stat_of,
    this_pid_namespace,
)
from stateward.workloads.confinement import Sandbox
from stateward.workloads.spawn import reap_children, spawn

EXIT_TIMEOUT_S = 5.0
"""How long a killed process may take to disappear."""
POLL_INTERVAL_S = 0.002

Milestone = Callable[[str], None]
"""Callback with the name of the step that was just done; lets a test kill the controller there."""


class MachineKind(Protocol):
    """The command, environment and files of one kind of machine."""

    def mark(self, record: MachineRecord) -> str:
        """Return the argument that identifies its process."""

    def command(self, record: MachineRecord, box: Sandbox) -> Sequence[str]:
        """Return the command to start."""

    def environment(self, record: MachineRecord, box: Sandbox) -> Mapping[str, str]:
        """Return the environment of the command."""

    def prepare(self, folder: Path) -> Sandbox:
        """Create the files that it needs, and return its sandbox."""

    def start(self, box: Sandbox, start: Callable[[], int]) -> int:
        """Call the function that starts it, confined as this kind of machine needs."""

    def end(self, record: MachineRecord, folder: Path) -> None:
        """Kill the processes that may have left its process group."""


class MachineScan(Struct, frozen=True):
    """The statuses of machines, and the problems that hid some of them."""

    machines: Sequence[MachineStatus]
    problems: Sequence[str] = ()


def ignore_milestone(_: str) -> None:
    """Ignore a milestone."""


class ProcessSupervisor:
    """Supervises the machines of one kind in one directory."""

    def __init__(self, folder: MachineDir, kind: MachineKind, milestone: Milestone = ignore_milestone) -> None:
        self.machine_dir = folder
        self._kind = kind
        self._milestone = milestone

    # --- looking -----------------------------------------------------------------------------------------------------

    def scan(self, keys: Collection[str] | None = None) -> MachineScan:
        """Inspect all machines, or some; problems are returned, not raised."""
        reap_children()
        if stat_of(os.getpid()) is None:
            return MachineScan((), ("/proc cannot be read, and nothing is known of any process",))
        try:
            records, problems = self.machine_dir.read_all(keys)
        except OSError as error:
            return MachineScan((), (os_error_text(error),))
        statuses: list[MachineStatus] = []
        for record in records:
            try:
                statuses.append(self.inspect(record))
            except (OSError, BadMachineRecord) as error:  # the other machines can still be inspected
                problems.append(f"{record.key}: {error}")
        hidden = [status for status in statuses if status.process_status is ProcessStatus.HIDDEN]
        problems += [f"{status.record.key} is {status.process_status}" for status in hidden]
        return MachineScan([status for status in statuses if status not in hidden], problems)

    def inspect(self, record: MachineRecord) -> MachineStatus:
        """Return the status of a machine.

        It is gone if both signs agree: no process has its identity, and its liveness lock is free.
        """
        starting = record.phase is MachinePhase.STARTING
        absent = MachineStatus(record, ProcessStatus.NOT_YET if starting else ProcessStatus.GONE)
        if seen := _status_of(record, record.process):
            return absent if starting else seen  # a process of the previous boot may still have the liveness lock
        if not self.machine_dir.is_alive(record.key):
            return absent
        if seen := _status_of(record, find_leader(self._kind.mark(record))):
            return seen
        if starting:
            return absent
        if record.process is not None and _is_exiting(record.process):
            return MachineStatus(record, ProcessStatus.EXITING)
        newer = self.machine_dir.read(record.key)
        if newer is not None and newer != record:
            return self.inspect(newer)
        return MachineStatus(record, ProcessStatus.HIDDEN) if self.machine_dir.is_alive(record.key) else absent

    # --- doing -------------------------------------------------------------------------------------------------------

    def start(self, record: MachineRecord) -> MachineRecord:
        """Write the record of a machine that is to start, and start it."""
        self.machine_dir.write_durably(record)
        self._milestone("recorded")
        return self.finish_start(record)

    def finish_start(self, record: MachineRecord) -> MachineRecord:
        """Finish a recorded start: take over the process if it runs, else start it."""
        status = self.inspect(record)
        if status.process is not None:
            return self._record_up(record, status.process)
        self.kill(record)
        box = self._kind.prepare(self.machine_dir.path_of(record.key))
        home = "" if box.home == box.folder else str(box.home)
        if (record.uid, record.home) != (box.uid, home):  # the next controller must know the user of these processes
            record = replace(record, uid=box.uid, home=home)
            self.machine_dir.write(record)
        return self._record_up(record, process_of(self._spawn(record, box)))

    def _spawn(self, record: MachineRecord, box: Sandbox) -> int:
        folder = self.machine_dir.path_of(record.key)
        deadline = time.monotonic() + EXIT_TIMEOUT_S
        while time.monotonic() < deadline:
            with self.machine_dir.liveness_lock(record.key) as handle:
                if handle is not None:
                    command, environment = self._kind.command(record, box), self._kind.environment(record, box)
                    pid = spawn(command, environment, handle, folder / "log", partial(self._kind.start, box))
                    self._milestone("started")
                    return pid
            time.sleep(POLL_INTERVAL_S)  # the previous process is exiting, or another controller tests the lock
        raise ProcessStillRunning(f"{record.key}: its process has not ended in {EXIT_TIMEOUT_S:.0f} s")

    def _record_up(self, record: MachineRecord, process: ProcessId | None) -> MachineRecord:
        if process is not None:
            label_process(record, process.pid)  # before it gets jobs
        settled = replace(record, phase=MachinePhase.UP, process=process)
        self.machine_dir.write(settled)
        self._milestone("settled")
        return settled

    def terminate(self, record: MachineRecord) -> None:
        """Record that a machine is to end, and kill it; returns when the signal was sent."""
        self.kill(self.record_end(record))

    def record_end(self, record: MachineRecord) -> MachineRecord:
        """Record that a machine is to end, before it is killed."""
        status = self.inspect(record)
        known = replace(record, phase=MachinePhase.ENDING, process=status.process or record.process)
        self.machine_dir.write_durably(known)
        self._milestone("ending")
        return known

    def kill(self, record: MachineRecord) -> None:
        """Kill all processes of a machine: the group of its known process first, and then what has left the group."""
        process = record.process
        if process is not None:
            signal_group(process, signal.SIGKILL)
        self._kind.end(record, self.machine_dir.path_of(record.key))
        if record.uid is None:
            kill_all(record, process)
        reap_children()


def _is_exiting(process: ProcessId) -> bool:
    """Tell whether a process is dead while a thread of it may still be exiting."""
    stat = stat_of(process.pid) if process.host == this_pid_namespace() else None
    return stat is not None and stat.started == process.started and not stat.alive


def _status_of(record: MachineRecord, process: ProcessId | None) -> MachineStatus | None:
    if process is None or process.host != this_pid_namespace():
        return None
    stat = stat_of(process.pid)
    if stat is None or not is_same_process(process, stat):
        return None
    return MachineStatus(record, ProcessStatus.STOPPED if is_stopped(stat) else ProcessStatus.RUNNING, process, stat)
