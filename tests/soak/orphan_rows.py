"""Rows that a database must not have when nothing is under way: rows without an owner."""

from collections.abc import Mapping

from tests.chaos.aftermath import query

ENDED = "('succeeded', 'failed', 'cancelled')"

FAULTS: Mapping[str, str] = {
    "operations that have not ended": f"SELECT count(*) FROM operations WHERE status NOT IN {ENDED}",
    "operations of no object": """SELECT count(*) FROM operations o WHERE NOT EXISTS
        (SELECT 1 FROM objects b WHERE b.ns = o.ns AND b.id = o.object)""",
    "objects that an operation holds": "SELECT count(*) FROM objects WHERE op IS NOT NULL",
    "work": "SELECT count(*) FROM work",
    "locks": "SELECT count(*) FROM locks",
    "timers of nothing": """SELECT count(*) FROM timers t WHERE NOT EXISTS
        (SELECT 1 FROM objects b WHERE b.ns = t.ns AND b.id = t.object AND NOT {removed})""",
    "progress of no operation": """SELECT count(*) FROM progress p WHERE NOT EXISTS
        (SELECT 1 FROM operations o WHERE o.ns = p.ns AND o.id = p.op)""",
    "signals to no operation": """SELECT count(*) FROM signals s WHERE NOT EXISTS
        (SELECT 1 FROM operations o WHERE o.ns = s.ns AND o.id = s.op)""",
    "answers about nothing": """SELECT count(*) FROM answers a WHERE NOT EXISTS
        (SELECT 1 FROM objects b WHERE b.ns = a.ns AND b.id = a.object)""",
    "parts of nothing": """SELECT count(*) FROM objects b WHERE b.parent IS NOT NULL AND NOT {b_removed} AND NOT EXISTS
        (SELECT 1 FROM objects c WHERE c.ns = b.ns AND c.id = b.parent)""",
}
"""Queries whose counts must be 0."""

FIGURES: Mapping[str, str] = {
    "objects": "SELECT count(*) FROM objects WHERE NOT {removed}",
    "tombstones": "SELECT count(*) FROM objects WHERE {removed}",
    "operations": "SELECT count(*) FROM operations",
    "journal lines": "SELECT count(*) FROM journal",
    "timers": "SELECT count(*) FROM timers",
    "lanes": "SELECT count(*) FROM lanes",
    "workers": "SELECT count(*) FROM workers",
}


async def count_rows(store: str, what: Mapping[str, str]) -> dict[str, int]:
    """Run counting queries on a database, SQLite or PostgreSQL."""
    postgres = "://" in store
    words = {
        "removed": "removed" if postgres else "removed = 1",
        "b_removed": "b.removed" if postgres else "b.removed = 1",
    }
    return {name: (await query(store, sql.format(**words)))[0][0] for name, sql in what.items()}
