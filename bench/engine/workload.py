"""The interface of a workload that is measured, and its report of a round."""

import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Struct

STATM = Path("/proc/self/statm")


class Workload(Protocol):
    """Something that does an amount of work, which is timed."""

    async def open(self) -> None:
        """Prepare."""

    async def run(self, amount: int) -> None:
        """Do the amount of work, to the end; this is timed."""

    async def tidy(self) -> None:
        """Prepare the next round."""

    async def close(self) -> None:
        """Release everything."""


Workloads: TypeAlias = dict[str, Callable[..., Workload]]
"""Constructors of workloads by name: of a database and some numbers."""


class RoundResult(Struct, frozen=True):
    """The seconds that a round took, the processor's seconds of the process, and the bytes it has in memory."""

    seconds: float
    cpu: float
    resident: int


def resident_bytes() -> int:
    """Return how much memory this process has now; where that cannot be told, how much it had at most."""
    if STATM.exists():
        return int(STATM.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
