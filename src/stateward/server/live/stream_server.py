"""The stream: a snapshot of object counts, then every later journal entry, over one WebSocket.

The client sends one message first, its subscription: `{"token"?, "after"?, "ns"?, "kind"?}`. Without `after`, the
server sends a snapshot. With `after`, the server continues behind that sequence number. If entries behind it were
pruned, the server sends a snapshot and `"gap": {"after": n, "horizon": m}`: some entries between these numbers are
lost. Then the server sends `{"lines": [...], "seq": n}`, and an empty message as a keep-alive. The server closes the
connection of a client that does not read; the client may reconnect with the last number that it saw."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta, Struct

from stateward.access import Grant
from stateward.access.lifecycle import TOKEN, TokenState
from stateward.access.sessions import SESSION, SessionState
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
"""After how many seconds without entries a keep-alive is sent."""

SEND_TIMEOUT_S = 30.0
"""How many seconds a send may take before the connection of a slow reader is closed."""

TOKEN_RECHECK_S = 60.0
"""After how many seconds a token is checked again; a revoked token is noticed at once, by the journal."""

VALID = {TOKEN.kind: TokenState.ACTIVE.word, SESSION.kind: SessionState.OPEN.word}
"""The states in which tokens and sessions are valid."""

MAX_REASON_BYTES = 120  # bytes that fit into a closing frame


class CloseCode(IntEnum):
    """Why the server closes a stream."""

    GOING_AWAY = 1001  # the server stops; reconnect
    FAILED = 1011  # the server's fault; reconnect with the last number seen
    BAD_MESSAGE = 4400  # the first message was not understood
    NOT_AUTHENTICATED = 4401  # no token, or one that is not valid (any more)
    FORBIDDEN = 4403  # the token does not give the right
    TOO_SLOW = 4408  # the client did not read; reconnect with the last number seen
    TOO_MANY = 4429  # the token is over its rate limit; reconnect later


MAX_ENDED_RECORDS = 100_000
"""How many tokens and sessions that have ended are known; no stream in use is as old as all of these."""


class StreamClosed(Exception):
    """The stream has to be closed, and why."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        super().__init__(code, reason)
        self.code, self.reason = code, reason.encode("ascii", "replace")[:MAX_REASON_BYTES].decode()


class Subscription(Struct, frozen=True, forbid_unknown_fields=True):
    """The first message of a client."""

    token: Annotated[str, Meta(max_length=200)] | None = None
    after: Annotated[int, Meta(ge=0)] | None = None
    ns: Annotated[list[Text], Meta(max_length=1000)] | None = None
    kind: Text | None = None


class StateSnapshot(Struct, frozen=True):
    """The number of objects by namespace, kind and state, and the journal entry after which the counts are valid."""

    seq: int
    objects: Mapping[str, Mapping[str, Mapping[str, int]]]


TakeSnapshot = Callable[[Interest], Awaitable[StateSnapshot]]
"""Takes a snapshot."""

Authorize = Callable[[Subscription], Awaitable[Grant]]
"""Checks a client's token against its subscription; raises `StreamClosed` if the token does not allow it."""


class Socket(Protocol):
    """The methods of a WebSocket that the stream uses."""

    async def receive_text(self) -> str:
        """Return the client's next message; raises when the connection is closed."""

    async def send_text(self, data: str) -> None:
        """Send a message; waits while the client does not read."""

    async def close(self, code: int, reason: str) -> None:
        """Close the connection."""


class JournalStream:
    """Serves any number of readers from one feed."""

    def __init__(self, feed: JournalFeed, take_snapshot: TakeSnapshot) -> None:
        self.feed, self.take_snapshot = feed, take_snapshot
        self.keepalive_s, self.send_timeout_s = KEEPALIVE_S, SEND_TIMEOUT_S
        self._ended_records: dict[str, None] = {}
        feed.listen(self._on_entries)

    async def serve(self, socket: Socket, admit: Authorize) -> None:
        """Serve one reader until it disconnects or is disconnected."""
        self.feed.readers += 1
        sending = None
        try:
            subscription = await _receive_subscription(socket)
            sending = asyncio.create_task(StreamReader(self, socket, subscription, admit).run())
            while True:
                await socket.receive_text()
        except StreamClosed as closed:
            await socket.close(closed.code, closed.reason)
        finally:
            self.feed.readers -= 1
            if sending is not None:
                await cancel_tasks([sending])

    def is_over(self, grant: Grant) -> bool:
        """Return whether the token or the session of a grant has ended while it was in use here."""
        return any(record in self._ended_records for record in grant.records)

    def _on_entries(self, entries: Sequence[JournalEntry]) -> None:
        ended = (entry.object for entry in entries if entry.target not in (None, VALID.get(entry.kind, entry.target)))
        self._ended_records |= dict.fromkeys(ended)
        for _ in range(len(self._ended_records) - MAX_ENDED_RECORDS):
            del self._ended_records[next(iter(self._ended_records))]


