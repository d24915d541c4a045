"""The output of containers, and the events, of Docker and Podman.

Engines send stdout and stderr through one connection, in frames of an 8-byte header (stream, three zeros, length) and
content. Content is passed on as it arrives and never collected: a header that announces 4 GiB costs nothing.
"""

import struct
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from stateward.containers import resource_wire
from stateward.containers.container_records import EngineEvent, LogChunk, LogStream
from stateward.containers.engine_requests import container_path
from stateward.containers.engine_transport import EngineTransport, read_pieces
from stateward.containers.errors import EngineUnavailable
from stateward.containers.json_lines import BadLine, LineSplitter

if TYPE_CHECKING:
    import httpx

LOG_SILENCE_S = 30.0
"""How long an engine may send nothing of logs that it has."""

_EVENT = msgspec.json.Decoder(resource_wire.EventJson)


class EngineOutput:
    """The part of the client that reads streams."""

    _transport: EngineTransport

    async def read_logs(
        self, container: str, *, tail: int | None = None, since: float | None = None
    ) -> AsyncGenerator[LogChunk]:
        """Yield the output of a container, from a time on in whole seconds."""
        params = {
            "stdout": "true",
            "stderr": "true",
            "tail": "all" if tail is None else str(tail),
            **({} if since is None else {"since": str(int(since))}),
        }
        call, path = f"read the logs of {container}", f"{container_path(container)}/logs"
        async with (
            self._transport.stream(call, "GET", path, params=params) as answer,
            aclosing(read_frames(call, answer, LOG_SILENCE_S)) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

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


async def read_frames(call: str, answer: "httpx.Response", silence_s: float | None = None) -> AsyncGenerator[LogChunk]:
    """Yield the output in an answer of frames, as it arrives; `silence_s` as for `read_pieces`."""
    decoder = FrameDecoder()
    async with aclosing(read_pieces(call, answer, silence_s)) as pieces:
        async for piece in pieces:
            try:
                chunks = list(decoder.feed(piece))
            except BadFrame as error:
                raise EngineUnavailable(call, str(error), sent=True) from error
            for chunk in chunks:
                yield chunk


_HEADER = struct.Struct(">BxxxL")

_STREAMS = {0: LogStream.STDOUT, 1: LogStream.STDOUT, 2: LogStream.STDERR}
"""By number; 0 is stdin, which an engine echoes as output of a terminal."""


class BadFrame(ValueError):
    """Bytes that are no frame of output."""


class FrameDecoder:
    """Decodes frames from pieces of any size."""

    def __init__(self) -> None:
        self._header = b""
        self._stream = LogStream.STDOUT
        self._missing = 0  # bytes of the present frame

    def feed(self, data: bytes) -> Iterator[LogChunk]:
        """Yield the output in these bytes; raises `BadFrame`."""
        at = 0
        while at < len(data):
            if self._missing:
                piece = data[at : at + self._missing]
                self._missing -= len(piece)
                at += len(piece)
                yield LogChunk(self._stream, piece)
            else:
                at = self._read_header(data, at)

    def _read_header(self, data: bytes, at: int) -> int:
        taken = min(_HEADER.size - len(self._header), len(data) - at)
        self._header += data[at : at + taken]
        if len(self._header) == _HEADER.size:
            number, self._missing = _HEADER.unpack(self._header)
            if number not in _STREAMS:
                raise BadFrame(f"stream {number} of output must be 0, 1 or 2")
            self._stream, self._header = _STREAMS[number], b""
        return at + taken
