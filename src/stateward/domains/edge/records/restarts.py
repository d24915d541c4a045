"""Restarts: how soon an instance that keeps ending is re-created, and when that is a crash loop. Pure functions.

An app that ends at once would be re-created forever, as fast as its agent can. So each re-creation in a row waits twice
as long as the one before. An instance that has run for long enough since its last re-creation begins anew.
"""

FIRST_DELAY_S, MAX_DELAY_S = 1.0, 300.0
"""Seconds before the second re-creation in a row, and the most seconds before any."""

STABLE_AFTER_S = 600.0
"""Seconds that an instance must run after a re-creation, so that the next one is the first in a row."""

CRASH_LOOP_RESTARTS = 4
"""Re-creations in a row that are a crash loop."""


def restart_delay_s(restarts: int) -> float:
    """Return the seconds between a re-creation and the next one, after so many in a row."""
    return 0.0 if restarts < 1 else min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** min(restarts - 1, 20))


def is_stable(restarted: float, now: float) -> bool:
    """Tell whether an instance has run for long enough since it was re-created."""
    return now - restarted >= STABLE_AFTER_S


def count_restart(restarts: int, restarted: float, now: float) -> int:
    """Return the number of re-creations in a row, with the one that begins now."""
    return 1 if is_stable(restarted, now) else restarts + 1
