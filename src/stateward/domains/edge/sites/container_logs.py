"""Logs of containers: the output of a copy after a cursor, or the last of it.

Engines give output from a second on, and not from an offset. So a cursor is a second, and the number of bytes since
then that are known already; another generation of an app is read from its beginning. Output that is written while the
last of a log is read may be given twice, and none is left out.
"""

import time
from collections.abc import AsyncIterator
from contextlib import aclosing

from msgspec import Struct

from stateward.agents.messages import LogPart
from stateward.agents.site import SiteError
from stateward.containers import ContainerEngine, LogChunk
from stateward.domains.edge.sites.container_identity import Copy

MAX_READ_BYTES = 4 << 20
"""The limit on what is read of a log at once."""

CHARS_PER_LINE = 40
"""An estimate: so many lines are read for a number of characters."""


BEGINNING = "0"
"""The cursor of a log's beginning."""


class LogCursor(Struct, frozen=True):
    """What is known of a container's output: all up to a second (0: nothing), and some bytes after it."""

    generation: int
    second: int = 0
    known: int = 0

    def __str__(self) -> str:
        return f"{self.generation}.{self.second}.{self.known}"


def read_cursor(text: str, generation: int) -> LogCursor:
    """Read a cursor; one of another generation is about another container, of which nothing is known."""
    if text == BEGINNING:
        return LogCursor(generation)
    numbers = text.split(".")
    if len(numbers) != 3 or not all(
        number.isascii() and number.isdecimal() and len(number) <= 18 for number in numbers
    ):
        raise SiteError(f"{text!r} is not the cursor of an earlier answer")
    cursor = LogCursor(*map(int, numbers))
    return cursor if cursor.generation == generation else LogCursor(generation)


async def read_container_log(engine: ContainerEngine, container: str, copy: Copy, after: str, most: int) -> LogPart:
    """Return the output of a copy's container after a cursor, or the last of it without one."""
    part, generation = str(copy), copy.generation
    now = int(time.time())
    newest = await _read(engine.read_logs(container, since=now))
    if not after:
        text = _up_to(await _read(engine.read_logs(container, tail=max(1, most // CHARS_PER_LINE))), newest)
        return LogPart(part, _decoded(text[-most:]), str(LogCursor(generation, now, len(newest))))
    cursor = read_cursor(after, generation)
    content = await _read(engine.read_logs(container, since=cursor.second or None))
    text = _up_to(content, newest)[cursor.known :]
    if len(text) > most or len(content) >= MAX_READ_BYTES:
        rest = LogCursor(generation, cursor.second, cursor.known + min(most, len(text)))
        return LogPart(part, _decoded(text[:most]), str(rest))
    return LogPart(part, _decoded(text), str(LogCursor(generation, now, len(newest))))


async def _read(chunks: AsyncIterator[LogChunk]) -> bytes:
    content = bytearray()
    async with aclosing(chunks) as stream:  # type: ignore[type-var]
        async for chunk in stream:
            content += chunk.data
            if len(content) >= MAX_READ_BYTES:
                break
    return bytes(content[:MAX_READ_BYTES])


def _up_to(text: bytes, end: bytes) -> bytes:
    """Return a text without what came after its end was read; that belongs to the next answer."""
    at = text.rfind(end) if end else -1
    return text[: at + len(end)] if at >= 0 else text


def _decoded(text: bytes) -> str:
    return text.decode(errors="replace").replace("\x00", "\ufffd")
