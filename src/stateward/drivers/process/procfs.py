"""What the operating system tells about processes: one line of `/proc/PID/stat` each.

A number of a process is used again after a while. Together with the moment at which the process was started, the boot
of the host and the namespace that the number counts in, it names one process and never another.
"""

import os
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct

PROC = Path("/proc")
DEAD = frozenset("ZXx")


class PidNamespace(Struct, frozen=True):
    """Where the number of a process means something: one boot of one kernel, and a namespace in it."""

    boot: str
    namespace: str


class ProcessId(Struct, frozen=True):
    """One process, and never another one that was given the same number later."""

    pid: int
    started: int  # in ticks since the host's boot
    host: PidNamespace


class ProcessStat(Struct, frozen=True):
    """A process as the kernel shows it."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether it is more than the memory of a process."""
        return self.state not in DEAD


def parse_stat(text: str) -> ProcessStat:
    """Read a line of `/proc/PID/stat`; the program's name in it may hold anything, blanks and brackets too."""
    head, _, tail = text.rpartition(")")
    words = tail.split()
    return ProcessStat(
        int(head.split(" ", 1)[0]), words[0], int(words[1]), int(words[2]), int(words[3]), int(words[19])
    )


@cache
def this_pid_namespace() -> PidNamespace:
    """Say where we are."""
    boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    return PidNamespace(boot, str((PROC / "self/ns/pid").readlink()))


def stat_of(pid: int) -> ProcessStat | None:
    """Return a process as it is now, if there is one of that number."""
    try:
        return parse_stat((PROC / str(pid) / "stat").read_text(errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def process_of(pid: int) -> ProcessId | None:
    """Name a process of ours that is alive."""
    stat = stat_of(pid)
    if stat is None or not stat.alive:
        return None
    return ProcessId(pid, stat.started, this_pid_namespace())


def process_age_s(process: ProcessId) -> float:
    """Say how long ago a process of this host was started, in seconds."""
    uptime = float((PROC / "uptime").read_text().split()[0])
    return uptime - process.started / os.sysconf("SC_CLK_TCK")


def is_same_process(process: ProcessId, stat: ProcessStat | None) -> bool:
    """Tell whether what has that number now is the process that was named, and alive."""
    return stat is not None and stat.alive and stat.started == process.started


def find_marked(marks: Collection[str]) -> dict[str, int]:
    """Look through all processes for those that lead a session and have a mark among their arguments."""
    wanted = {mark.encode(): mark for mark in marks}
    found: dict[str, int] = {}
    for pid, arguments in _command_lines() if wanted else ():
        for argument in wanted.keys() & set(arguments):
            stat = stat_of(pid)
            if stat is not None and stat.alive and stat.session == pid:
                found[wanted[argument]] = pid
    return found


def session_orphans(leader: ProcessId) -> list[int]:
    """Return what is left of a session whose leader has ended.

    The kernel does not give the leader's number away while there is anything left of its session.
    """
    if leader.host != this_pid_namespace() or ((stat := stat_of(leader.pid)) is not None and stat.alive):
        return []
    return [one.pid for one in _all_stats() if one.session == leader.pid and one.alive]


def find_descendants(group: int, text: str) -> list[int]:
    """Return the processes of a group that have a text somewhere in their arguments, and all that come from them."""
    found = {pid for pid, arguments in _command_lines() if any(text.encode() in one for one in arguments)}
    alive = [one for one in _all_stats() if one.alive]
    taken = {one.pid for one in alive if one.pid in found and one.group == group}
    while more := {one.pid for one in alive if one.parent in taken} - taken:
        taken |= more
    return sorted(taken)


def _all_stats() -> Iterator[ProcessStat]:
    for pid in _pids():
        if (stat := stat_of(pid)) is not None:
            yield stat


def _pids() -> list[int]:
    return [int(name) for name in os.listdir(PROC) if name.isdecimal()]  # noqa: PTH208 - many, and names will do


def _command_lines() -> Iterator[tuple[int, list[bytes]]]:
    for pid in _pids():
        try:
            yield pid, (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has gone meanwhile, or is nobody's business
