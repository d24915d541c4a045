"""Processes as `/proc` shows them: identities, states, use, sessions, arguments and environments; and their end.

The kernel reuses process ids. A pid with the start time of the process, the boot of the host and the pid namespace
identifies one process, and never another.
"""

import os
import signal
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from msgspec import Struct

PROC = Path("/proc")
DEAD = frozenset("ZXx")
STOPPED = frozenset("Tt")
WAITING_IN_KERNEL = "D"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MAX_READ = 4096
"""Bytes of one read: the kernel gives a file of a process in parts of at most a page."""


class PidNamespace(Struct, frozen=True):
    """The scope of a pid: one boot of one kernel, and a pid namespace."""

    boot: str
    namespace: str


class ProcessId(Struct, frozen=True):
    """The identity of a process, which a later process with the same pid does not have."""

    pid: int
    started: int  # in ticks since the host's boot
    host: PidNamespace


class ProcessStat(Struct, frozen=True):
    """One line of `/proc/PID/stat`; processor time counts with that of the children that have ended."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    started: int
    ticks: int = 0  # of processor time
    memory: int = 0  # in bytes

    @property
    def alive(self) -> bool:
        """Whether it is neither a zombie nor dead."""
        return self.state not in DEAD


def parse_stat(text: str) -> ProcessStat:
    """Parse a line of `/proc/PID/stat`; the program's name may contain blanks and brackets."""
    head, _, tail = text.rpartition(")")
    words = tail.split()
    parent, group, session = map(int, words[1:4])
    ticks, memory = sum(map(int, words[11:15])), int(words[21]) * PAGE_BYTES
    return ProcessStat(int(head.split(" ", 1)[0]), words[0], parent, group, session, int(words[19]), ticks, memory)


def read_proc(pid: int | str, name: str) -> bytes | None:
    """Return a file of a process, or None if it has ended or is not readable; for scans of all processes."""
    try:
        return _read(pid, name)
    except OSError:
        return None


def _read(pid: int | str, name: str) -> bytes:
    file = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = [os.read(file, MAX_READ)]
        while len(parts[-1]) == MAX_READ:
            parts.append(os.read(file, MAX_READ))
        return b"".join(parts)
    finally:
        os.close(file)


def host_cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0))


def host_memory() -> int:
    """Return the memory of this host, in bytes."""
    return max(0, os.sysconf("SC_PHYS_PAGES")) * PAGE_BYTES


@cache
def this_pid_namespace() -> PidNamespace:
    """Return the pid namespace of this process."""
    boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    return PidNamespace(boot, str((PROC / "self/ns/pid").readlink()))


def stat_of(pid: int | str) -> ProcessStat | None:
    """Return the present state of a pid, or of a thread (`PID/task/TID`), or None."""
    try:
        return parse_stat(_read(pid, "stat").decode(errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def process_of(pid: int) -> ProcessId | None:
    """Return the identity of a living process of this host."""
    stat = stat_of(pid)
    if stat is None or not stat.alive:
        return None
    return ProcessId(pid, stat.started, this_pid_namespace())


def process_age_s(process: ProcessId) -> float:
    """Return the age of a process of this host, in seconds."""
    uptime = float((PROC / "uptime").read_text().split()[0])
    return uptime - process.started / os.sysconf("SC_CLK_TCK")


def is_stopped(stat: ProcessStat) -> bool:
    """Return whether a process was stopped by a signal, so that it executes nothing of its program.

    A process that waits in the kernel has no state of its own for this. One that has started a child with vfork waits
    until the child runs another program, which a stopped child never does.
    """
    if stat.state != WAITING_IN_KERNEL:
        return stat.state in STOPPED
    status = read_proc(stat.pid, "status") or b""
    pending = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    if any(signals >> (signal.SIGSTOP - 1) & 1 for signals in pending):
        return True
    with suppress(OSError):  # it has ended meanwhile
        threads = [stat_of(f"{stat.pid}/task/{thread}") for thread in os.listdir(f"/proc/{stat.pid}/task")]  # noqa: PTH208
        return any(thread is not None and thread.state in STOPPED for thread in threads)
    return False


def is_same_process(process: ProcessId, stat: ProcessStat | None) -> bool:
    """Tell whether the pid still belongs to this process, and it is alive."""
    return stat is not None and stat.alive and stat.started == process.started


def is_alive(process: ProcessId) -> bool:
    """Tell whether a process is alive, and visible here."""
    return process.host == this_pid_namespace() and is_same_process(process, stat_of(process.pid))


def signal_group(process: ProcessId, number: signal.Signals) -> None:
    """Send a signal to a process group, if its leader is still the known process."""
    if is_alive(process):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def kill_processes(pids: Iterable[int]) -> None:
    """Kill processes; one that has ended, or that we cannot kill, does not keep the others."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def find_marked(marks: Collection[str]) -> dict[str, int]:
    """Return the session leaders that have one of the marks among their arguments."""
    wanted = {mark.encode(): mark for mark in marks}
    pids: dict[str, int] = {}
    for pid, arguments in command_lines() if wanted else ():
        for argument in wanted.keys() & set(arguments):
            stat = stat_of(pid)
            if stat is not None and stat.alive and stat.session == pid:
                pids[wanted[argument]] = pid
    return pids


def find_leader(mark: str) -> ProcessId | None:
    """Return the living session leader that has a mark among its arguments, or None."""
    pid = find_marked([mark]).get(mark)
    return None if pid is None else process_of(pid)


def find_in_group(group: int, text: str) -> set[int]:
    """Return the processes of a group that have a text in their arguments."""
    pids = {pid for pid, arguments in command_lines() if any(text.encode() in argument for argument in arguments)}
    return {process.pid for process in map(stat_of, pids) if process and process.alive and process.group == group}


def find_by_environment(is_wanted: Callable[[list[bytes]], bool]) -> set[int]:
    """Return the living processes whose variables, each as `NAME=VALUE`, are wanted.

    That of another user, or one that has ended, has none.
    """
    pids = (pid for pid in all_pids() if is_wanted((read_proc(pid, "environ") or b"").split(b"\0")))
    return {pid for pid in pids if (stat := stat_of(pid)) is not None and stat.alive}


def descendants_of(pids: Collection[int]) -> set[int]:
    """Return some processes and all their living descendants."""
    alive = living_processes() if pids else []
    taken = set(pids)
    while more := {process.pid for process in alive if process.parent in taken} - taken:
        taken |= more
    return taken


def living_processes() -> list[ProcessStat]:
    """Return all processes of this host that are alive."""
    return [stat for pid in all_pids() if (stat := stat_of(pid)) is not None and stat.alive]


def all_pids() -> list[int]:
    """Return the pids of all processes."""
    return [int(name) for name in os.listdir(PROC) if name.isdecimal()]  # noqa: PTH208 - many, and names will do


def command_lines() -> Iterator[tuple[int, list[bytes]]]:
    """Yield the arguments of all processes; one that has ended, or is not readable for us, has none."""
    for pid in all_pids():
        yield pid, (read_proc(pid, "cmdline") or b"").split(b"\0")
