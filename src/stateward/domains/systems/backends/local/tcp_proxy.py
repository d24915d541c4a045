"""The TCP proxy of a service: one port for all its instances. A program of its own, on the standard library alone.

    python tcp_proxy.py READY_FILE PORT

It outlives the server, as the instances do. For each connection it reads the ports of the ready instances, or their
addresses HOST:PORT on other hosts, and chooses the one with the fewest connections. An instance that cannot be reached
is skipped before anything was sent to it, and is tried last for a while. On SIGTERM it finishes the open connections.
"""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from contextlib import suppress

HOST = "127.0.0.1"
CHUNK = 65_536
CONNECT_TIMEOUT_S = 1.0
"""A host whose network is cut gives no answer at all."""
SUSPECT_S = 5.0
"""How long an instance that could not be reached is tried last."""


class TcpProxy:
    """Forwards connections to instances."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._stamp = (0, 0)
        self._ports: list[int | str] = []
        self._busy: Counter[int | str] = Counter()
        self._suspect_until: dict[int | str, float] = {}
        self._passing: set[asyncio.Task[None]] = set()

    def ports(self) -> list[int | str]:
        """Return the ports, or the addresses, of the ready instances, as the file has them now."""
        with suppress(OSError, ValueError):
            status = os.stat(self._file)  # noqa: PTH116 - asked for on every connection
            if (status.st_ino, status.st_mtime_ns) != self._stamp:
                with open(self._file) as stream:  # noqa: PTH123
                    self._ports = json.load(stream)
                self._stamp = (status.st_ino, status.st_mtime_ns)
                self._forget_gone()
        return self._ports

    def _forget_gone(self) -> None:
        """Forget what is known about ports that are gone and not busy."""
        for port in self._suspect_until.keys() - {*self._ports}:
            del self._suspect_until[port]
        for port in [idle for idle, count in self._busy.items() if not count]:
            del self._busy[port]

    async def serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a connection."""
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        try:
            await self._forward(reader, writer)
        finally:
            self._passing.discard(task)
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        now = asyncio.get_running_loop().time()
        for port in sorted(
            self.ports(), key=lambda candidate: (self._suspect_until.get(candidate, 0.0) > now, self._busy[candidate])
        ):
            self._busy[port] += 1
            try:
                inner_reader, inner_writer = await _connect(port)
            except (OSError, TimeoutError):
                self._suspect_until[port] = asyncio.get_running_loop().time() + SUSPECT_S
                self._busy[port] -= 1
                continue
            try:
                await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
            finally:
                inner_writer.close()
                self._busy[port] -= 1
            return

    async def wait_drained(self) -> None:
        """Wait until all connections are closed."""
        if self._passing:
            await asyncio.wait(self._passing)


async def _connect(port: int | str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to an instance, by its port on this host or by its address."""
    host, _, number = f"{HOST}:{port}".rpartition(":") if isinstance(port, int) else port.rpartition(":")
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        return await asyncio.open_connection(host.strip("[]"), int(number))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def main(file: str, port: int) -> None:
    """Serve until SIGTERM."""
    proxy, terminated = TcpProxy(file), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    try:
        server = await asyncio.start_server(proxy.serve_connection, HOST, port, backlog=1024)
    except OSError as error:
        sys.exit(f"port {port} cannot be opened: {os.strerror(error.errno) if error.errno else error}")
    print(f"listening on {HOST}:{port}", flush=True)  # noqa: T201 - its log
    await terminated.wait()
    server.close()
    await proxy.wait_drained()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
