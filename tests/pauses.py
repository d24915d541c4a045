"""Pauses of a wait: each look costs processor time, of the test and of the server that it asks."""

from collections.abc import Iterator

GROWTH = 1.25


def pauses(first_s: float = 0.02, longest_s: float = 0.2) -> Iterator[float]:
    """Return the pauses between looks: short ones first, so that a wait is not much longer than it must be."""
    pause_s = first_s
    while True:
        yield pause_s
        pause_s = min(pause_s * GROWTH, longest_s)
