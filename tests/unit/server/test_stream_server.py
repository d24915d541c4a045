"""The journal stream: a connection whose sender fails is closed, so that its client can reconnect."""

import asyncio

from stateward.access import Grant, Role
from stateward.server.live.journal_feed import JournalFeed
from stateward.server.live.stream_server import CloseCode, JournalStream, Subscription


class FakeSocket:
    """A connection that sends its subscription, and nothing more."""

    def __init__(self) -> None:
        self.closed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._first = ["{}"]

    async def receive_text(self) -> str:
        if not self._first:
            await asyncio.Event().wait()
        return self._first.pop()

    async def send_text(self, data: str) -> None:
        """Send nothing."""

    async def close(self, code: int, reason: str) -> None:
        del reason
        self.closed.set_result(code)


async def test_an_unexpected_error_of_the_sender_closes_the_connection() -> None:
    socket = FakeSocket()

    async def fail(_: object) -> object:
        raise KeyError("a fault of the snapshot")

    async def admit(_: Subscription) -> Grant:
        return Grant("id", "ann", Role.VIEWER, frozenset({"*"}))

    stream = JournalStream(JournalFeed(None, lambda _entry, _internal: None), fail)  # type: ignore[arg-type]
    serving = asyncio.create_task(stream.serve(socket, admit))
    async with asyncio.timeout(30):
        assert await socket.closed == CloseCode.FAILED
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
