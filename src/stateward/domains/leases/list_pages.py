"""Pages of the lists of Blazar's API, in the order of ids.

Clients of Blazar send neither limit nor marker and expect everything. They get up to MAX_LISTED entries, which is all
of them almost everywhere. A list that was cut says so as in other APIs of OpenStack: it has a link to the next page.
"""

from collections.abc import Sequence
from typing import NamedTuple

from stateward.store.filters import Page, Selector
from stateward.store.port import Reader
from stateward.store.records import Object

MAX_LISTED = 10_000
"""The most entries of a list."""


class ListPage(NamedTuple):
    """A page, and the id of its last object if others follow it."""

    objects: Sequence[Object]
    last: str | None


async def read_page(reader: Reader, chosen: Selector, after: str | None, limit: int | None) -> ListPage:
    """Return the objects that follow an id, at most `limit` and MAX_LISTED of them."""
    most = MAX_LISTED if limit is None else min(limit, MAX_LISTED)
    records = await reader.list_objects(chosen, Page(after, most + 1))
    return ListPage(records[:most], records[most - 1].id if len(records) > most else None)
