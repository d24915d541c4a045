"""Pages of objects, whose cost depends on the page and not on how many objects there are.

The index of a kind's objects is ordered by state and then by id. A page in the order of ids is therefore taken from
each state's part and merged; the states that there are are found by leaping through the index.
"""

import sqlite3

from stateward.store.records import Object
from stateward.store.selection import Page, Selector
from stateward.store.sqlite.choosing import chosen_objects, source_of
from stateward.store.sqlite.rows import fetched, object_of
from stateward.store.sqlite.spelling import packed, spelled

MOST_PARTS = 100
PART = spelled("SELECT * FROM (SELECT {Object} FROM <source> WHERE <chosen> ORDER BY id LIMIT ?)")
WHOLE = packed("{Object}", "FROM (<parts> ORDER BY id LIMIT ?)")
STATES = """
WITH RECURSIVE found (state) AS (
    SELECT min(state) FROM objects WHERE ns = ?1 AND kind = ?2 AND removed = 0
    UNION ALL
    SELECT (SELECT min(state) FROM objects WHERE ns = ?1 AND kind = ?2 AND removed = 0 AND state > found.state)
    FROM found WHERE state IS NOT NULL
)
SELECT state FROM found WHERE state IS NOT NULL
"""


def listed(connection: sqlite3.Connection, selector: Selector, page: Page) -> list[Object]:
    """Return a page of the chosen objects in the order of their ids."""
    states = _states(connection, selector)
    parts, values = [], []
    for state in states if len(states) <= MOST_PARTS else (None,):
        part, places = _part(selector, page, state)
        parts.append(part)
        values += places
    if not parts:
        return []
    rows = fetched(connection, spelled(WHOLE, parts=" UNION ALL ".join(parts)), (*values, page.limit))
    return [object_of(row) for row in rows]


def _states(connection: sqlite3.Connection, selector: Selector) -> tuple[str | None, ...]:
    """Return the states to look under, or None alone where another index serves."""
    if selector.kind is None or selector.parent is not None:
        return (None,)
    if selector.states is not None:
        return tuple(dict.fromkeys(selector.states))
    return tuple(row[0] for row in connection.execute(STATES, (selector.ns, selector.kind)).fetchall())


def _part(selector: Selector, page: Page, state: str | None) -> tuple[str, list[object]]:
    chosen = chosen_objects(selector, state)
    if page.after is not None:
        chosen.add("id > ?", page.after)
    return spelled(PART, source=source_of(selector), chosen=str(chosen)), [*chosen.values, page.limit]
