"""Commands that this process starts on its host, in the sandbox of a program."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

Command: TypeAlias = "subprocess.Popen[bytes]"
Starter = Callable[[Callable[[], Command]], Command]
"""Calls a function that starts a command, in the sandbox of its program."""

POLL_INTERVAL_S = 0.02


async def start_command(
    begin: Starter, argv: Sequence[str], environment: Mapping[str, str], folder: str, output: int = subprocess.DEVNULL
) -> Command:
    """Start a command in a session of its own; one whose caller is cancelled meanwhile is killed."""

    def start() -> Command:
        return subprocess.Popen(  # noqa: S603 - of a definition or an administrator, as the program's own
            argv,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    begun = asyncio.create_task(asyncio.to_thread(begin, start))
    try:
        return await asyncio.shield(begun)
    except asyncio.CancelledError:
        with suppress(OSError):
            command = await begun  # a thread cannot be cancelled, and what it starts would run on
            kill_group(command)
            command.wait()
        raise


async def wait_ended(command: Command) -> int:
    """Return the exit code of a command."""
    while (code := command.poll()) is None:
        await asyncio.sleep(POLL_INTERVAL_S)
    return code


def kill_group(command: Command) -> None:
    """Kill a command with its group; the leader may have ended before the others."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(command.pid, signal.SIGKILL)