class StreamReader:
    """One client's stream."""

    __slots__ = ("_admit", "_after", "_grant", "_sent", "_socket", "_stream", "_subscription", "_trusted")

    def __init__(self, stream: JournalStream, socket: Socket, subscription: Subscription, admit: Authorize) -> None:
        self._stream, self._socket, self._subscription, self._admit = stream, socket, subscription, admit
        self._grant: Grant
        self._trusted = 0.0
        self._after = 0
        self._sent = 0.0  # when the last message was sent

    async def run(self) -> None:
        """Send messages until the stream has to be closed, then close it with the reason."""
        try:
            await self._check_token()
            only = None if self._subscription.ns is None else frozenset(self._subscription.ns)
            grant = self._grant
            interest = Interest(
                grant.namespaces, grant.opens(SYSTEM), sees_internal(grant), only, self._subscription.kind
            )
            await self._send_first(interest)
            while not self._stream.feed.stopped:
                await self._send_next(interest)
            raise StreamClosed(CloseCode.GOING_AWAY, "the server stops")
        except StreamClosed as closed:
            await self._socket.close(closed.code, closed.reason)
        except StoreError as error:
            log.warning("journal stream closes a connection, because the store is not available: %s", error)
            await self._socket.close(CloseCode.FAILED, "the store is not available")
        except Exception as error:  # a connection without its sender would stay silent until the client leaves
            log.warning("journal stream closes a connection: %r", error)
            with suppress(Exception):  # it may be closed already
                await self._socket.close(CloseCode.FAILED, "the stream has failed")

    async def _check_token(self) -> None:
        """Raise if the token does not allow the subscription any more."""
        now = asyncio.get_running_loop().time()
        if now >= self._trusted:
            self._grant, self._trusted = await self._admit(self._subscription), now + TOKEN_RECHECK_S
        if self._stream.is_over(self._grant):
            raise StreamClosed(CloseCode.NOT_AUTHENTICATED, "the token was revoked, or the session has ended")

    async def _send_first(self, interest: Interest) -> None:
        """Send a snapshot unless the client continues; a number ahead of the journal is from another database."""
        after = self._subscription.after
        if after is not None and await self._stream.feed.has_reached(after):
            self._after = after
            await self._send(f'{{"lines":[],"seq":{self._after}}}')  # the client is connected, though nothing happens
            return
        await self._send_snapshot(interest, {})

    async def _send_snapshot(self, interest: Interest, why: Mapping[str, object]) -> None:
        snapshot = await self._stream.take_snapshot(interest)
        await self._send(msgspec.json.encode({"snapshot": snapshot, **why}).decode())
        self._after = snapshot.seq

    async def _send_next(self, interest: Interest) -> None:
        """Send new entries, or wait for them; after a gap in the journal, send a snapshot and tell of the gap."""
        try:
            page = await self._stream.feed.page(interest, self._after)
        except EntriesPruned as gone:
            await self._send_snapshot(interest, {"gap": {"after": gone.after, "horizon": gone.horizon}})
            return
        await self._check_token()
        is_at_end, self._after = page.seq == self._after, page.seq
        if page.count:
            await self._send(page.message)
        elif self._is_keepalive_due() or (is_at_end and not await self._wait_for_entries()):
            await self._send(f'{{"lines":[],"seq":{self._after}}}')

    def _is_keepalive_due(self) -> bool:
        """Return whether the client has got nothing for long: entries of other namespaces wake this reader, too."""
        return asyncio.get_running_loop().time() >= self._sent + self._stream.keepalive_s

    async def _wait_for_entries(self) -> bool:
        """Wait for entries; returns False if a keep-alive is due first."""
        try:
            async with asyncio.timeout_at(self._sent + self._stream.keepalive_s):
                await self._stream.feed.wait_for_entries(self._after)
        except TimeoutError:
            return False
        return True

    async def _send(self, text: str) -> None:
        try:
            async with asyncio.timeout(self._stream.send_timeout_s):
                await self._socket.send_text(text)
            self._sent = asyncio.get_running_loop().time()
        except TimeoutError:
            raise StreamClosed(CloseCode.TOO_SLOW, "the client does not read the stream") from None


async def _receive_subscription(socket: Socket) -> Subscription:
    try:
        async with asyncio.timeout(FIRST_MESSAGE_TIMEOUT_S):
            return msgspec.json.decode(await socket.receive_text(), type=Subscription)
    except TimeoutError:
        raise StreamClosed(CloseCode.BAD_MESSAGE, "no message arrived in time") from None
    except msgspec.MsgspecError as error:
        raise StreamClosed(CloseCode.BAD_MESSAGE, str(error)) from None
