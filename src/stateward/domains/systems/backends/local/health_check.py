"""Health checks of instances: over HTTP, by a TCP connection, or by a command."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress

from stateward.domains.systems.definition import HealthCheck

HOST = "127.0.0.1"
POLL_INTERVAL_S = 0.02


Starter = Callable[[Callable[[], "subprocess.Popen[bytes]"]], "subprocess.Popen[bytes]"]
"""Calls a function that starts a command, in the sandbox of the instance."""


async def check_health(
    health: HealthCheck, port: int, environment: Mapping[str, str], folder: str, begin: Starter
) -> str:
    """Return what is wrong with an instance; empty if it is healthy."""
    try:
        async with asyncio.timeout(health.timeout):
            if health.http is not None:
                return await _http(health.http, port)
            if health.command is not None:
                return await _command(health.command, environment, folder, begin)
            return await _tcp(port)
    except TimeoutError:
        return f"no answer within {health.timeout:g} s"
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)
    except ValueError as error:  # no process, or no request, can be made of it
        return str(error)


async def _tcp(port: int) -> str:
    _, writer = await asyncio.open_connection(HOST, port)
    writer.close()
    return ""


async def _http(path: str, port: int) -> str:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        line = (await reader.readline()).decode("latin-1").split()
    finally:
        writer.close()
    if len(line) < 2 or not line[0].startswith("HTTP/"):
        return f"GET {path} is not answered in HTTP"
    return "" if line[1].startswith(("2", "3")) else f"GET {path} is answered with {line[1]}"


async def _command(command: tuple[str, ...], environment: Mapping[str, str], folder: str, begin: Starter) -> str:
    nothing = subprocess.DEVNULL

    def start() -> "subprocess.Popen[bytes]":
        return subprocess.Popen(  # noqa: S603 - a command of the definition, as the instance's own
            command, env=environment, cwd=folder, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
        )

    begun = asyncio.create_task(asyncio.to_thread(begin, start))
    try:
        process = await asyncio.shield(begun)
    except asyncio.CancelledError:
        with suppress(OSError):
            _end(await begun)  # a thread cannot be cancelled, and what it starts would run on
        raise
    try:
        while (code := process.poll()) is None:
            await asyncio.sleep(POLL_INTERVAL_S)
    finally:
        _end(process)
    return "" if code == 0 else f"{command[0]} ended with {code}"


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
