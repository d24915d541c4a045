"""Commands on a process machine: its own shell starts them, so that they belong to the machine.

A suspended machine runs nothing, so a command on it runs into its time-out.
"""

import asyncio
import errno
import os
import signal
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from shlex import quote

from stateward.drivers.confinement.syscalls import open_handle
from stateward.drivers.port import CommandFailed
from stateward.drivers.process.procfs import ProcessId, descendants_of, find_descendants, find_labeled
from stateward.drivers.ssh.remote_run import SESSION_VARIABLE

POLL_INTERVAL_S = 0.01

MAX_OUTPUT_BYTES = 1_000_000
"""How many bytes of a command's output are read: the last ones."""


async def run_job(
    machine: Path, home: Path, process: ProcessId, command: str, user: str, alive: Callable[[], Awaitable[bool]]
) -> str:
    """Run a command on a machine, and return its output; ends with the machine, or when it is cancelled.

    `home` is the machine's folder as the machine sees it.
    """
    name = f"job-{token_hex(8)}"
    job, seen = machine / "jobs" / name, home / "jobs" / name
    try:
        write_new_file(job.with_suffix(".command"), command)
        write_new_file(job.with_suffix(".sh"), _script(seen, user))
        while not send_job(machine / "asked", seen.with_suffix(".sh")):
            await _pause(alive)
        while not job.with_suffix(".done").exists():
            await _pause(alive)
        return _read_result(job)
    finally:
        _remove_job(process, job)


def _script(job: Path, user: str) -> str:
    names = ("command", "out", "status", "done")
    files = {suffix: quote(str(job.with_suffix(f".{suffix}"))) for suffix in names}
    variables = f"{SESSION_VARIABLE}={job.name} " + (f"USER={quote(user)} LOGNAME={quote(user)} " if user else "")
    run = f"{variables}sh {files['command']} >{files['out']} 2>&1"
    return f"{run}\necho $? >{files['status']}\n: >{files['done']}\n"  # done comes last: then the status is complete


def write_new_file(file: Path, text: str) -> None:
    """Write a new file for the machine to read; a link that the machine put there is not followed."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with open(handle, "w", encoding="utf-8") as stream:  # noqa: PTH123 - it is open
        os.fchmod(handle, 0o644)  # regardless of our umask: the machine may run as another user
        stream.write(text)


def discard_file(file: Path) -> None:
    """Remove a file of a job; what the machine put in its place, such as a folder, stays until the machine is removed.

    No link is followed. A folder is not cleared here, because the machine could make it endless.
    """
    with suppress(OSError):
        file.unlink()


def _read_result(job: Path) -> str:
    """Return the output of a job that ended with status 0."""
    written = _read_tail(job.with_suffix(".out"))
    status = _read_tail(job.with_suffix(".status")).strip()
    if not status.isascii() or not status.isdecimal() or len(status) > 3:
        raise OSError(errno.EINVAL, "the machine reported no exit status")
    if int(status) != 0:
        raise CommandFailed(int(status), written)
    return written


def _read_tail(path: Path) -> str:
    """Return the end of a file, at most so much as the server can hold.

    The machine creates the file. A link in its place could lead to a file that only we may read.
    """
    with open_handle(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK) as handle:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise OSError(errno.EINVAL, f"{path.name} of the machine is not a plain file")
        with open(handle, "rb", closefd=False) as file:
            file.seek(max(0, status.st_size - MAX_OUTPUT_BYTES))
            return file.read(MAX_OUTPUT_BYTES).decode(errors="replace")


def send_job(pipe: Path, script: Path) -> bool:
    """Write a job to the machine's pipe; false while the machine does not read it yet."""
    try:
        with open_handle(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW) as handle:
            os.write(handle, f"{script}\n".encode())
    except OSError as error:
        if isinstance(error, BlockingIOError) or error.errno == errno.ENXIO:
            return False
        raise
    return True


async def _pause(alive: Callable[[], Awaitable[bool]]) -> None:
    if not await alive():
        raise ProcessLookupError(errno.ESRCH, "the machine is gone")
    await asyncio.sleep(POLL_INTERVAL_S)


def _remove_job(process: ProcessId, job: Path) -> None:
    """Remove the files of a job, so that it cannot start any more, and kill its processes."""
    finished = job.with_suffix(".done").exists()
    for file in job.parent.glob(f"{job.name}.*"):
        discard_file(file)
    if finished:
        return
    labeled = find_labeled(f"{SESSION_VARIABLE}={job.name}")  # also what has lost its parent, or has another session
    for pid in sorted({*find_descendants(process.pid, job.name), *descendants_of(labeled)}):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
