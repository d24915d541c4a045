"""The journal stream: a connection whose sender fails is closed, so that its client can reconnect."""

import asyncio

import pytest

from stateward.access import Grant, Role
from stateward.access.lifecycle import TOKEN, TokenState
from stateward.server.live import stream_server
from stateward.server.live.journal_feed import JournalFeed
from stateward.server.live.stream_server import CloseCode, JournalStream, Subscription
from tests.contract.samples import an_entry


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


def test_the_newest_tokens_and_sessions_that_have_ended_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_server, "MAX_ENDED_RECORDS", 3)
    stream = JournalStream(JournalFeed(None, lambda _entry, _internal: None), None)  # type: ignore[arg-type]
    for number in range(5):
        stream._on_entries([an_entry(f"token-{number}", kind=TOKEN.kind, target=TokenState.REVOKED.word)])
    over = [stream.is_over(Grant(f"{number}", "ann", Role.VIEWER, frozenset({"*"}))) for number in range(5)]
    assert over == [False, False, True, True, True]
