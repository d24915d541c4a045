"""The journal as it grows: over one WebSocket from a server, or by polling a local data folder.

Every entry comes exactly once and in order. After a broken connection the stream continues behind the last entry that
was seen. If entries behind it were pruned meanwhile, a note on standard error says so.
"""

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from stateward.client.errors import NotOurs, ServerAbsent, Unreachable, exit_code_of, is_refused
from stateward.client.output import err
from stateward.errors import StatewardError
from stateward.schemas.journal import LineView

if TYPE_CHECKING:
    from stateward.client.session import Session

LOOK_EVERY = 0.5
"""Seconds between two polls of a local folder."""

PAUSES = (0.2, 1.0, 3.0)
"""Seconds before each try to reconnect; after the last one the stream fails."""


REFUSED = (4400, 4401, 4403)
"""Close codes of a refusal: 4000 plus an HTTP status."""


class JournalSelection(Struct, frozen=True):
    """The entries to follow: after a number (None: from now on), of a namespace, a kind, an object."""

    after: int | None = None
    ns: str | None = None
    kind: str | None = None
    object: str | None = None

    def fits(self, line: LineView) -> bool:
        """Whether an entry is selected."""
        return all(
            wanted is None or wanted == actual
            for wanted, actual in ((self.ns, line.ns), (self.kind, line.kind), (self.object, line.object))
        )


class StreamMessage(Struct, frozen=True):
    """A message of the server: first a snapshot, then entries, with the number to continue after."""

    seq: int = 0
    lines: list[LineView] = []
    snapshot: "StreamStart | None" = None
    gap: "PrunedGap | None" = None


class StreamStart(Struct, frozen=True):
    """The snapshot at the beginning of a stream; only its number is read."""

    seq: int


class PrunedGap(Struct, frozen=True):
    """A range of numbers in which entries were pruned."""

    after: int
    horizon: int


class Closed(StatewardError):
    """The server refused the stream."""

    def __init__(self, why: str, exit_code: int) -> None:
        super().__init__(why)
        self.why, self._exit_code = why, exit_code

    @property
    def exit_code(self) -> int:
        """The exit code for the reason of the refusal."""
        return self._exit_code

    def __str__(self) -> str:
        return f"the server closed the stream: {self.why}"


def follow_journal(session: "Session", selection: JournalSelection) -> Iterator[LineView]:
    """Yield the selected entries, without end."""
    pages = _stream(session, selection) if session.client.has_worker else _poll(session, selection)
    for lines in pages:
        yield from (line for line in lines if selection.fits(line))


def newest_seq(session: "Session") -> int:
    """Return the number of the newest entry."""
    if session.client.has_worker:
        return next(_connection(session, JournalSelection(), None)).seq
    return _last(lambda number: bool(session.client.journal(number, 1).lines))


def _last(more_after: Callable[[int], bool]) -> int:
    """Return the smallest number that nothing follows, asking only whether something follows a number."""
    if not more_after(0):
        return 0
    high = 1
    while more_after(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if more_after(middle) else (low, middle)
    return high


def _poll(session: "Session", selection: JournalSelection) -> Iterator[list[LineView]]:
    after = newest_seq(session) if selection.after is None else selection.after
    while True:
        page = session.client.journal(after, ns=selection.ns, kind=selection.kind, object=selection.object)
        if page.pruned is not None and after == selection.after:
            _print_gap(PrunedGap(after, page.pruned))
        after = page.after
        yield page.lines
        if not page.more:
            session.pause(LOOK_EVERY)


def _stream(session: "Session", selection: JournalSelection) -> Iterator[list[LineView]]:
    after = selection.after
    pauses: Iterator[float] = iter(())  # a server that was never reached is not waited for
    while True:
        try:
            for page in _connection(session, selection, after):
                after, pauses = page.seq, iter(PAUSES)
                if page.gap is not None:
                    _print_gap(page.gap)
                yield page.lines
        except Unreachable:
            pause = next(pauses, None)
            if pause is None:
                raise
            session.pause(pause)


def _connection(session: "Session", selection: JournalSelection, after: int | None) -> Iterator[StreamMessage]:
    """Yield the messages of one connection, until it breaks."""
    from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
    from websockets.sync.client import connect

    connection = session.client.http
    quiet = logging.Logger("stateward.stream", logging.CRITICAL)  # the handshake holds the token
    headers = {"Authorization": f"Bearer {connection.token.text}"} if connection.token.text else {}
    url = "ws" + connection.url.removeprefix("http") + "/api/v1/stream"
    try:
        with connect(
            url, additional_headers=headers, logger=quiet, max_size=None, proxy=None if connection.direct else True
        ) as socket:
            socket.send(msgspec.json.encode(_hello(selection, after)).decode())
            for text in socket:
                yield _page(connection.url, text)
    except InvalidStatus as error:
        status = error.response.status_code
        raise Closed(f"{status} {error.response.reason_phrase}", exit_code_of(status)) from error
    except ConnectionClosed as error:
        raise _closed(
            connection.url, error.rcvd.code if error.rcvd else None, error.rcvd.reason if error.rcvd else ""
        ) from error
    except (OSError, WebSocketException) as error:
        lost = ServerAbsent(connection.url) if is_refused(error) else Unreachable(connection.url, str(error))
        raise lost from error
    raise Unreachable(connection.url, "the stream ended")


def _hello(selection: JournalSelection, after: int | None) -> dict[str, object]:
    fields: dict[str, object] = {
        "after": after,
        "ns": None if selection.ns is None else [selection.ns],
        "kind": selection.kind,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _page(url: str, text: str | bytes) -> StreamMessage:
    try:
        page = msgspec.json.decode(text, type=StreamMessage)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise NotOurs(url, 101, str(error)) from error
    return page if page.snapshot is None else StreamMessage(page.snapshot.seq, gap=page.gap)


def _print_gap(gap: PrunedGap) -> None:
    """Print a note on standard error about pruned entries; standard output has entries only."""
    text = f"note: of the lines from {gap.after + 1} to {gap.horizon} some were pruned"
    err().print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)


def _closed(url: str, code: int | None, reason: str) -> StatewardError:
    """Return the error of a closed connection: a refusal, which is final, or a break, which is retried."""
    if code in REFUSED:
        return Closed(reason or str(code), exit_code_of(code - 4000))
    return Unreachable(url, reason or "the connection was closed")
