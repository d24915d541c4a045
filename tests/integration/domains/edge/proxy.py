"""A proxy between agents and a controller: it forwards messages, holds single ones back, or drops everything."""

import asyncio
import threading
from collections import Counter

import msgspec


class Proxy:
    """The proxy, in a thread of its own."""

    def __init__(self) -> None:
        self.target = 0
        self._dropping = False
        self._awaited: dict[tuple[str, str], int] = {}
        self._met: Counter[tuple[str, str]] = Counter()
        self._held: set[str] = set()
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(60)

    # --- faults ------------------------------------------------------------------------------------------------------

    def hold(self, name: str, event: str, nth: int = 1) -> None:
        """Hold back messages about a thing, from the nth of an event on; of the agent itself, only that message."""
        self._met[name, event] = 0
        self._awaited[name, event] = nth

    def free(self) -> None:
        """Hold nothing back any more; messages that were held back are lost."""
        self._awaited.clear()
        self._held.clear()

    def drop(self) -> None:
        """Drop all data from now on."""
        self._dropping = True

    def heal(self) -> None:
        """Forward new connections again; existing ones are closed."""
        self._loop.call_soon_threadsafe(self._heal)

    def _heal(self) -> None:
        self._dropping = False
        for writer in list(self._writers):
            writer.close()

    def stop(self) -> None:
        """Stop the proxy."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)

    # --- forwarding --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, far_writer}
        ways = self._from_agent(reader, far_writer), self._from_controller(far_reader, writer)
        await asyncio.gather(*ways, return_exceptions=True)

    async def _from_agent(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._pass(await reader.readuntil(b"\r\n\r\n"), writer)
            while True:
                frame, message = await read_frame(reader)
                if not self._holds_back(message):
                    await self._pass(frame, writer)
        finally:
            await self._close(writer)

    async def _from_controller(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._pass(data, writer)
        finally:
            await self._close(writer)

    async def _pass(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        if not self._dropping:
            writer.write(data)
            await writer.drain()

    async def _close(self, writer: asyncio.StreamWriter) -> None:
        while self._dropping:  # a cut wire does not tell either side that it was cut
            await asyncio.sleep(0.02)
        writer.close()
        self._writers.discard(writer)

    def _holds_back(self, message: bytes) -> bool:
        try:
            found = msgspec.json.decode(message)
        except msgspec.DecodeError:
            return False  # the end of the connection, said by the WebSocket itself
        name, event = found.get("name", ""), found.get("event", found["type"])
        if name in self._held:
            return True
        self._met[name, event] += 1
        if self._met[name, event] != self._awaited.get((name, event)):
            return False
        if name:
            self._held.add(name)
        return True


async def read_frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read one frame of a WebSocket: as it came, and what it says; a client's frames are masked."""
    head = await reader.readexactly(2)
    length, more = head[1] & 127, b""
    if length > 125:
        more = await reader.readexactly(2 if length == 126 else 8)
        length = int.from_bytes(more, "big")
    mask = await reader.readexactly(4) if head[1] & 128 else b""
    data = await reader.readexactly(length)
    plain = bytes(one ^ mask[nth % 4] for nth, one in enumerate(data)) if mask else data
    return head + more + mask + data, plain
