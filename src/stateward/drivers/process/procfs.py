"""Processes as `/proc` shows them: identities, states, sessions and arguments.

The kernel reuses process ids. A pid with the start time of the process, the boot of the host and the pid namespace
identifies one process, and never another.
"""

import os
import signal
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from msgspec import Struct

PROC = Path("/proc")
DEAD = frozenset("ZXx")
STOPPED = frozenset("Tt")
WAITING_IN_KERNEL = "D"
LISTENING = "0A"
"""The state of a socket that accepts connections, in `/proc/net/tcp`."""
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
    """One line of `/proc/PID/stat`."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether it is neither a zombie nor dead."""
        return self.state not in DEAD


def parse_stat(text: str) -> ProcessStat:
    """Parse a line of `/proc/PID/stat`; the program's name may contain blanks and brackets."""
    head, _, tail = text.rpartition(")")
    words = tail.split()
    return ProcessStat(
        int(head.split(" ", 1)[0]), words[0], int(words[1]), int(words[2]), int(words[3]), int(words[19])
    )


def read_proc(pid: int | str, name: str) -> bytes | None:
    """Return a file of a process, or None if it has ended or is not readable; for scans of all processes."""
    try:
        file = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts = [os.read(file, MAX_READ)]
        while len(parts[-1]) == MAX_READ:
            parts.append(os.read(file, MAX_READ))
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(file)


@cache
def this_pid_namespace() -> PidNamespace:
    """Return the pid namespace of this process."""
    boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    return PidNamespace(boot, str((PROC / "self/ns/pid").readlink()))


def stat_of(pid: int | str) -> ProcessStat | None:
    """Return the present state of a pid, or of a thread (`PID/task/TID`), or None."""
    try:
        return parse_stat((PROC / str(pid) / "stat").read_text(errors="replace"))
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


def find_marked(marks: Collection[str]) -> dict[str, int]:
    """Return the session leaders that have one of the marks among their arguments."""
    wanted = {mark.encode(): mark for mark in marks}
    pids: dict[str, int] = {}
    for pid, arguments in _command_lines() if wanted else ():
        for argument in wanted.keys() & set(arguments):
            stat = stat_of(pid)
            if stat is not None and stat.alive and stat.session == pid:
                pids[wanted[argument]] = pid
    return pids


def find_descendants(group: int, text: str) -> list[int]:
    """Return the processes of a group that have a text in their arguments, and all their descendants."""
    return sorted(descendants_of(find_in_group(group, text)))


def find_in_group(group: int, text: str) -> set[int]:
    """Return the processes of a group that have a text in their arguments."""
    pids = {pid for pid, arguments in _command_lines() if any(text.encode() in argument for argument in arguments)}
    return {
        process.pid
        for process in map(stat_of, pids)
        if process is not None and process.alive and process.group == group
    }


def find_labeled(label: str) -> set[int]:
    """Return the processes that have a variable with this value (`NAME=VALUE`) in their environment."""
    pids = set()
    for pid in all_pids():
        with suppress(OSError):  # it has ended, or is not readable for us
            if label.encode() in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                pids.add(pid)
    return pids


def descendants_of(pids: Collection[int]) -> set[int]:
    """Return some processes and all their living descendants."""
    alive = [process for process in _all_stats() if process.alive] if pids else []
    taken = set(pids)
    while more := {process.pid for process in alive if process.parent in taken} - taken:
        taken |= more
    return taken


def _all_stats() -> Iterator[ProcessStat]:
    for pid in all_pids():
        if (stat := stat_of(pid)) is not None:
            yield stat


def all_pids() -> list[int]:
    """Return the pids of all processes."""
    return [int(name) for name in os.listdir(PROC) if name.isdecimal()]  # noqa: PTH208 - many, and names will do


def _command_lines() -> Iterator[tuple[int, list[bytes]]]:
    for pid in all_pids():
        try:
            yield pid, (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or is not readable for us


def has_listening_socket(pid: int, port: int) -> bool:
    """Tell whether a process itself listens on a TCP port; a connection is answered by whichever program does."""
    sockets = {f"socket:[{words[9]}]" for words in _listening_rows(pid) if int(words[1].rpartition(":")[2], 16) == port}
    with suppress(OSError):
        for handle in sorted(os.listdir(PROC / str(pid) / "fd"), key=int):  # noqa: PTH208 - it is one of the first
            with suppress(FileNotFoundError):
                if os.readlink(f"/proc/{pid}/fd/{handle}") in sockets:  # noqa: PTH115 - a text, not a path
                    return True
    return False


def _listening_rows(pid: int) -> Iterator[list[str]]:
    """Return the rows of listening sockets in the network of a process; the kernel lists them before all others."""
    with suppress(OSError), (PROC / str(pid) / "net/tcp").open() as stream:
        next(stream)
        for line in stream:
            words = line.split()
            if words[3] != LISTENING:
                return
            yield words
