"""The output of containers, and the events, of Docker and Podman."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from stateward.containers import resource_wire
from stateward.containers.container_records import EngineEvent, LogChunk
from stateward.containers.engine_requests import container_path
from stateward.containers.engine_transport import EngineTransport, read_pieces
from stateward.containers.errors import EngineUnavailable
from stateward.containers.json_lines import BadLine, LineSplitter
from stateward.containers.stream_frames import BadFrame, FrameDecoder

if TYPE_CHECKING:
    import httpx

LOG_SILENCE_S = 30.0
"""How long an engine may send nothing of logs that it has."""

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
            aclosing(read_frames(call, answer, None if follow else LOG_SILENCE_S)) as chunks,
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
