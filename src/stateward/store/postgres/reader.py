"""Reads beside the writers: each is one statement on a connection that cannot write, and waits for nobody's locks."""

from collections.abc import Collection, Sequence

from stateward.store.port import LaneLoad, LaneWork, StateCounts, StuckWork
from stateward.store.postgres import claiming, looking
from stateward.store.postgres.choosing import chosen_lines, chosen_objects
from stateward.store.postgres.connections import Connections
from stateward.store.postgres.reading import NOW, OPERATIONS, PEEKED
from stateward.store.postgres.rows import operation
from stateward.store.records import (
    JournalEntry,
    Key,
    LaneGroup,
    Lock,
    Object,
    Operation,
    Progress,
    Timer,
    Worker,
    WorkItem,
)
from stateward.store.selection import JournalFilter, Page, Selector


class PostgresReader:
    """Reads that never wait for a writer."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def object(self, key: Key) -> Object | None:
        """Return one object, removed ones included."""
        rows = await self._connections.fetch(looking.OBJECT, key.ns, key.id)
        return Object(*rows[0]) if rows else None

    async def objects(self, keys: Collection[Key]) -> dict[Key, Object]:
        """Return the objects there are, removed ones included."""
        rows = await self._connections.fetch(PEEKED, list(set(keys)))
        return {Key(row[0], row[1]): Object(*row) for row in rows}

    async def list_objects(self, selector: Selector, page: Page) -> list[Object]:
        """Return a page of the chosen objects, in the order of their ids."""
        chosen = chosen_objects(selector)
        if page.after is not None:
            chosen.add("o.id > ?", page.after)
        limit = chosen.place(page.limit)
        rows = await self._connections.fetch(looking.OBJECTS.replace("<chosen>", str(chosen)) + limit, *chosen.values)
        return [Object(*row) for row in rows]

    async def count_states(self, selector: Selector) -> dict[tuple[str, str], int]:
        """Return how many of the chosen objects there are by (kind, state)."""
        chosen = chosen_objects(selector)
        rows = await self._connections.fetch(looking.STATES.replace("<chosen>", str(chosen)), *chosen.values)
        return {(kind, state): count for kind, state, count in rows}

    async def count_by_namespace(self, namespaces: Sequence[str], kind: str | None = None) -> StateCounts:
        """Count the objects of some namespaces, and of one kind or of all, at one moment of the journal."""
        rows = await self._connections.fetch(looking.CENSUS, list(namespaces), kind)
        return StateCounts(
            rows[0][0], {(ns, kind, state): count for _, ns, kind, state, count in rows if ns is not None}
        )

    async def operation(self, key: Key) -> Operation | None:
        """Return one operation; one that is being worked on is shown as running."""
        rows = await self._connections.fetch(looking.OPERATION, key.ns, key.id)
        return operation(rows[0]) if rows else None

    async def operations(self, keys: Collection[Key]) -> dict[Key, Operation]:
        """Return the operations there are, as they are stored."""
        rows = await self._connections.fetch(OPERATIONS, list(set(keys)))
        return {Key(row[0], row[1]): operation(row) for row in rows}

    async def operations_of(self, key: Key, limit: int) -> list[Operation]:
        """Return an object's operations, newest first."""
        return [operation(row) for row in await self._connections.fetch(looking.OPERATIONS_OF, key.ns, key.id, limit)]

    async def children_of(self, key: Key) -> list[Operation]:
        """Return the operations that have this one as their parent."""
        return [operation(row) for row in await self._connections.fetch(looking.CHILDREN_OF, key.ns, key.id)]

    async def queue_of(self, key: Key) -> list[WorkItem]:
        """Return the work that stands in an object's queue."""
        return [WorkItem(*row) for row in await self._connections.fetch(looking.QUEUE_OF, key.ns, key.id)]

    async def journal(self, after: int, limit: int, only: JournalFilter) -> list[JournalEntry]:
        """Return journal lines that follow a number, in order."""
        chosen = chosen_lines(only)
        chosen.add("j.seq > ?", after)
        place = chosen.place(limit)
        rows = await self._connections.fetch(looking.LINES.replace("<chosen>", str(chosen)) + place, *chosen.values)
        return [JournalEntry(*row) for row in rows]

    async def last_journal_seq(self) -> int:
        """Return the number of the newest line; the journal's lock makes sure that no smaller one can follow."""
        return int((await self._connections.fetch(looking.LAST_LINE))[0][0])

    async def progress_of(self, key: Key, after: int) -> list[Progress]:
        """Return an operation's progress lines that follow a number."""
        return [Progress(*row) for row in await self._connections.fetch(looking.PROGRESS_OF, key.ns, key.id, after)]

    async def lanes(self) -> tuple[list[LaneGroup], list[LaneLoad]]:
        """Return all groups and lanes with their loads."""
        loads = [claiming.lane_load(row) for row in await self._connections.fetch(looking.LANES)]
        groups = {group.grp: group for group, _ in loads}
        groups.update((row[0], LaneGroup(*row)) for row in await self._connections.fetch(looking.GROUPS))
        return [groups[name] for name in sorted(groups)], [load for _, load in loads]

    async def work_by_lane(self, namespaces: Collection[str] | None = None) -> list[LaneWork]:
        """Return what each lane has to do, for all namespaces or for some; lanes without work are left out."""
        return [LaneWork(*row) for row in await self._connections.fetch(looking.WORK_BY_LANE, _listed(namespaces))]

    async def stuck(self, limit: int, namespaces: Collection[str] | None = None) -> list[StuckWork]:
        """Return the work that is stuck, of all namespaces or of some; the longest first."""
        return [StuckWork(*row) for row in await self._connections.fetch(looking.STUCK, _listed(namespaces), limit)]

    async def namespaces(self) -> list[str]:
        """Return the namespaces that have, or ever had, an object, in order."""
        return [row[0] for row in await self._connections.fetch(looking.NAMESPACES)]

    async def workers(self) -> list[Worker]:
        """Return the workers that are known."""
        return [Worker(*row) for row in await self._connections.fetch(looking.WORKERS)]

    async def timers(self, ns: str | None, limit: int) -> list[Timer]:
        """Return pending timers in the order in which they fall due."""
        return [Timer(*row) for row in await self._connections.fetch(looking.TIMERS, ns, limit)]

    async def locks_of(self, tree: Key) -> list[Lock]:
        """Return the locks of a tree."""
        return [Lock(*row) for row in await self._connections.fetch(looking.LOCKS_OF, tree.ns, tree.id)]

    async def next_due_time(self) -> float | None:
        """Return the earliest time at which a timer, a delayed operation or a deadline falls due."""
        wake: float | None = (await self._connections.fetch(looking.NEXT_WAKE))[0][0]
        return wake

    async def time(self) -> float:
        """Return the database's clock."""
        return float((await self._connections.fetch(NOW))[0][0])


def _listed(namespaces: Collection[str] | None) -> list[str] | None:
    """Return namespaces as one value; None stands for all of them."""
    return None if namespaces is None else sorted(namespaces)
