"""The output of containers, commands in them, and events, of Docker and Podman."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

import httpx
import msgspec

from stateward.containers import resource_wire
from stateward.containers.container_records import (
    EngineEvent,
    ExecEnd,
    ExecResult,
    LogChunk,
    LogStream,
)
from stateward.containers.engine_requests import container_path
from stateward.containers.engine_transport import EngineTransport, read_pieces, write_input
from stateward.containers.errors import EngineRefusal, EngineRefused, EngineUnavailable, ExecTimedOut
from stateward.containers.json_lines import BadLine, LineSplitter
from stateward.containers.port import EXEC_TIMEOUT_S, MAX_OUTPUT_BYTES
from stateward.containers.stream_frames import BadFrame, FrameDecoder

LOG_SILENCE_S = 30.0
"""How long an engine may send nothing of logs that it has."""

EXEC_END_POLLS, EXEC_END_POLL_S = 100, 0.05
"""An engine may close a command's output a moment before it knows the exit code."""

_CREATED = msgspec.json.Decoder(resource_wire.CreatedJson)
_EXEC = msgspec.json.Decoder(resource_wire.ExecJson)
_EVENT = msgspec.json.Decoder(resource_wire.EventJson)


class EngineOutput:
    """The part of the client that reads streams."""

    _transport: EngineTransport

    async def read_logs(
        self, container: str, *, tail: int | None = None, since: float | None = None, follow: bool = False
    ) -> AsyncGenerator[LogChunk]:
        """Yield the output of a container, from a time on in whole seconds; with `follow` until it ends."""
        params = {
            "stdout": "true",
            "stderr": "true",
            "follow": str(follow).lower(),
            "tail": "all" if tail is None else str(tail),
            **({} if since is None else {"since": str(int(since))}),
        }
        call, path = f"read the logs of {container}", f"{container_path(container)}/logs"
        async with (
            self._transport.stream(call, "GET", path, params=params) as answer,
            aclosing(_read_frames(call, answer, None if follow else LOG_SILENCE_S)) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

    async def exec(
        self,
        container: str,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        user: str = "",
        env: Mapping[str, str] = {},
        timeout_s: float = EXEC_TIMEOUT_S,
        max_output: int = MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run a command in a container to its end; raises `ExecTimedOut`."""
        return await collect_output(
            container, self.stream_exec(container, argv, stdin=stdin, user=user, env=env), timeout_s, max_output
        )

    async def stream_exec(
        self,
        container: str,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        user: str = "",
        env: Mapping[str, str] = {},
    ) -> AsyncGenerator[LogChunk | ExecEnd]:
        """Run a command in a container; yield its output as it comes, and its end."""
        call = f"run a command in {container}"
        if stdin is not None and self._transport.has_tls:  # TLS cannot end one direction of a connection
            raise EngineRefused(EngineRefusal.INVALID, call, "input needs an engine that is reached without TLS")
        body = {
            "AttachStdin": stdin is not None,
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": False,
            "Cmd": list(argv),
            "Env": [f"{name}={value}" for name, value in env.items()],
            "User": user,
        }
        path = f"{container_path(container)}/exec"
        number = (await self._transport.read(_CREATED, call, path, "POST", json=body)).id
        upgrade = {"Connection": "Upgrade", "Upgrade": "tcp"}
        start = {"Detach": False, "Tty": False}
        async with self._transport.stream(call, "POST", f"/exec/{number}/start", json=start, headers=upgrade) as answer:
            writer = None if stdin is None else asyncio.create_task(write_input(call, answer, stdin))
            try:
                async with aclosing(_read_frames(call, answer)) as chunks:
                    async for chunk in chunks:
                        yield chunk
            finally:
                if writer is not None:
                    writer.cancel()
                    await asyncio.gather(writer, return_exceptions=True)  # a program need not read its input
        yield ExecEnd(await self._exit_code(call, number))

    async def _exit_code(self, call: str, number: str) -> int:
        for _ in range(EXEC_END_POLLS):
            found = await self._transport.read(_EXEC, call, f"/exec/{number}/json")
            if not found.running and found.exit_code is not None:
                return found.exit_code
            await asyncio.sleep(EXEC_END_POLL_S)
        raise EngineUnavailable(call, "its output has ended, and its exit code is not known", sent=True)

    async def watch_events(self) -> AsyncGenerator[EngineEvent]:
        """Yield hints of changes from now on, until the engine ends."""
        call, lines = "watch events", LineSplitter()
        async with (
            self._transport.stream(call, "GET", "/events") as answer,
            aclosing(read_pieces(call, answer)) as pieces,
        ):
            async for piece in pieces:
                for event in parse_events(call, lines, piece):
                    yield event


def parse_events(call: str, lines: LineSplitter, piece: bytes) -> list[EngineEvent]:
    """Return the events in a piece of the stream."""
    try:
        return [resource_wire.event_record(_EVENT.decode(line)) for line in lines.feed(piece)]
    except (BadLine, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EngineUnavailable(call, f"an event cannot be read ({error})", sent=True) from error


async def _read_frames(call: str, answer: httpx.Response, silence_s: float | None = None) -> AsyncGenerator[LogChunk]:
    decoder = FrameDecoder()
    async with aclosing(read_pieces(call, answer, silence_s)) as pieces:
        async for piece in pieces:
            try:
                chunks = list(decoder.feed(piece))
            except BadFrame as error:
                raise EngineUnavailable(call, str(error), sent=True) from error
            for chunk in chunks:
                yield chunk


async def collect_output(
    container: str, chunks: AsyncGenerator[LogChunk | ExecEnd], timeout_s: float, max_output: int
) -> ExecResult:
    """Collect the output of a command up to a size, to its end; raises `ExecTimedOut`."""
    written = {LogStream.STDOUT: bytearray(), LogStream.STDERR: bytearray()}
    room, truncated, exit_code = max_output, False, 0
    try:
        async with asyncio.timeout(timeout_s), aclosing(chunks):
            async for chunk in chunks:
                if isinstance(chunk, ExecEnd):
                    exit_code = chunk.exit_code
                    continue
                written[chunk.stream] += chunk.data[:room]
                truncated = truncated or len(chunk.data) > room
                room = max(room - len(chunk.data), 0)
    except TimeoutError as error:
        raise ExecTimedOut(container, timeout_s) from error
    stdout, stderr = bytes(written[LogStream.STDOUT]), bytes(written[LogStream.STDERR])
    return ExecResult(exit_code, stdout, stderr, truncated)
