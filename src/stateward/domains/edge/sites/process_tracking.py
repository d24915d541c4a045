"""Tracking of an app's processes by label, parent and session.

A process group is not enough: a daemon puts itself into a session of its own, and its parent ends. So everything that
is started for an app has a label in its environment, which all descendants inherit. The shell that runs an app is also
a subreaper: a process that loses its parent becomes its child. Invariant: a process is found while that shell runs, or
while the process keeps the label. One that clears its environment and outlives the shell is not found.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterable
from shlex import quote

from stateward.procfs import ProcessStat, find_by_environment, kill_processes, living_processes

LABEL = "STATEWARD_APP"

SUBREAPER = """
import ctypes, os, sys
try:
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
except (OSError, AttributeError):
    pass
os.execv("/bin/sh", ["sh", "-c", *sys.argv[1:]])
"""
"""Program that becomes a subreaper (PR_SET_CHILD_SUBREAPER) and then a shell; `exec` keeps both that and the pid."""


def with_label(label: str, command: str) -> str:
    """Return a shell command that runs another one with a label in its environment."""
    return f"export {LABEL}={quote(label)}\n{command}"


def background_shell(program: str, mark: str, log: str) -> str:
    """Return a command that runs a program in the background, in a subreaper shell, and prints its pid.

    The program's output is appended to the file `log`.
    """
    arguments = f"{quote(program)} {quote(mark)}"
    python = quote(sys.executable)  # an app of another user may have access to the system's Python only
    tries = (
        f"for one in {python} /usr/bin/python3; do [ -x $one ] && exec $one -ISc {quote(SUBREAPER)} {arguments}; done"
    )
    shell = f"{tries}; exec sh -c {arguments}"
    return f"({shell}) </dev/null >>{quote(log)} 2>&1 & echo $!"


def kill_labeled(is_wanted: Callable[[str], bool], roots: Iterable[int] = (), nodes: Collection[int] = ()) -> int:
    """Kill the processes with a wanted label, the roots, and their descendants; returns how many were killed.

    A process may fork meanwhile, so the caller repeats the call until it returns 0. The sessions of `nodes` are shared
    with other apps, and are not followed.
    """
    prefix = f"{LABEL}=".encode()
    labeled = find_by_environment(
        lambda variables: any(
            variable.startswith(prefix) and is_wanted(variable[len(prefix) :].decode(errors="replace"))
            for variable in variables
        )
    )
    pids = _with_descendants(living_processes(), labeled | {*roots}, {*nodes, os.getsid(0)})
    kill_processes(pids)
    return len(pids)


def _with_descendants(stats: Iterable[ProcessStat], wanted: set[int], shared: set[int]) -> set[int]:
    """Return the wanted processes, their descendants, and all processes of their sessions."""
    alive = {stat.pid: stat for stat in stats}
    reached = wanted & alive.keys()
    while True:
        sessions = {alive[pid].session for pid in reached} - shared
        more = {stat.pid for stat in alive.values() if stat.parent in reached or stat.session in sessions}
        if more <= reached:
            return reached
        reached |= more
