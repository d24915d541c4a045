"""The routes of live updates: the progress of an operation as server-sent events, and the stream of the journal.

The events of an operation are one `progress` for each line, then `end`. The stream is a WebSocket; its token comes in
a header or in the first message, and a browser has the cookie of its session.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from litestar import WebSocket, get, websocket
from litestar.exceptions import WebSocketDisconnect
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example
from litestar.params import HeaderParameter
from litestar.response import ServerSentEvent, ServerSentEventMessage

from stateward.access import Grant, Right
from stateward.plugin.readiness import NotReady
from stateward.plugin.request_params import Ns
from stateward.schemas.operations import ProgressView
from stateward.server.auth.guards import HTTP_STATUSES, authenticate_connection, open_to_all, require
from stateward.server.errors import Forbidden, NotAuthenticated, TooMany
from stateward.server.http.parameters import MAX_NUMBER, Op
from stateward.server.live.feeds import live_feeds_of
from stateward.server.live.operation_followers import ProgressEvent
from stateward.server.live.stream_server import CloseCode, StreamClosed, Subscription
from stateward.server.presenter import Presenter
from stateward.server.routes.declare import api_route
from stateward.server.service import ApiRequest, service_of
from stateward.server.views import to_datetime
from stateward.store.records import Key, Operation, Progress

LastSeen = Annotated[
    int,
    HeaderParameter(
        name="Last-Event-ID", ge=0, le=MAX_NUMBER, description="the last event that was seen: go on behind it"
    ),
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


@api_route(
    get,
    "/ns/{ns:str}/operations/{op:str}/events",
    Right.READ,
    "operations",
    "Follow an operation",
    404,
    media_type="text/event-stream",
    responses={200: EVENTS},
)
async def follow(request: ApiRequest, ns: Ns, op: Op, last_seen: LastSeen = 0) -> ServerSentEvent:
    """Send all lines of progress, past ones first, and at the end the operation; a client that reconnects continues.

    It ends before that when the token is taken back, or when the token or the session expires. A token may follow 100
    operations at once.
    """
    live_feeds, key, presenter = live_feeds_of(request), Key(ns, op), request.presenter
    presenter.required(key, await request.service.reader.operation(key))
    happenings = live_feeds.follow_operation(request.grant, key, last_seen)
    return ServerSentEvent(_messages(happenings, presenter))


async def _messages(
    happenings: AsyncIterator[ProgressEvent], presenter: Presenter
) -> AsyncIterator[ServerSentEventMessage]:
    async for event in happenings:
        match event:
            case Progress():
                yield ServerSentEventMessage(_encoded(_progress_view(event)), event="progress", id=event.seq)
            case Operation():
                yield ServerSentEventMessage(_encoded(presenter.operation(event)), event="end")
            case None:
                yield ServerSentEventMessage(None, comment="still there")


def _progress_view(line: Progress) -> ProgressView:
    return ProgressView(
        line.seq, to_datetime(line.at).isoformat().replace("+00:00", "Z"), line.text, line.done, line.total
    )


def _encoded(value: object) -> str:
    return msgspec.json.encode(value).decode()


@websocket("/stream", guards=[open_to_all("the token may come in the first message, and is looked at there")])
async def stream(socket: WebSocket[Any, Any, Any]) -> None:
    """Serve a reader of the journal."""

    async def admit(subscription: Subscription) -> Grant:
        return await authorize_subscription(socket, subscription)

    await socket.accept()
    with suppress(WebSocketDisconnect):
        try:
            live_feeds = live_feeds_of(socket)
        except NotReady as refusal:
            await socket.close(CloseCode.FAILED, str(refusal))
            return
        await live_feeds.stream.serve(socket, admit)


async def authorize_subscription(socket: WebSocket[Any, Any, Any], subscription: Subscription) -> Grant:
    """Return the grant of a client's token if it allows the subscription; a refusal is audited."""
    try:
        grant = await authenticate_connection(socket, subscription.token)
        require(grant, Right.READ)
        for ns in subscription.ns or ():
            require(grant, Right.READ, ns)
    except (NotAuthenticated, Forbidden, TooMany) as refusal:
        status = HTTP_STATUSES[type(refusal)]
        service_of(socket).audit.refused(socket.scope, status, str(refusal))
        raise StreamClosed(CloseCode(4000 + status), str(refusal)) from None
    return grant


ROUTES = (follow, stream)
