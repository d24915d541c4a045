"""The processes of a machine, wherever they have gone, and their suspension and end as a whole.

A process group is not enough: a program can start its own session, and its parent can end. A machine with its own user
consists of all processes of that user. Otherwise, they bear the label of the machine: a limit that is too high to have
an effect, and that no other machine has. The kernel passes limits on to all descendants, whatever these do with their
session, parent and environment, and a confined program cannot change this one (`confinement.seccomp`). Where the label
could not be set, the processes are found by their session.

A process that the tenant has stopped itself stays stopped when the machine is resumed. So these are written into the
record before the first signal of a suspension, and a suspension that was interrupted keeps this list.
"""

import os
import resource
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from uuid import UUID

from stateward.drivers.process.errors import ProcessStillRunning
from stateward.drivers.process.machine_dir import MachineRecord
from stateward.procfs import (
    PROC,
    ProcessId,
    ProcessStat,
    all_pids,
    is_stopped,
    stat_of,
    this_pid_namespace,
)
from stateward.workloads.confinement.seccomp import LABEL_LIMIT

POLL_INTERVAL_S = 0.002
KILL_TIMEOUT_S = 5.0
"""How long a machine can start new processes while it is being killed."""


def label_process(record: MachineRecord, pid: int) -> None:
    """Label a process, and all that it starts from now on, as processes of a machine."""
    with suppress(OSError, ValueError):  # we lack the right (to another user's process), or our own limit is lower
        resource.prlimit(pid, LABEL_LIMIT, (_label_of(record), _label_of(record)))


def processes_of(record: MachineRecord, leader: ProcessId | None) -> list[ProcessStat]:
    """Return all living processes of a machine."""
    pids = _pids_as(record.uid) if record.uid is not None else _labeled(record, _session_of(leader))
    return [process for process in map(stat_of, pids) if process is not None and process.alive]


def stopped_by_tenant(record: MachineRecord, leader: ProcessId) -> tuple[ProcessId, ...]:
    """Return the processes that are stopped before a suspension; the leader is the machine itself, and none of them."""
    processes = processes_of(record, leader)
    return tuple(
        ProcessId(process.pid, process.started, leader.host)
        for process in processes
        if process.pid != leader.pid and is_stopped(process)
    )


def is_any_running(record: MachineRecord, leader: ProcessId) -> bool:
    """Tell whether a process of a machine is not stopped."""
    return any(not is_stopped(process) for process in processes_of(record, leader))


def stop_all(record: MachineRecord, leader: ProcessId, timeout_s: float) -> bool:
    """Stop all processes of a machine, also those that start meanwhile; returns whether that was done in time."""
    deadline = time.monotonic() + timeout_s
    while running := [process for process in processes_of(record, leader) if not is_stopped(process)]:
        if time.monotonic() > deadline:
            return False
        _send(running, signal.SIGSTOP)
        time.sleep(POLL_INTERVAL_S)  # the kernel stops a process when it next schedules it
    return True


def continue_all(record: MachineRecord, leader: ProcessId) -> bool:
    """Continue the stopped processes of a machine, except those that its tenant had stopped; tells whether any was."""
    kept = {(process.pid, process.started) for process in record.stopped_before or ()}
    stopped = [process for process in processes_of(record, leader) if is_stopped(process)]
    chosen = [process for process in stopped if (process.pid, process.started) not in kept]
    # The leader comes last: what it starts must find the others running.
    _send(sorted(chosen, key=lambda process: process.pid == leader.pid), signal.SIGCONT)
    return bool(chosen)


def kill_all(record: MachineRecord, leader: ProcessId | None) -> None:
    """Kill all processes of a machine, also those that start meanwhile; returns when the signals were sent.

    A process that was signaled starts no other one. So none is left if a scan finds only these.
    """
    deadline = time.monotonic() + KILL_TIMEOUT_S
    signaled: set[tuple[int, int]] = set()
    while processes := [
        process for process in processes_of(record, leader) if (process.pid, process.started) not in signaled
    ]:
        if time.monotonic() > deadline:
            raise ProcessStillRunning(f"{record.key} starts processes faster than they can be killed")
        _send(processes, signal.SIGKILL)
        signaled |= {(process.pid, process.started) for process in processes}


def _send(processes: Iterable[ProcessStat], number: signal.Signals) -> None:
    """Send a signal to processes that are still the same ones: a handle keeps its process when the pid is reused."""
    for process in processes:
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(process.pid)
            try:
                identity = stat_of(process.pid)
                if identity is not None and identity.started == process.started:
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)


def _pids_as(uid: int) -> Iterator[int]:
    """Yield the processes of a user; root owns the folder of one whose memory the kernel protects."""
    with os.scandir(PROC) as entries:
        for entry in entries:
            if not entry.name.isdecimal():
                continue
            with suppress(OSError):
                owner = entry.stat().st_uid
                if owner == uid or (owner == 0 and _real_uid(int(entry.name)) == uid):
                    yield int(entry.name)


def _real_uid(pid: int) -> int:
    for line in (PROC / str(pid) / "status").read_text(errors="replace").splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])
    return 0


def _labeled(record: MachineRecord, session: int | None) -> Iterator[int]:
    """Yield the processes that bear the label of a machine, or belong to its session."""
    label = _label_of(record)
    for pid in all_pids():
        with suppress(OSError):  # it has ended, or is another user's
            if os.getsid(pid) == session or resource.prlimit(pid, LABEL_LIMIT)[1] == label:
                yield pid


def _session_of(leader: ProcessId | None) -> int | None:
    """Return the session of a machine, or None: once it is empty, another process can get the pid of its leader."""
    if leader is None or leader.host != this_pid_namespace():
        return None
    stat = stat_of(leader.pid)
    return leader.pid if stat is None or stat.started == leader.started else None


def _label_of(record: MachineRecord) -> int:
    """Return a number between 2^62 and 2^63 that no other machine of this host has."""
    return 1 << 62 | UUID(record.native_id).int >> 66
