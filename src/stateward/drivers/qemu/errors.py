"""The errors of QEMU machines: of their monitors, their disks and their migrations.

The three errors of a monitor say what is known: nothing was sent; QEMU rejects the command; or the command was sent and
its result is unknown.
"""

from pathlib import Path

from stateward.errors import StatewardError


class MonitorError(StatewardError):
    """A command to a monitor did not succeed."""

    machine: str
    reason: str
    text = "{reason}"


class MonitorNotReached(MonitorError, retry=True):
    """No process listens at the monitor's socket; nothing was sent."""


class MonitorNotAnswered(MonitorError, retry=True):
    """The monitor did not answer in time; QEMU may have executed the command."""


class CommandRejected(MonitorError):
    """QEMU rejected the command."""


class DiskError(StatewardError):
    """A disk cannot be made or detached."""

    file: str
    reason: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}: {self.reason}"


class DiskBusy(DiskError, retry=True):
    """Another process uses the file of a disk; nothing was made."""


class MigrationFailed(StatewardError):
    """A machine could not be migrated; it still runs on its source host."""

    key: str
    reason: str
    text = "{reason}"
