"""Waiters for operations: an error that nobody expects does not end the queries that all of them share."""

import asyncio
from collections.abc import Callable, Collection
from errno import EMFILE

from stateward.engine.waiters import OperationWaiters
from stateward.store.records import Key, Operation
from stateward.store.topics import Topic
from tests.contract.samples import an_operation, key


class FailingStore:
    """A store whose first query fails as if no descriptor were free."""

    def __init__(self, ended: Operation) -> None:
        self._ended, self._errors = ended, [OSError(EMFILE, "Too many open files")]
        self.reader = self

    async def operations(self, _keys: Collection[Key]) -> dict[Key, Operation]:
        if self._errors:
            raise self._errors.pop()
        return {self._ended.key: self._ended}

    def subscribe(self, _listener: Callable[[Topic], None]) -> Callable[[], None]:
        return lambda: None


async def test_an_unexpected_error_of_one_query_leaves_no_waiter_behind() -> None:
    ended = an_operation("op", status="succeeded")
    waiters = OperationWaiters(FailingStore(ended))  # type: ignore[arg-type]
    waiters.start()
    async with asyncio.timeout(30):
        assert await waiters.wait_for_end(key("op")) == ended
    await waiters.stop()
