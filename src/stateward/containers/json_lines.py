"""Splitting of a stream of JSON objects: engines report events and progress as objects one after the other."""

from collections.abc import Iterator

MAX_LINE_BYTES = 1 << 20


class BadLine(ValueError):
    """A line that is too long to be a report."""


class LineSplitter:
    """Splits bytes that arrive in pieces of any size into lines; empty lines are left out."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that these bytes end; raises `BadLine`."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise BadLine(f"a line of {len(self._rest)} bytes, and at most {MAX_LINE_BYTES} are allowed")
        for line in lines:
            if line.strip():
                yield line

    def rest(self) -> bytes:
        """Return what came after the last line, which a stream may end with."""
        rest, self._rest = self._rest, b""
        return rest.strip()
