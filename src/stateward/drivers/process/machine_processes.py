"""The processes of a machine, wherever they have gone, and their suspension as a whole.

A process group is not enough: a program may put itself into a session of its own, and its parent may end. A machine
with a user of its own consists of all processes of that user. Otherwise they are found by their session, and by the
machine's key in their environment, which descendants inherit; one that clears its environment is not found.

A process that the tenant has stopped itself stays stopped when the machine is resumed. So these are written into the
record before the first signal of a suspension, and a suspension that was interrupted keeps this list.
"""

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

from stateward.drivers.process.machine_dir import MachineRecord
from stateward.drivers.process.procfs import PROC, ProcessId, ProcessStat, stat_of

STOPPED_STATES = frozenset("Tt")
POLL_INTERVAL_S = 0.002


def processes_of(record: MachineRecord, leader: ProcessId) -> list[ProcessStat]:
    """Return all living processes of a machine."""
    stats = map(stat_of, _pids_as(record.uid)) if record.uid is not None else _labeled(record.key, leader)
    return [one for one in stats if one is not None and one.alive]


def stopped_by_tenant(record: MachineRecord, leader: ProcessId) -> tuple[ProcessId, ...]:
    """Return the processes that are stopped before a suspension; the leader is the machine itself, and none of them."""
    found = processes_of(record, leader)
    return tuple(
        ProcessId(one.pid, one.started, leader.host)
        for one in found
        if one.state in STOPPED_STATES and one.pid != leader.pid
    )


def is_any_running(record: MachineRecord, leader: ProcessId) -> bool:
    """Tell whether a process of a machine is not stopped."""
    return any(one.state not in STOPPED_STATES for one in processes_of(record, leader))


def stop_all(record: MachineRecord, leader: ProcessId, timeout_s: float) -> bool:
    """Stop all processes of a machine, also those that start meanwhile; returns whether that was done in time."""
    deadline = time.monotonic() + timeout_s
    while running := [one for one in processes_of(record, leader) if one.state not in STOPPED_STATES]:
        if time.monotonic() > deadline:
            return False
        _send(running, signal.SIGSTOP)
        time.sleep(POLL_INTERVAL_S)  # the kernel stops a process when it next schedules it
    return True


def continue_all(record: MachineRecord, leader: ProcessId) -> bool:
    """Continue the stopped processes of a machine, except those that its tenant had stopped; tells whether any was."""
    kept = {(one.pid, one.started) for one in record.stopped_before or ()}
    stopped = [one for one in processes_of(record, leader) if one.state in STOPPED_STATES]
    chosen = [one for one in stopped if (one.pid, one.started) not in kept]
    # The leader comes last: what it starts must find the others running.
    _send(sorted(chosen, key=lambda one: one.pid == leader.pid), signal.SIGCONT)
    return bool(chosen)


def _send(processes: Iterable[ProcessStat], number: signal.Signals) -> None:
    """Send a signal to processes that are still the same ones: a handle keeps its process when the pid is reused."""
    for one in processes:
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(one.pid)
            try:
                identity = stat_of(one.pid)
                if identity is not None and identity.started == one.started:
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


def _labeled(key: str, leader: ProcessId) -> Iterator[ProcessStat | None]:
    label = f"STATEWARD_KEY={key}".encode()
    for pid in _pids_as(os.geteuid()):
        stat = stat_of(pid)
        if stat is None or stat.session == leader.pid:
            yield stat
            continue
        with suppress(OSError):
            if label in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                yield stat
