"""Reads of the journal that look at a limited number of entries, however long the journal is.

The journal has no index over times: its numbers rise with them, so the first entry of a time is found by bisection. It
has indexes of objects and of namespaces; any other filter looks at so many entries and reports how far it came.
"""

from msgspec import Struct
from msgspec.structs import replace

from stateward.store.filters import JournalFilter
from stateward.store.port import Reader
from stateward.store.records import JournalEntry

READ_ROWS = 100_000
"""How many entries one read looks at, if no index has what its filter names: about 20 ms."""

CLOCK_MARGIN_S = 60.0
"""Entries are in the order of their times, apart from concurrent transactions and differences between clocks."""

EVERYTHING = JournalFilter()


class JournalRead(Struct, frozen=True):
    """The entries that match, the number up to which the journal was read, and whether nothing is left to read."""

    entries: list[JournalEntry]
    upto: int
    is_end: bool


async def last_seq_before(reader: Reader, time: float, low: int, high: int) -> int:
    """Return the number of the last entry between two numbers that is older than a time; `low` if there is none."""
    after = low
    while low < high:
        entries = await reader.journal(after, 1, EVERYTHING)
        if entries and entries[0].at < time:
            low = entries[0].seq
        elif after == low:
            return low
        else:
            high = after
        after = (low + high) // 2
    return min(low, high)


async def journal_bounds(reader: Reader, after: int, only: JournalFilter) -> tuple[int, int]:
    """Return the numbers after which, and up to which, entries of the filter's times can be found."""
    first, last = after, await reader.last_journal_seq()
    if only.object is not None and only.ns is not None:
        return after, last  # an object's entries are few
    if only.since is not None:
        first = await last_seq_before(reader, only.since - CLOCK_MARGIN_S, after, last)
    if only.until is not None:
        last = await last_seq_before(reader, only.until + CLOCK_MARGIN_S, first, last)
    return first, last


async def read_between(
    reader: Reader, after: int, last: int, limit: int, only: JournalFilter, rows: int | None = None
) -> JournalRead:
    """Return the first entries after one number, up to another, that match, among the next `rows` entries."""
    upto = last
    if only.needs_walk:
        reached = await reader.journal_reach(after, READ_ROWS if rows is None else rows, only.ns)
        upto = last if reached is None else min(last, reached)
    entries = await reader.journal(after, limit, replace(only, upto=upto))
    if len(entries) == limit:
        return JournalRead(entries, entries[-1].seq, is_end=False)
    return JournalRead(entries, max(after, upto), is_end=upto == last)


async def read_all(reader: Reader, limit: int, only: JournalFilter) -> list[JournalEntry]:
    """Return the first entries that match, in several reads if an index doesn't have what the filter names."""
    after, last = await journal_bounds(reader, 0, only)
    entries: list[JournalEntry] = []
    while after < last and len(entries) < limit:
        read = await read_between(reader, after, last, limit - len(entries), only)
        entries += read.entries
        after = read.upto
    return entries
