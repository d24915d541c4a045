"""The processes of an app, wherever they went: found by a label, by their parents and by their sessions.

A process group is not enough: a daemon puts itself into a session of its own, and its parent ends. So everything that
is started for an app has a label in its environment, which all descendants inherit. The shell that runs an app is also
a subreaper: a process that loses its parent becomes its child. Invariant: a process is found while that shell runs, or
while the process keeps the label. One that clears its environment and outlives the shell is not found.
"""

import os
import signal
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from shlex import quote

from stateward.drivers.process.procfs import PROC, ProcessStat, stat_of

LABEL = "STATEWARD_APP"

SUBREAPER = """
import ctypes, os, sys
try:
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
except (OSError, AttributeError):
    pass
os.execv("/bin/sh", ["sh", "-c", *sys.argv[1:]])
"""
"""Makes itself a subreaper (PR_SET_CHILD_SUBREAPER), and becomes a shell: `exec` keeps that, and the process id."""


def with_label(label: str, command: str) -> str:
    """Return a command for a shell which runs another one with a label in its environment."""
    return f"export {LABEL}={quote(label)}\n{command}"


def background_shell(program: str, mark: str, log: str) -> str:
    """Return a command that runs a program in the background, in a shell that is a subreaper, and prints its id.

    What the program writes is appended to the file `log`.
    """
    arguments = f"{quote(program)} {quote(mark)}"
    python = quote(sys.executable)  # an app that runs as another user may not reach ours, but has the system's
    tries = (
        f"for one in {python} /usr/bin/python3; do [ -x $one ] && exec $one -ISc {quote(SUBREAPER)} {arguments}; done"
    )
    shell = f"{tries}; exec sh -c {arguments}"
    return f"({shell}) </dev/null >>{quote(log)} 2>&1 & echo $!"


def kill_processes(is_wanted: Callable[[str], bool], roots: Iterable[int] = (), nodes: Collection[int] = ()) -> int:
    """Kill what has a wanted label, some roots, and all that belongs to either; returns how many processes that were.

    A process that forks meanwhile is faster than one look: the caller asks again until there was nothing to kill. The
    sessions of `nodes` are shared with others, and say nothing.
    """
    stats = [stat for pid in _pids() if (stat := stat_of(pid)) is not None and stat.alive]
    wanted = {one.pid for one in stats if (label := _label_of(one.pid)) and is_wanted(label)} | {*roots}
    found = _with_descendants(stats, wanted, {*nodes, _own_session()})
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(found)


def _with_descendants(stats: Iterable[ProcessStat], wanted: set[int], shared: set[int]) -> set[int]:
    """Return the wanted processes with their descendants, and the sessions that these have made."""
    alive = {one.pid: one for one in stats}
    found = wanted & alive.keys()
    while True:
        sessions = {alive[pid].session for pid in found} - shared
        more = {one.pid for one in alive.values() if one.parent in found or one.session in sessions}
        if more <= found:
            return found
        found |= more


def _label_of(pid: int) -> str:
    try:
        variables = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return ""  # it has gone meanwhile, or belongs to somebody else
    prefix = f"{LABEL}=".encode()
    return next((one[len(prefix) :].decode(errors="replace") for one in variables if one.startswith(prefix)), "")


def _pids() -> list[int]:
    return [int(name) for name in os.listdir(PROC) if name.isdecimal()]  # noqa: PTH208 - many, and names will do


def _own_session() -> int:
    return os.getsid(0)
