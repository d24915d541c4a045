"""A proxy to an engine's socket that can lose answers and speak TLS; it leaves no connection open when it ends."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

PIECE = 1 << 16


class SocketProxy:
    """Passes connections on to a socket, but loses the answer to each request with some words."""

    def __init__(self, target: Path, loses: bytes = b"") -> None:
        self._target, self._loses = target, loses
        self._connections: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def at_path(self, path: Path) -> AsyncIterator[str]:
        """Serve on a Unix socket; gives the address."""
        async with self._serving(await asyncio.start_unix_server(self._serve, str(path))):
            yield f"unix://{path}"

    @asynccontextmanager
    async def with_tls(self, context: ssl.SSLContext) -> AsyncIterator[str]:
        """Serve with TLS on a free port of 127.0.0.1; gives the address."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        async with self._serving(server):
            yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    @asynccontextmanager
    async def _serving(self, server: asyncio.Server) -> AsyncIterator[None]:
        try:
            yield
        finally:
            server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        engine_reader, engine = await asyncio.open_unix_connection(str(self._target))
        is_lost = asyncio.Event()

        async def send(data: bytes) -> None:
            if self._loses and self._loses in data:
                is_lost.set()
            engine.write(data)
            await engine.drain()

        async def answer(data: bytes) -> None:
            if is_lost.is_set():  # the engine has answered, so it has done what was asked
                raise ConnectionResetError
            writer.write(data)
            await writer.drain()

        sending = asyncio.create_task(_copy(reader, send))
        try:
            await _copy(engine_reader, answer)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            for one in (engine, writer):
                one.close()
                with suppress(OSError):
                    await one.wait_closed()
            self._connections.discard(connection)


async def _copy(reader: asyncio.StreamReader, write: Callable[[bytes], Awaitable[None]]) -> None:
    with suppress(OSError):
        while data := await reader.read(PIECE):
            await write(data)
