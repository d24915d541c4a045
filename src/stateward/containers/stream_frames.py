"""Decoder of the multiplexed output of containers and commands.

Engines send stdout and stderr through one connection, in frames of an 8-byte header (stream, three zeros, length) and
content. Content is passed on as it arrives and never collected: a header that announces 4 GiB costs nothing.
"""

import struct
from collections.abc import Iterator

from stateward.containers.container_records import LogChunk, LogStream

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

    @property
    def is_between_frames(self) -> bool:
        """Whether the last frame is whole."""
        return not self._header and not self._missing

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
