"""A calendar of busy hosts: a segment tree over the hours, with a set of hosts in every node.

A set of hosts is one integer with a bit for each host. A booking is written into the few nodes that cover its time, and
each node also has the hosts that are busy anywhere below it. So a query looks at a few dozen nodes, however many
bookings there are. Hours are coarse: a booking may only touch the hours at the edges of the queried span. For those the
answer is `perhaps`, and the caller checks the host's own bookings. The last hour stands for all later time, so there
the answer is always `perhaps`.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

HOUR_S = 3600
HOUR_COUNT = 1 << 20  # from the epoch on, until 2089
LAST_HOUR = HOUR_COUNT - 1
ROOT = 1

HourRange = tuple[int, int]
"""Hours from the first to the last, the last not included."""


class BusyHosts(NamedTuple):
    """Sets of hosts that are busy in a span of time: for certain, or perhaps."""

    certain: int
    perhaps: int


class Calendar:
    """Busy hosts by the hour."""

    def __init__(self) -> None:
        # bounded by: _recompute, which removes what is empty
        self._busy_throughout: dict[int, int] = {}  # by node: hosts that are busy in all of it
        self._busy_below: dict[int, int] = {}  # hosts that are busy anywhere in it
        self._ranges: dict[int, tuple[HourRange, ...]] = {}  # by host
        self._dirty: set[int] = set()  # nodes whose sets are not recomputed yet

    def write(self, host: int, spans: Iterable[tuple[float, float]]) -> None:
        """Replace the busy times of a host."""
        before, after = self._ranges.get(host, ()), merge_spans(spans)
        gone, new = set(before) - set(after), set(after) - set(before)
        if after:
            self._ranges[host] = after
        else:
            self._ranges.pop(host, None)
        bit = 1 << host
        for stretch in gone:
            for node in _nodes(stretch):
                self._busy_throughout[node] &= ~bit
        for stretch in new:
            for node in _nodes(stretch):
                self._busy_throughout[node] = self._busy_throughout.get(node, 0) | bit
        for stretch in gone | new:
            for node in _nodes(stretch):
                while node and node not in self._dirty:  # what is dirty has its ancestors with it
                    self._dirty.add(node)
                    node >>= 1

    def busy(self, start: float, end: float) -> BusyHosts:
        """Return the hosts that are busy in a span of time."""
        if self._dirty:
            self._recompute(sorted(self._dirty, reverse=True))
            self._dirty.clear()
        inner = (-int(-start // HOUR_S), min(int(end) // HOUR_S, LAST_HOUR))
        certain = self._busy_in(inner) if inner[0] < inner[1] else 0
        return BusyHosts(certain, self._busy_in(_hours(start, end)) & ~certain)

    def _busy_in(self, stretch: HourRange) -> int:
        busy = 0
        for node in _nodes(stretch):
            busy |= self._busy_below.get(node, 0)
        for leaf in (HOUR_COUNT + stretch[0], HOUR_COUNT + stretch[1] - 1):
            node = leaf
            while node:
                busy |= self._busy_throughout.get(node, 0)
                node >>= 1
        return busy

    def _recompute(self, nodes: Sequence[int]) -> None:
        """Recompute the sets of nodes; lower nodes come first."""
        whole, within = self._busy_throughout, self._busy_below
        for node in nodes:
            below = within.get(2 * node, 0) | within.get(2 * node + 1, 0) if node < HOUR_COUNT else 0
            busy = whole.get(node, 0) | below
            if busy:
                within[node] = busy
            else:
                within.pop(node, None)
                whole.pop(node, None)


def merge_spans(spans: Iterable[tuple[float, float]]) -> tuple[HourRange, ...]:
    """Return spans of time as disjoint ranges of hours."""
    merged: list[HourRange] = []
    for start, end in sorted(spans):
        first, last = _hours(start, end)
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def _hours(start: float, end: float) -> HourRange:
    """Return the hours that a span of time touches, at least one."""
    first = min(max(int(start) // HOUR_S, 0), LAST_HOUR)
    return first, min(max(first + 1, -int(-end // HOUR_S)), HOUR_COUNT)


def _nodes(stretch: HourRange) -> list[int]:
    """Return the largest nodes that together cover a range of hours."""
    left, right = HOUR_COUNT + stretch[0], HOUR_COUNT + stretch[1]
    nodes: list[int] = []
    while left < right:
        if left & 1:
            nodes.append(left)
            left += 1
        if right & 1:
            right -= 1
            nodes.append(right)
        left >>= 1
        right >>= 1
    return nodes
