"""Progress of an operation as it happens, as server-sent events: `progress` for each line, then `end`."""

from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from litestar import get
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example
from litestar.params import HeaderParameter
from litestar.response import ServerSentEvent, ServerSentEventMessage
from msgspec import Struct

from stateward.access import Right
from stateward.server.answers import problems
from stateward.server.auth import needs
from stateward.server.following import Happening
from stateward.server.names import MOST, Ns, Op
from stateward.server.presenting import Presenter
from stateward.server.service import Call
from stateward.server.windows import windows_of
from stateward.server.wire import when
from stateward.store.records import Key, Operation, Progress

LastSeen = Annotated[
    int,
    HeaderParameter(name="Last-Event-ID", ge=0, le=MOST, description="the last event that was seen: go on behind it"),
]


EXAMPLE = """id: 17
event: progress
data: {"seq":17,"at":"2026-11-15T02:57:12.123456Z","text":"copying the disk","done":3,"total":5}

event: end
data: {"ns":"shop","id":"8f14e45fceea167a5a36dedd4bea2543","object":"web-1","action":"stop","status":"succeeded"}

"""
EVENTS = ResponseSpec(
    str,
    generate_examples=False,
    description="A `progress` event for each line, and in the end an `end` event with the operation.",
    media_type="text/event-stream",
    examples=[Example(summary="events", value=EXAMPLE)],
)


class ProgressView(Struct, frozen=True):
    """A line of progress: what is being done, and how much of it is done."""

    seq: int
    at: str
    text: str
    done: int | None
    total: int | None


@get(
    "/ns/{ns:str}/operations/{op:str}/events",
    guards=[needs(Right.READ)],
    tags=["operations"],
    summary="Follow an operation",
    media_type="text/event-stream",
    responses={**problems(404), 200: EVENTS},
)
async def follow(request: Call, ns: Ns, op: Op, last_seen: LastSeen = 0) -> ServerSentEvent:
    """Send every line of progress, those so far first, and in the end the operation; whoever reconnects goes on.

    It ends before that when the token is taken back, or expires.
    """
    windows, key, token = windows_of(request), Key(ns, op), request.grant.token
    presenter = request.presenter
    presenter.required(key, await request.service.reader.operation(key))
    happenings = windows.following.follow(key, last_seen, lambda: not windows.stream.is_taken_back(token))
    return ServerSentEvent(_messages(happenings, presenter))


async def _messages(
    happenings: AsyncIterator[Happening], presenter: Presenter
) -> AsyncIterator[ServerSentEventMessage]:
    async for one in happenings:
        match one:
            case Progress():
                yield ServerSentEventMessage(_encoded(_progress_view(one)), event="progress", id=one.seq)
            case Operation():
                yield ServerSentEventMessage(_encoded(presenter.operation(one)), event="end")
            case None:
                yield ServerSentEventMessage(None, comment="still there")


def _progress_view(line: Progress) -> ProgressView:
    return ProgressView(line.seq, when(line.at).isoformat().replace("+00:00", "Z"), line.text, line.done, line.total)


def _encoded(value: object) -> str:
    return msgspec.json.encode(value).decode()


ROUTES = (follow,)
