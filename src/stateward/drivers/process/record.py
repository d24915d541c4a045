"""What is kept of a machine beside the operating system, and what the two tell together.

The record is on the disk before the process is started, so that no machine can be without one. Fields that this version
does not know are passed over when it is read.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from msgspec import Struct

from stateward.drivers.port import Want
from stateward.drivers.process.proc import Process, Stat


class Phase(StrEnum):
    """How far we have brought a machine."""

    STARTING = "starting"
    UP = "up"
    ENDING = "ending"


class Record(Struct, frozen=True, omit_defaults=True):
    """A machine of ours. `process` is that of its latest boot that is known to have started."""

    key: str
    native_id: str
    name: str
    spec: str
    image: str
    phase: Phase = Phase.STARTING
    boot: int = 1
    process: Process | None = None
    token: str = ""  # of the latest reboot
    user: str = ""
    tags: Mapping[str, str] = {}
    more: Mapping[str, str] = {}  # what one kind of machine keeps beside
    uid: int | None = None  # the user that it runs as, where that is one of its own
    home: str = ""  # its folder as it sees it; empty: as it is


class Standing(StrEnum):
    """What the operating system says about a machine of which there is a record."""

    NOT_YET = "not started yet"
    THERE = "there"
    STOPPED = "stopped"
    LEAVING = "dead, but not yet gone"
    GONE = "gone"
    HIDDEN = "alive, but not to be seen from here"


class Sight(Struct, frozen=True):
    """A machine as record and operating system show it together."""

    record: Record
    standing: Standing
    process: Process | None = None
    stat: Stat | None = None

    def __str__(self) -> str:
        """Say what both show of it: they may differ."""
        return f"its record says that it is {self.record.phase}, and its process is {self.standing}"

    @property
    def alive(self) -> bool:
        """Whether its process can be reached."""
        return self.process is not None


def first_record(want: Want, root: Path) -> Record:
    """Return the record of a machine that is to be."""
    native_id = str(uuid5(NAMESPACE_URL, f"{root}?{want.key}"))
    return Record(want.key, native_id, want.name, want.spec, want.image, user=want.user, tags=want.tags)
