"""The errors of machines that are processes of this host."""

import errno
import resource

from stateward.errors import StatewardError

OPEN_FILES_NEEDED = 512
"""What a process needs to change machines: a lock for each of a hundred, the files of its threads, and its own."""


class MachineLocked(StatewardError, retry=True):
    """Another controller held the lock of a machine until the time-out."""

    key: str
    seconds: float
    text = "somebody else has been at work on {key} for {seconds:.0f} s"


class BadMachineRecord(StatewardError):
    """The record file of a machine cannot be decoded."""

    file: str
    reason: str
    text = "{file}: {reason}"


class ProcessStillRunning(OSError):
    """A process has not ended in time."""


def os_error_text(error: OSError) -> str:
    """Return the text of an error; one about too many open files names the limit."""
    if error.errno != errno.EMFILE:
        return str(error)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"{error}: this process can open {limit} files (ulimit -n), and machines need at least {OPEN_FILES_NEEDED}"
