"""The stream: a snapshot, then every line of the journal that follows it, over one WebSocket.

The client speaks once, first: `{"token"?, "after"?, "ns"?, "kind"?}`. Without `after` it gets a snapshot; with it, it
goes on from the number that it saw last. If some of what followed was pruned meanwhile, it gets a snapshot all the
same, and beside it `"gap": {"after": n, "horizon": m}`: of the lines between these numbers some are lost. From then on
it is sent `{"lines": [...], "seq": n}`, and in quiet times an empty one, so that both sides know that the other is
there. Who does not read is not waited for: its connection is closed after a while, and it may come back with the number
that it saw last.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta, Struct

from stateward.access import Grant
from stateward.access.lifecycle import TOKEN, TokenState
from stateward.access.tokens import SYSTEM
from stateward.aio.supervise import cancel_tasks
from stateward.engine.maintenance.horizon import EntriesPruned
from stateward.schemas.params import Text
from stateward.server.live.journal_feed import Interest, JournalFeed
from stateward.server.presenter import sees_internal
from stateward.store.errors import StoreError
from stateward.store.records import JournalEntry

log = logging.getLogger("stateward.stream")

FIRST_MESSAGE_TIMEOUT_S = 10.0
KEEPALIVE_S = 15.0
"""How many seconds of silence there are at most."""

SEND_TIMEOUT_S = 30.0
"""How many seconds a reader may leave what it was sent unread."""

TOKEN_RECHECK_S = 60.0
"""How many seconds a token is trusted without a look; one that is taken back is noticed at once, by the journal."""

MAX_REASON_BYTES = 120  # bytes that fit into a closing frame


class CloseCode(IntEnum):
    """Why the server closes a stream."""

    GOING_AWAY = 1001  # the server stops; come back
    FAILED = 1011  # the server's fault; come back with the last number seen
    BAD_MESSAGE = 4400  # the first message was not understood
    NOT_AUTHENTICATED = 4401  # no token, or one that opens nothing (any more)
    FORBIDDEN = 4403  # the token is not for this
    TOO_SLOW = 4408  # what was sent was not read; come back with the last number seen
    TOO_MANY = 4429  # the token calls more often than it may; come back later


class StreamClosed(Exception):
    """The stream has to be closed, and why."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        super().__init__(code, reason)
        self.code, self.reason = code, reason.encode("ascii", "replace")[:MAX_REASON_BYTES].decode()


class Subscription(Struct, frozen=True, forbid_unknown_fields=True):
    """What a client asks for."""

    token: Annotated[str, Meta(max_length=200)] | None = None
    after: Annotated[int, Meta(ge=0)] | None = None
    ns: Annotated[list[Text], Meta(max_length=1000)] | None = None
    kind: Text | None = None


class StateSnapshot(Struct, frozen=True):
    """How many objects there are by namespace, kind and state, and after which line of the journal that is true."""

    seq: int
    objects: Mapping[str, Mapping[str, Mapping[str, int]]]


TakeSnapshot = Callable[[Interest], Awaitable[StateSnapshot]]
"""Takes a snapshot."""

Authorize = Callable[[Subscription], Awaitable[Grant]]
"""Looks at a client's token, and what it asks for; raises `Closed` if it may not have it."""


class Socket(Protocol):
    """What is needed of a WebSocket."""

    async def receive_text(self) -> str:
        """Return what the client says next; raises when it has gone, or the connection was closed."""

    async def send_text(self, data: str) -> None:
        """Send a message; waits while the client does not read."""

    async def close(self, code: int, reason: str) -> None:
        """Close the connection."""


class JournalStream:
    """Serves any number of readers from one feed."""

    def __init__(self, feed: JournalFeed, take_snapshot: TakeSnapshot) -> None:
        self.feed, self.take_snapshot = feed, take_snapshot
        self.keepalive_s, self.send_timeout_s = KEEPALIVE_S, SEND_TIMEOUT_S
        self.revoked_tokens: set[str] = set()
        feed.listen(self._on_entries)

    async def serve(self, socket: Socket, admit: Authorize) -> None:
        """Serve one reader until it has gone or is sent away."""
        self.feed.readers += 1
        sending = None
        try:
            word = await _receive_subscription(socket)
            sending = asyncio.create_task(StreamReader(self, socket, word, admit).run())
            while True:
                await socket.receive_text()
        except StreamClosed as closed:
            await socket.close(closed.code, closed.reason)
        finally:
            self.feed.readers -= 1
            if sending is not None:
                await cancel_tasks([sending])

    def is_revoked(self, token: str) -> bool:
        """Tell whether a token that opened something here opens nothing any more."""
        return f"token-{token}" in self.revoked_tokens

    def _on_entries(self, lines: Sequence[JournalEntry]) -> None:
        over = (line.object for line in lines if line.kind == TOKEN.kind and line.target != TokenState.ACTIVE)
        self.revoked_tokens.update(over)


