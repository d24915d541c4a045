"""Looking at objects beside the engine's transactions: what handlers and the API read."""

from collections.abc import AsyncIterator

from stateward.store.filters import Page, Selector
from stateward.store.port import Reader
from stateward.store.records import Key, Object

PAGE = 1000


async def objects(reader: Reader, chosen: Selector) -> AsyncIterator[Object]:
    """Yield all chosen objects, page by page."""
    after: str | None = None
    while True:
        page = await reader.list_objects(chosen, Page(after, PAGE))
        for one in page:
            yield one
        if len(page) < PAGE:
            return
        after = page[-1].id


async def last_error(reader: Reader, key: Key) -> str:
    """Return why the latest operation on an object failed; empty if it did not."""
    latest = await reader.operations_of(key, 1)
    return (latest[0].error or "") if latest else ""
