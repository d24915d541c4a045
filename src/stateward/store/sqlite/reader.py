"""What is asked beside the writer."""

import sqlite3
from collections.abc import Callable
from typing import TypeAlias

from stateward.store.port import LaneLoad
from stateward.store.records import (
    Key,
    LaneGroup,
    Line,
    Lock,
    Object,
    Operation,
    Progress,
    Timer,
    Work,
    Worker,
)
from stateward.store.selection import JournalFilter, Page, Selector
from stateward.store.sqlite import asking
from stateward.store.sqlite.choosing import chosen_lines, chosen_objects
from stateward.store.sqlite.claiming import DELAYED, all_lanes
from stateward.store.sqlite.listing import listed
from stateward.store.sqlite.reading import Reading
from stateward.store.sqlite.rows import Row, operation_of
from stateward.store.sqlite.spelling import spelled

Value: TypeAlias = object

# An operation is stored as waiting until it has ended; that somebody works on it is known from its work.
SHOWN_STATUS = (
    "CASE WHEN o.status = 'waiting' AND (w.owner IS NOT NULL OR w.remote = 1) THEN 'running' ELSE o.status END"
)
SHOWN = spelled("SELECT {Operation:o} FROM operations o LEFT JOIN work w ON w.ns = o.ns AND w.op = o.id").replace(
    "o.status", SHOWN_STATUS
)
OPERATION = spelled("<shown> WHERE o.ns = ? AND o.id = ?", shown=SHOWN)
OPERATIONS_OF = spelled("<shown> WHERE o.ns = ? AND o.object = ? ORDER BY o.rowid DESC LIMIT ?", shown=SHOWN)
CHILDREN_OF = spelled("<shown> WHERE o.ns = ? AND o.parent = ? ORDER BY o.rowid", shown=SHOWN)
STATES = "SELECT kind, state, count(*) FROM objects WHERE <chosen> GROUP BY kind, state"
LINES = spelled("SELECT {Line} FROM journal WHERE seq > ? AND <chosen> ORDER BY seq LIMIT ?")
LAST_LINE = "SELECT coalesce(max(seq), 0) FROM journal"
PROGRESS_OF = spelled("SELECT {Progress} FROM progress WHERE ns = ? AND op = ? AND seq > ? ORDER BY seq")
WORKERS = spelled("SELECT {Worker} FROM workers ORDER BY id")
TIMERS = spelled("SELECT {Timer} FROM timers WHERE ?1 IS NULL OR ns = ?1 ORDER BY due, rank, ns, id LIMIT ?2")
# A deadline that has passed under a live worker wakes nobody: that worker is about to answer for it.
NEXT_WAKE = spelled(
    """
SELECT min(at) FROM (
    SELECT min(due) AS at FROM timers
    UNION ALL
    SELECT min(not_before) FROM work WHERE <delayed>
    UNION ALL
    SELECT * FROM (
        SELECT deadline FROM work
        WHERE deadline IS NOT NULL AND (deadline >= ?1 OR NOT EXISTS (
            SELECT 1 FROM workers k WHERE k.id = work.owner AND k.seen + k.lease >= ?1
        ))
        ORDER BY deadline LIMIT 1
    )
)
""",
    delayed=DELAYED,
)


class SqliteReader:
    """Answers questions with what was last committed."""

    def __init__(self, reading: Reading, clock: Callable[[], float]) -> None:
        self._reading = reading
        self._clock = clock

    async def object(self, key: Key) -> Object | None:
        found = await self._reading.ask(lambda connection: asking.objects(connection, (key,)))
        return found[0] if found else None

    async def list_objects(self, selector: Selector, page: Page) -> list[Object]:
        return await self._reading.ask(lambda connection: listed(connection, selector, page))

    async def count_states(self, selector: Selector) -> dict[tuple[str, str], int]:
        chosen = chosen_objects(selector)
        rows = await self._rows(spelled(STATES, chosen=str(chosen)), *chosen.values)
        return {(kind, state): count for kind, state, count in rows}

    async def operation(self, key: Key) -> Operation | None:
        found = await self._operations(OPERATION, *key)
        return found[0] if found else None

    async def operations_of(self, key: Key, limit: int) -> list[Operation]:
        return await self._operations(OPERATIONS_OF, *key, limit)

    async def children_of(self, key: Key) -> list[Operation]:
        return await self._operations(CHILDREN_OF, *key)

    async def queue_of(self, key: Key) -> list[Work]:
        return await self._reading.ask(lambda connection: asking.queues(connection, (key,)))

    async def lines(self, after: int, limit: int, only: JournalFilter) -> list[Line]:
        chosen = chosen_lines(only)
        rows = await self._rows(spelled(LINES, chosen=str(chosen)), after, *chosen.values, limit)
        return [Line(*row) for row in rows]

    async def last_line(self) -> int:
        rows = await self._rows(LAST_LINE)
        last: int = rows[0][0]
        return last

    async def progress_of(self, key: Key, after: int) -> list[Progress]:
        return [Progress(*row) for row in await self._rows(PROGRESS_OF, *key, after)]

    async def lanes(self) -> tuple[list[LaneGroup], list[LaneLoad]]:
        return await self._reading.ask(lambda connection: all_lanes(connection, self._clock()))

    async def workers(self) -> list[Worker]:
        return [Worker(*row) for row in await self._rows(WORKERS)]

    async def timers(self, ns: str | None, limit: int) -> list[Timer]:
        return [Timer(*row) for row in await self._rows(TIMERS, ns, limit)]

    async def locks_of(self, tree: Key) -> list[Lock]:
        return await self._reading.ask(lambda connection: asking.locks(connection, (tree,)))

    async def next_wake(self) -> float | None:
        rows = await self._rows(NEXT_WAKE, self._clock())
        wake: float | None = rows[0][0]
        return wake

    async def time(self) -> float:
        return self._clock()

    async def _operations(self, sql: str, *values: Value) -> list[Operation]:
        return [operation_of(row) for row in await self._rows(sql, *values)]

    async def _rows(self, sql: str, *values: Value) -> list[Row]:
        def question(connection: sqlite3.Connection) -> list[Row]:
            return connection.execute(sql, values).fetchall()

        return await self._reading.ask(question)
