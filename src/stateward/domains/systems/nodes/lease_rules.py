"""The rules of a node's lease (pure): an instance that was moved never runs twice.

The agent of a node may run instances until its lease ends: `lease_s` after it sent the last heartbeat that a controller
answered. The controller stores a renewal, and only then answers. It declares a node lost, and so lets the instances be
started elsewhere, only if it has seen no renewal for `lease_s + margin_s`.

No two clocks are compared. The agent measures from its own sending, the controller from its own seeing, which is later.
What is assumed: a clock that counts while the host sleeps, rates of clocks that differ by less than
`margin_s / lease_s`, and that a watchdog kills the instances within the rest of the margin.
"""

from typing import NamedTuple

BEATS_PER_LEASE = 5.0
"""The number of heartbeats within a lease."""


def lease_end(sent_at: float, lease_s: float, current_end: float) -> float:
    """Return the end of a lease after the answer to a heartbeat; an answer never shortens it."""
    return max(current_end, sent_at + lease_s)


class Watched(NamedTuple):
    """The number of renewals of a node, and when this controller saw it first, by its own clock."""

    renewals: int
    since: float


def watch_renewals(watched: Watched | None, renewals: int, now: float) -> Watched:
    """Return what a controller remembers of a node after a look at it."""
    return watched if watched is not None and watched.renewals == renewals else Watched(renewals, now)


def is_overdue(watched: Watched, now: float, lease_s: float, margin_s: float) -> bool:
    """Tell whether a node has certainly stopped its instances, because its lease has ended."""
    return now - watched.since > lease_s + margin_s
