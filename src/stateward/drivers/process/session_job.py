"""Jobs of a process machine whose input and output are streams: the sessions of its SSH server.

The machine's own shell starts the job, like any other (`jobs.py`), so it is confined, suspended and ended with the
machine. Its streams are named pipes in the machine's folder for jobs. A further pipe carries the exit status; its end
without one says that the job was killed.

The machine may put anything in the place of a file in that folder, at any time. So a pipe is opened without following a
link, and used only if it is a pipe. We hold the output open ourselves until the command has ended: a pipe that nobody
has ever opened for writing has no end, and the command opens another file if the machine has replaced the pipe.
"""

import errno
import os
import signal
import stat
from collections.abc import Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from secrets import token_hex
from shlex import quote

from stateward.drivers.process.jobs import discard_file, send_job, write_new_file
from stateward.drivers.ssh.remote_run import SESSION_VARIABLE
from stateward.procfs import ProcessId, descendants_of, find_in_group
from stateward.workloads.confinement.syscalls import open_handle

PREFIX = "session-"
STARTED = "started"
STREAMS = ("in", "out", "err", "status")


class SessionJob:
    """A job that was sent to a machine, with our ends of its streams."""

    def __init__(self, files: Path, process: ProcessId) -> None:
        self._files, self._process = files, process
        pipes = [_open_pipe(files.with_suffix(f".{suffix}")) for suffix in STREAMS]
        self._held, self.stdout, self.stderr, self.status = pipes  # a held reader: no write to the input ever fails
        self.stdin = _open_writer(self._held)
        self._writers = [_open_writer(self.stdout), _open_writer(self.stderr)]

    def send(self, machine: Path, home: Path, command: str, variables: Mapping[str, str]) -> None:
        """Send it to the machine, which starts it when it runs; `home` is the machine's folder as it sees it."""
        seen = home / "jobs" / self._files.name
        write_new_file(self._files.with_suffix(".command"), command)
        write_new_file(self._files.with_suffix(".sh"), _script(seen, variables))
        if not send_job(machine / "asked", seen.with_suffix(".sh")):
            raise ConnectionRefusedError(errno.ECONNREFUSED, "the machine takes no jobs")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the processes of the command."""
        wrappers = find_in_group(self._process.pid, f"{self._files.name}.sh")
        for pid in descendants_of(wrappers) - wrappers:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def release_output(self) -> None:
        """Let the output end as soon as no process of the machine has it open."""
        for stream in self._writers:
            stream.close()

    def close(self) -> None:
        """Close its streams and remove its files; it goes on if it has started, and does not start any more."""
        for stream in (self._held, self.stdin, self.stdout, self.stderr, self.status, *self._writers):
            stream.close()
        remove_files(self._files)


def start_session_job(
    machine: Path, home: Path, process: ProcessId, variables: Mapping[str, str], command: str
) -> SessionJob:
    """Send a command to a machine as a new job."""
    files = machine / "jobs" / f"{PREFIX}{token_hex(8)}"
    try:
        job = SessionJob(files, process)
    except OSError:
        remove_files(files)
        raise
    try:
        job.send(machine, home, command, variables)
    except OSError:
        job.close()
        raise
    return job


def remove_files(files: Path) -> None:
    """Remove the files of a job."""
    for suffix in (*STREAMS, "command", "sh"):
        discard_file(files.with_suffix(f".{suffix}"))


def remove_old_jobs(machine: Path) -> None:
    """Remove the files of jobs whose SSH server has ended."""
    with suppress(OSError):
        for file in (machine / "jobs").glob(f"{PREFIX}*"):
            discard_file(file)


def _script(job: Path, variables: Mapping[str, str]) -> str:
    """Return the script of a job: it reports that its input is open, and the status of the command.

    A pipe can only be opened for reading while somebody has it open for writing. So the input must not be ended before.
    The status is written when the command has ended, whatever it has left behind.
    """
    files = {suffix: quote(str(job.with_suffix(f".{suffix}"))) for suffix in (*STREAMS, "command")}
    set_ = "".join(f"{name}={quote(value)} " for name, value in {**variables, SESSION_VARIABLE: job.name}.items())
    streams = f"<&8 8<&- >{files['out']} 2>{files['err']} 9>&-"
    start = f"exec 9>{files['status']} 8<{files['in']}\necho {STARTED} >&9\n"
    return f"{start}{set_}sh {files['command']} {streams}\necho $? >&9\n"


def _open_pipe(path: Path) -> FileIO:
    """Create a named pipe, and open it for reading."""
    os.mkfifo(path, 0o600)
    stream = FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb")
    if not stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise PermissionError(errno.EPERM, f"{path.name} of the machine is not a pipe")
    os.fchmod(stream.fileno(), 0o666)  # the machine may run as another user; nobody else can open its folder
    return stream


def _open_writer(pipe: FileIO) -> FileIO:
    """Open the other end of a pipe, whatever is at its path by now."""
    return FileIO(os.open(f"/proc/self/fd/{pipe.fileno()}", os.O_WRONLY | os.O_NONBLOCK), "wb")


def is_accepting(machine: Path) -> bool:
    """Tell whether a machine has its pipe for jobs open."""
    with suppress(OSError), open_handle(machine / "asked", os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW):
        return True
    return False
