"""The stream's route: a WebSocket whose token comes in a header or, from a browser, in its first message."""

from contextlib import suppress
from typing import Any

from litestar import WebSocket, websocket
from litestar.exceptions import WebSocketDisconnect

from stateward.access import Grant, Right
from stateward.server.auth import CLOSED, enter, open_to_all, require
from stateward.server.refusals import Forbidden, NotAuthenticated, NotReady, TooMany
from stateward.server.service import service_of
from stateward.server.stream import Closed, Closing, FirstWord
from stateward.server.windows import windows_of


@websocket("/stream", guards=[open_to_all("the token may come in the first message, and is looked at there")])
async def stream(socket: WebSocket[Any, Any, Any]) -> None:
    """Serve a reader of the journal."""

    async def admit(word: FirstWord) -> Grant:
        return await admitted(socket, word)

    await socket.accept()
    with suppress(WebSocketDisconnect):
        try:
            windows = windows_of(socket)
        except NotReady as refusal:
            await socket.close(Closing.FAILED, str(refusal))
            return
        await windows.stream.serve(socket, admit)


async def admitted(socket: WebSocket[Any, Any, Any], word: FirstWord) -> Grant:
    """Look at a client's token and what it asks for; a refusal is audited."""
    try:
        grant = await enter(socket, word.token)
        require(grant, Right.READ)
        for ns in word.ns or ():
            require(grant, Right.READ, ns)
    except (NotAuthenticated, Forbidden, TooMany) as refusal:
        status = CLOSED[type(refusal)]
        service_of(socket).audit.refused(socket.scope, status, str(refusal))
        raise Closed(Closing(4000 + status), str(refusal)) from None
    return grant


ROUTES = (stream,)
