"""The healer's report: what was settled since a time, and how."""

from msgspec import Struct

from stateward.lifecycle import CLOCK, HEALER, TIMED_OUT
from stateward.store.port import Reader
from stateward.store.records import Key, Line
from stateward.store.selection import JournalFilter

PUT_BACK = "put back"


class Healed(Struct, frozen=True):
    """Something that the healer, or the clock, has settled: what, since when it was under way, how it was settled."""

    ns: str
    object: str
    kind: str
    op: str | None
    began: float | None
    at: float
    how: str
    state: str | None
    reason: str | None


async def healed(reader: Reader, since: float, limit: int = 1000) -> list[Healed]:
    """Return what was settled since a time, oldest first: taken from the dead, finished, restored, timed out."""
    by_healer = await reader.lines(0, limit, JournalFilter(actor=HEALER, since=since))
    by_clock = await reader.lines(0, limit, JournalFilter(actor=CLOCK, since=since))
    lines = [*by_healer, *(line for line in by_clock if line.event == TIMED_OUT)]
    return [await _healed(reader, line) for line in sorted(lines, key=lambda line: line.seq)]


async def _healed(reader: Reader, line: Line) -> Healed:
    operation = await reader.operation(Key(line.ns, line.op)) if line.op is not None else None
    began = None if operation is None else operation.created
    return Healed(line.ns, line.object, line.kind, line.op, began, line.at, line.event, line.target, line.reason)
