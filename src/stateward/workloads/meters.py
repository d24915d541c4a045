"""What has changed between two measurements of programs: rates of totals, and new connections."""

import time
from collections.abc import Mapping

Remotes = frozenset[tuple[int, str]]
"""The connections that a kernel knows of: the port, and the other end."""


class RateMeter:
    """Rates of totals that only grow; a total that is new has none yet."""

    def __init__(self) -> None:
        self._at = 0.0
        self._totals: Mapping[str, float] = {}

    def rates(self, totals: Mapping[str, float]) -> dict[str, float]:
        """Return the growth of each total in a second since the previous call."""
        now, before, known = time.monotonic(), self._at, self._totals
        self._at, self._totals = now, totals
        both = totals.keys() & known.keys() if now > before else ()
        return {name: max(0.0, totals[name] - known[name]) / (now - before) for name in both}


class ConnectionCounter:
    """Counts connections that are new; those of a program that is new are not."""

    def __init__(self) -> None:
        self.seen: Mapping[str, Remotes] = {}

    def count_new(self, seen: Mapping[str, Remotes]) -> dict[str, int]:
        """Return how many connections of each program are new since the previous call."""
        known, self.seen = self.seen, seen
        return {name: len(remotes - known.get(name, remotes)) for name, remotes in seen.items()}
