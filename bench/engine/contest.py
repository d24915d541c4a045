"""What a contestant does, and what it tells about a round."""

import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Struct

STATM = Path("/proc/self/statm")


class Contestant(Protocol):
    """Something that can do so much of what it does."""

    async def open(self) -> None:
        """Get ready."""

    async def run(self, amount: int) -> None:
        """Do so much, to the end: this is what is timed."""

    async def tidy(self) -> None:
        """Get ready for the next round."""

    async def close(self) -> None:
        """Let go of everything."""


Contestants: TypeAlias = dict[str, Callable[..., Contestant]]
"""How to make each of them, of a database and some numbers."""


class Lap(Struct, frozen=True):
    """The seconds that a round took, the processor's seconds of the process, and the bytes it has in memory."""

    seconds: float
    cpu: float
    resident: int


def resident_bytes() -> int:
    """Return how much memory this process has now; where that cannot be told, how much it had at most."""
    if STATM.exists():
        return int(STATM.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
