"""A bare WebSocket echo, served as our own server is: the limit that the controller is measured against."""

import asyncio
import json
import socket
import sys
from typing import Any

import uvicorn

from stateward.config import Config
from stateward.server.run import run_on_best_loop, uvicorn_config


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
    server = uvicorn.Server(uvicorn_config(Config(), echo))
    loop = asyncio.get_running_loop()
    loop.run_in_executor(None, sys.stdin.read).add_done_callback(lambda _: setattr(server, "should_exit", True))
    await server.serve(sockets=[listener])


if __name__ == "__main__":
    run_on_best_loop(serve())
