"""A bare WebSocket echo, served as our own server is: the limit that the controller is measured against."""

import asyncio
import json
import socket
import sys
from typing import Any

import uvicorn

from stateward.config import Config
from stateward.server.run import on_the_best_loop, settings_of


async def echo(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - as ASGI has it
    if scope["type"] == "lifespan":
        for _ in ("startup", "shutdown"):
            await send({"type": f"{(await receive())['type']}.complete"})
        return
    await receive()
    await send({"type": "websocket.accept"})
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return
        await send({"type": "websocket.send", "text": message["text"]})


async def serve() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    server = uvicorn.Server(settings_of(Config(), echo))
    loop = asyncio.get_running_loop()
    loop.run_in_executor(None, sys.stdin.read).add_done_callback(lambda _: setattr(server, "should_exit", True))
    await server.serve(sockets=[listener])


if __name__ == "__main__":
    on_the_best_loop(serve())
