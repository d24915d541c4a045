"""Processes that are stopped by a signal."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path


def stop_process(pid: int) -> None:
    """Stop a process; all its threads have stopped when this returns.

    The kernel stops a thread when it next runs, which takes a while on a busy machine.
    """
    os.kill(pid, signal.SIGSTOP)
    while any(_state_of(thread) not in "TZX" for thread in Path(f"/proc/{pid}/task").iterdir()):
        time.sleep(0.01)


def _state_of(thread: Path) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    return "X"  # it has ended meanwhile
