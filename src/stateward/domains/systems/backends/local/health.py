"""Looking whether an instance can work: over HTTP, by a connection, or by what a command says."""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress

from stateward.domains.systems.definition import Health

HOST = "127.0.0.1"


async def look(health: Health, port: int, environment: Mapping[str, str], folder: str) -> str:
    """Return what is wrong with an instance; nothing, if it is well."""
    try:
        async with asyncio.timeout(health.timeout):
            if health.http is not None:
                return await _http(health.http, port)
            if health.command is not None:
                return await _command(health.command, environment, folder)
            return await _tcp(port)
    except TimeoutError:
        return f"no answer within {health.timeout:g} s"
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)


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


async def _command(command: tuple[str, ...], environment: Mapping[str, str], folder: str) -> str:
    nothing = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, cwd=folder, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
    )
    try:
        code = await process.wait()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    return "" if code == 0 else f"{command[0]} ended with {code}"
