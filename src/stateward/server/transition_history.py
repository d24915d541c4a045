"""The number of transitions in each minute of the last hour, from the journal.

A page that shows the last hour asks for it again and again, and an hour of a busy deployment has hundreds of thousands
of journal entries. So a minute is counted by the database, and once it is over it is counted no more. The journal has
no index over times: its numbers rise with them, and the first entry to count is found by halving.

Invariant: a minute is final only if it ended `SETTLE_S` ago, when transactions that began in it have been committed.
"""

from asyncio import Lock
from collections import Counter
from collections.abc import Callable

from stateward.engine.bounded_reads import last_seq_before
from stateward.schemas.journal import TransitionCounts
from stateward.server.views import to_datetime
from stateward.store.port import Reader

MINUTE_S = 60
MINUTES = 60
SETTLE_S = 10.0
"""Entries of concurrent transactions are out of order by less than this."""


class TransitionHistory:
    """Counts transitions by minute and namespace."""

    def __init__(self, reader: Callable[[], Reader]) -> None:
        self._reader = reader
        self._minutes: dict[int, Counter[str]] = {}
        self._final = 0  # minutes before this one are counted for good
        self._before = 0  # the number of an entry before the first minute that is not final
        self._lock = Lock()

    async def counts(self, is_wanted: Callable[[str], bool]) -> TransitionCounts:
        """Return the numbers of the last hour, in the wanted namespaces; the last minute is not over yet."""
        async with self._lock:
            first, last = await self._count()
        sums = [
            sum(number for ns, number in self._minutes[minute].items() if is_wanted(ns))
            for minute in range(first, last + 1)
        ]
        return TransitionCounts(to_datetime(first * MINUTE_S), MINUTE_S, sums)

    async def _count(self) -> tuple[int, int]:
        reader = self._reader()
        now = await reader.time()
        last = int(now // MINUTE_S)
        first = last - MINUTES + 1
        begin = max(first, self._final)
        last_seq = await reader.last_journal_seq()
        self._before = await last_seq_before(reader, begin * MINUTE_S - SETTLE_S, self._before, last_seq)
        transitions = await reader.count_transitions(self._before, begin * MINUTE_S, MINUTE_S)
        kept = {minute: counts for minute, counts in self._minutes.items() if first <= minute < begin}
        self._minutes = {minute: kept.get(minute, Counter()) for minute in range(first, last + 1)}
        for (ns, step), number in transitions.items():
            if begin + step <= last:
                self._minutes[begin + step][ns] += number
        self._final = int((now - SETTLE_S) // MINUTE_S)
        return first, last
