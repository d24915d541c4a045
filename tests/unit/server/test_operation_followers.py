"""Followers of operations: an error that nobody expects does not end the poll that all of them share."""

import asyncio
from collections.abc import Callable
from errno import EMFILE

from stateward.server.live.operation_followers import OperationFollowers
from stateward.store.records import Key, Operation, Progress
from stateward.store.topics import Topic
from tests.contract.samples import an_operation, key


class FailingStore:
    """A store whose first query fails as if no descriptor were free."""

    def __init__(self, ended: Operation) -> None:
        self._ended, self._errors = ended, [OSError(EMFILE, "Too many open files")]
        self.reader = self

    async def operation(self, _key: Key) -> Operation:
        if self._errors:
            raise self._errors.pop()
        return self._ended

    async def progress_of(self, _key: Key, _after: int) -> list[Progress]:
        return []

    def subscribe(self, _listener: Callable[[Topic], None]) -> Callable[[], None]:
        return lambda: None


async def test_an_unexpected_error_of_one_query_leaves_no_follower_behind() -> None:
    ended = an_operation("op", status="succeeded")
    followers = OperationFollowers(FailingStore(ended))  # type: ignore[arg-type]
    followers.start()
    async with asyncio.timeout(30):
        assert [event async for event in followers.follow(key("op"))] == [ended]
    await followers.stop()
