"""The errors of machines that are processes of this host."""

from stateward.errors import StatewardError


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
