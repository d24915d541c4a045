"""A policy service for tests: its answers are scripted, and it records the requests."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

YES = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"
BROKEN = b"HTTP/1.1 500 Oh No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class FakePolicyService:
    """A real service that is asked about leases, on a socket of its own."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.head = ""
        self.says = YES
        self.silent = False
        self.broken = 0  # how many notices are still answered with an error

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length")
        )
        self.head = head
        self.asked.append((head.split()[1], json.loads(await reader.readexactly(length))))
        if self.broken and head.split()[1].endswith("/on-end"):
            self.broken -= 1
            writer.write(BROKEN)
        elif self.silent:
            await reader.read()  # until the other side has had enough
        else:
            writer.write(self.says)
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def running_policy_service() -> AsyncIterator[tuple[FakePolicyService, str]]:
    service = FakePolicyService()
    server = await asyncio.start_server(service.answer, "127.0.0.1", 0)
    async with server:
        yield service, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def was_notified(service: FakePolicyService, times: int) -> bool:
    """Tell whether the service was notified of ends this many times."""
    return sum(path == "/on-end" for path, _ in service.asked) == times
