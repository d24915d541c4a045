"""Commands on a process machine: its own shell starts them, so that they belong to the machine.

A suspended machine runs nothing, so a command on it runs into its time-out.
"""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from shlex import quote

from stateward.drivers.port import CommandFailed
from stateward.drivers.ssh.remote_run import SESSION_VARIABLE
from stateward.procfs import ProcessId, descendants_of, find_by_environment, find_in_group, kill_processes
from stateward.workloads.confinement.syscalls import open_handle
from stateward.workloads.log_files import open_plain_file

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
    """Return the end of a file that the machine has written, at most so much as the server can hold."""
    with open_plain_file(path) as handle:
        return os.pread(handle, MAX_OUTPUT_BYTES, max(0, os.fstat(handle).st_size - MAX_OUTPUT_BYTES)).decode(
            errors="replace"
        )


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
    label = f"{SESSION_VARIABLE}={job.name}".encode()  # also of what has lost its parent, or has another session
    labeled = find_by_environment(lambda variables: label in variables)
    kill_processes(descendants_of(labeled | find_in_group(process.pid, job.name)))
