"""Health checks of instances: over HTTP, by a TCP connection, or by a command."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial

from stateward.domains.systems.backends.port import LOOPBACK
from stateward.domains.systems.definition import HealthCheck

POLL_INTERVAL_S = 0.02


CLOSES_WITHIN_S = 0.05

RunCommand = Callable[[tuple[str, ...]], Awaitable[str]]
"""Runs a command in an instance, and returns what is wrong with its end."""

TcpCheck = Callable[[str, int], Awaitable[str]]

Starter = Callable[[Callable[[], "subprocess.Popen[bytes]"]], "subprocess.Popen[bytes]"]
"""Calls a function that starts a command, in the sandbox of the instance."""


async def check_tcp(host: str, port: int) -> str:
    """Connect to an instance."""
    _, writer = await asyncio.open_connection(host, port)
    writer.close()
    return ""


async def check_tcp_through_proxy(host: str, port: int) -> str:
    """Connect to an instance behind a proxy, which accepts before the instance listens, and then closes at once."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        async with asyncio.timeout(CLOSES_WITHIN_S):
            return "" if await reader.read(1) else "the connection is closed at once"
    except TimeoutError:
        return ""
    finally:
        writer.close()


async def check_health(
    health: HealthCheck,
    port: int,
    environment: Mapping[str, str],
    folder: str,
    begin: Starter,
    host: str = LOOPBACK,
) -> str:
    """Return what is wrong with an instance that is a process; empty if it is healthy."""
    run = partial(_command, environment=environment, folder=folder, begin=begin)
    return await run_check(health, port, run, host)


async def run_check(
    health: HealthCheck, port: int, run_command: RunCommand, host: str = LOOPBACK, tcp: TcpCheck = check_tcp
) -> str:
    """Return what is wrong with an instance at a port; empty if it is healthy."""
    try:
        async with asyncio.timeout(health.timeout):
            if health.http is not None:
                return await _http(health.http, host, port)
            if health.command is not None:
                return await run_command(health.command)
            return await tcp(host, port)
    except TimeoutError:
        return f"no answer within {health.timeout:g} s"
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)
    except ValueError as error:  # no process, or no request, can be made of it
        return str(error)


async def _http(path: str, host: str, port: int) -> str:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
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
