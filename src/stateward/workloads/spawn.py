"""Starting processes that outlive this one, and reaping those that have ended."""

import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock

from stateward.workloads.confinement.syscalls import open_handle

_children: set[int] = set()
_guard = Lock()
_RESTORED = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


Run = Callable[[Callable[[], int]], int]
"""Calls a function that starts a process, for example in a confined thread."""


def spawn(
    command: Sequence[str],
    environment: Mapping[str, str],
    stdin: int,
    log: Path,
    run: Run = lambda start: start(),
    gate: tuple[int, int] | None = None,
) -> int:
    """Start a process in a session of its own, and return its pid.

    It inherits only the files given here. The kernel closes Python's own files; files that a library left inheritable
    are closed here. We open its log, because a confined process could not. `gate` is a further file for it, and its
    number there.
    """
    with open_handle(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600) as output:
        return run(lambda: _start(command, environment, stdin, output, gate))


def _start(
    command: Sequence[str],
    environment: Mapping[str, str],
    stdin: int,
    output: int,
    gate: tuple[int, int] | None,
) -> int:
    actions: list[tuple[int, ...]] = [
        (os.POSIX_SPAWN_DUP2, stdin, 0),
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_DUP2, output, 2),
        *((os.POSIX_SPAWN_CLOSE, handle) for handle in _inheritable_handles()),
        *(() if gate is None else [(os.POSIX_SPAWN_DUP2, *gate)]),
    ]
    with _guard:
        pid = os.posix_spawn(
            command[0],
            list(command),
            environment,
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            setsigdef=_RESTORED,
        )
        _children.add(pid)
    return pid


def reap_children() -> None:
    """Reap our children that have ended."""
    with _guard:
        _children.difference_update([pid for pid in _children if _has_ended(pid)])


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _inheritable_handles() -> list[int]:
    """Return the inheritable files of this process that posix_spawn can close.

    It refuses numbers above the limit on open files. We can only have inherited such a file, so no child is given it.
    """
    handles = []
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names, not paths
        with suppress(OSError):
            if int(name) > 2 and os.get_inheritable(int(name)):
                if int(name) < limit:
                    handles.append(int(name))
                else:
                    os.set_inheritable(int(name), False)
    return handles
