"""Probes of programs over HTTP or TCP: each ends in time, and returns why it failed, or nothing."""

import asyncio
import os
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeAlias

Connecting: TypeAlias = Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]

CLOSES_WITHIN_S = 0.05
"""How soon a proxy closes a connection that nobody behind it accepts."""


async def end_in_time(probe: Awaitable[str], timeout_s: float) -> str:
    """Return why a probe failed, whatever the program or its host does."""
    try:
        async with asyncio.timeout(timeout_s):
            return await probe
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)
    except Exception as error:
        return str(error) or type(error).__name__


async def probe_http(connecting: Connecting, host: str, path: str) -> str:
    """Send a GET request; an answer from 200 to 399 is a success."""
    reader, writer = await connecting
    try:
        head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nUser-Agent: stateward-agent\r\n\r\n"
        writer.write(head.encode())
        await writer.drain()
        words = (await reader.readline()).decode("latin-1").split(maxsplit=2)
    finally:
        await _close(writer)
    if len(words) < 2 or not words[0].startswith("HTTP/"):
        return f"GET {path} is not answered in HTTP"
    return "" if words[1].startswith(("2", "3")) else f"GET {path} is answered with {words[1]}"


async def probe_tcp(connecting: Connecting, *, is_proxied: bool = False) -> str:
    """Connect to a program; a proxy accepts before the program listens, and then closes the connection immediately."""
    reader, writer = await connecting
    try:
        if is_proxied:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSES_WITHIN_S):
                    return "" if await reader.read(1) else "the connection is closed at once"
        return ""
    finally:
        await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
