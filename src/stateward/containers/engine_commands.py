"""Commands in containers of Docker and Podman; a command that is given up is killed."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress

import msgspec

from stateward.containers import resource_wire
from stateward.containers.command_kill import MARK_VARIABLE, kill_argv, kill_on_host, new_mark
from stateward.containers.container_records import ExecEnd, ExecResult, LogChunk, LogStream
from stateward.containers.engine_output import read_frames
from stateward.containers.engine_requests import container_path
from stateward.containers.engine_transport import EngineTransport
from stateward.containers.errors import EngineRefused, EngineUnavailable, ExecTimedOut
from stateward.containers.port import EXEC_TIMEOUT_S, MAX_OUTPUT_BYTES

EXEC_END_POLLS, EXEC_END_POLL_S = 100, 0.05
"""An engine may close a command's output a moment before it knows the exit code."""

KILL_TIMEOUT_S = 10.0
"""How long the end of a command that is given up may take."""

_CREATED = msgspec.json.Decoder(resource_wire.CreatedJson)
_EXEC = msgspec.json.Decoder(resource_wire.ExecJson)


class ContainerCommand:
    """A command in a container, from its request to its end."""

    def __init__(self, container: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.container, self.argv, self.env = container, argv, env
        self.mark, self.id = new_mark(), ""
        self.is_over = True  # whether none of it runs, as far as is known

    @property
    def call(self) -> str:
        """Its name in errors."""
        return f"run a command in {self.container}"


class EngineCommands:
    """The part of the client that runs commands."""

    _transport: EngineTransport

    async def exec(
        self,
        container: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] = {},
        timeout_s: float = EXEC_TIMEOUT_S,
        max_output: int = MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run a command in a container to its end; raises `ExecTimedOut`."""
        command = ContainerCommand(container, argv, env)
        try:
            return await collect_output(self._stream(command), timeout_s, max_output)
        except TimeoutError as error:
            raise ExecTimedOut(container, timeout_s, is_over=command.is_over) from error

    def stream_exec(
        self,
        container: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] = {},
    ) -> AsyncGenerator[LogChunk | ExecEnd]:
        """Run a command in a container; yield its output as it comes, and its end."""
        return self._stream(ContainerCommand(container, argv, env))

    async def _stream(self, command: ContainerCommand) -> AsyncGenerator[LogChunk | ExecEnd]:
        await self._create(command)
        command.is_over = False
        try:
            async with aclosing(self._attach(command)) as chunks:
                async for chunk in chunks:
                    yield chunk
            exit_code = await self._exit_code(command)
            command.is_over = True
        except EngineRefused:
            command.is_over = True  # it was not started
            raise
        finally:
            if not command.is_over:
                command.is_over = await self._kill(command)
        yield ExecEnd(exit_code)

    async def _create(self, command: ContainerCommand) -> None:
        variables = {**command.env, MARK_VARIABLE: command.mark} if command.mark else command.env
        body = {
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": False,
            "Cmd": list(command.argv),
            "Env": [f"{name}={value}" for name, value in variables.items()],
        }
        path = f"{container_path(command.container)}/exec"
        command.id = (await self._transport.read(_CREATED, command.call, path, "POST", json=body)).id

    async def _attach(self, command: ContainerCommand) -> AsyncGenerator[LogChunk]:
        """Start a command, and yield its output."""
        call, path = command.call, f"/exec/{command.id}/start"
        upgrade = {"Connection": "Upgrade", "Upgrade": "tcp"}
        start = {"Detach": False, "Tty": False}
        async with (
            self._transport.stream(call, "POST", path, json=start, headers=upgrade) as answer,
            aclosing(read_frames(call, answer)) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

    async def _exit_code(self, command: ContainerCommand) -> int:
        for _ in range(EXEC_END_POLLS):
            state = await self._inspect(command)
            if not state.running and state.exit_code is not None:
                return state.exit_code
            await asyncio.sleep(EXEC_END_POLL_S)
        raise EngineUnavailable(command.call, "its output has ended, and its exit code is not known", sent=True)

    async def _inspect(self, command: ContainerCommand) -> resource_wire.ExecJson:
        return await self._transport.read(_EXEC, command.call, f"/exec/{command.id}/json")

    # --- the end of a command that is given up -----------------------------------------------------------------------

    async def _kill(self, command: ContainerCommand) -> bool:
        """Kill a command with its descendants, on this host or in the container; tells whether none of it is left."""
        with suppress(EngineRefused, EngineUnavailable, TimeoutError):
            async with asyncio.timeout(KILL_TIMEOUT_S):
                return await self._kill_here(command) or await self._kill_inside(command)
        return False

    async def _kill_here(self, command: ContainerCommand) -> bool:
        pid, container = 0, ""
        with suppress(EngineRefused, EngineUnavailable):  # its mark remains
            state = await self._inspect(command)
            pid, container = (state.pid or 0) if state.running else 0, state.container_i_d or ""
        return await asyncio.to_thread(kill_on_host, command.mark, pid, container)

    async def _kill_inside(self, command: ContainerCommand) -> bool:
        """Kill a command by another one."""
        killer = ContainerCommand(command.container, kill_argv(command.mark), {})
        killer.mark = ""
        await self._create(killer)
        async with aclosing(self._attach(killer)) as chunks:
            async for _ in chunks:
                pass
        if await self._exit_code(killer) != 0:
            return False
        await self._exit_code(command)  # the engine knows of the end a moment later
        return True


async def collect_output(chunks: AsyncGenerator[LogChunk | ExecEnd], timeout_s: float, max_output: int) -> ExecResult:
    """Collect the output of a command up to a size, to its end; raises `TimeoutError`."""
    written = {LogStream.STDOUT: bytearray(), LogStream.STDERR: bytearray()}
    room, truncated, exit_code = max_output, False, 0
    async with asyncio.timeout(timeout_s), aclosing(chunks):
        async for chunk in chunks:
            if isinstance(chunk, ExecEnd):
                exit_code = chunk.exit_code
                continue
            written[chunk.stream] += chunk.data[:room]
            truncated = truncated or len(chunk.data) > room
            room = max(room - len(chunk.data), 0)
    stdout, stderr = bytes(written[LogStream.STDOUT]), bytes(written[LogStream.STDERR])
    return ExecResult(exit_code, stdout, stderr, truncated)