class StreamReader:
    """One client's stream."""

    __slots__ = ("_admit", "_after", "_grant", "_socket", "_stream", "_trusted", "_word")

    def __init__(self, stream: JournalStream, socket: Socket, word: Subscription, admit: Authorize) -> None:
        self._stream, self._socket, self._word, self._admit = stream, socket, word, admit
        self._grant: Grant
        self._trusted = 0.0
        self._after = 0

    async def run(self) -> None:
        """Send until something ends it; then say why."""
        try:
            await self._check_token()
            interest = self._interest()
            await self._send_first(interest)
            while not self._stream.feed.stopped:
                await self._send_next(interest)
            raise StreamClosed(CloseCode.GOING_AWAY, "the server stops")
        except StreamClosed as closed:
            await self._socket.close(closed.code, closed.reason)
        except StoreError as error:
            log.warning("a stream is given up: %s", error)
            await self._socket.close(CloseCode.FAILED, "the store is not available")

    async def _check_token(self) -> None:
        """See whether the token still opens what is asked for."""
        now = asyncio.get_running_loop().time()
        if now >= self._trusted:
            self._grant, self._trusted = await self._admit(self._word), now + TOKEN_RECHECK_S
        if self._stream.is_revoked(self._grant.token):
            raise StreamClosed(CloseCode.NOT_AUTHENTICATED, "the token was taken back, or has expired")

    def _interest(self) -> Interest:
        only = None if self._word.ns is None else frozenset(self._word.ns)
        grant = self._grant
        return Interest(grant.namespaces, grant.opens(SYSTEM), sees_internal(grant), only, self._word.kind)

    async def _send_first(self, interest: Interest) -> None:
        """Send a snapshot where one is wanted; a number that the journal has not reached belongs to another one."""
        if self._word.after is not None and self._word.after <= self._stream.feed.seq:
            self._after = self._word.after
            return
        await self._send_snapshot(interest, {})

    async def _send_snapshot(self, interest: Interest, why: Mapping[str, object]) -> None:
        snapshot = await self._stream.take_snapshot(interest)
        await self._send(msgspec.json.encode({"snapshot": snapshot, **why}).decode())
        self._after = snapshot.seq

    async def _send_next(self, interest: Interest) -> None:
        """Send what is new, or wait for it; whoever has missed something that was pruned begins anew, and is told."""
        try:
            news = await self._stream.feed.page(interest, self._after)
        except EntriesPruned as gone:
            await self._send_snapshot(interest, {"gap": {"after": gone.after, "horizon": gone.horizon}})
            return
        await self._check_token()
        if news.count:
            await self._send(news.message)
        elif news.seq == self._after and not await self._wait_for_entries():
            await self._send(f'{{"lines":[],"seq":{self._after}}}')
        self._after = news.seq

    async def _wait_for_entries(self) -> bool:
        """Wait for news; tells whether there are any before the next sign of life is due."""
        try:
            async with asyncio.timeout(self._stream.keepalive_s):
                await self._stream.feed.wait_for_entries(self._after)
        except TimeoutError:
            return False
        return True

    async def _send(self, text: str) -> None:
        try:
            async with asyncio.timeout(self._stream.send_timeout_s):
                await self._socket.send_text(text)
        except TimeoutError:
            raise StreamClosed(CloseCode.TOO_SLOW, "what was sent is not read") from None


async def _receive_subscription(socket: Socket) -> Subscription:
    try:
        async with asyncio.timeout(FIRST_MESSAGE_TIMEOUT_S):
            return msgspec.json.decode(await socket.receive_text(), type=Subscription)
    except TimeoutError:
        raise StreamClosed(CloseCode.BAD_MESSAGE, "nothing was said") from None
    except msgspec.MsgspecError as error:
        raise StreamClosed(CloseCode.BAD_MESSAGE, str(error)) from None
