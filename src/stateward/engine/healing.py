"""The healer's report: what was settled since a time, and how."""

from collections.abc import Callable

from msgspec import Struct

from stateward.lifecycle import CLOCK, HEALER, TIMED_OUT
from stateward.store.port import Reader
from stateward.store.records import JournalEntry, Key, Operation
from stateward.store.selection import JournalFilter

REQUEUED_EVENT = "put back"


class Recovered(Struct, frozen=True):
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


async def recovered(
    reader: Reader,
    since: float,
    ns: str | None = None,
    show: Callable[[JournalEntry], JournalEntry | None] = lambda line: line,
    limit: int = 1000,
) -> list[Recovered]:
    """Return what was settled since a time, oldest first: taken from the dead, finished, restored, timed out.

    `show` returns a line as the reader sees it, or None if it does not.
    """
    by_healer = await reader.journal(0, limit, JournalFilter(ns=ns, actor=HEALER, since=since))
    by_clock = await reader.journal(0, limit, JournalFilter(ns=ns, actor=CLOCK, since=since))
    lines = [*by_healer, *(line for line in by_clock if line.event == TIMED_OUT)]
    shown = [line for one in sorted(lines, key=lambda line: line.seq) if (line := show(one)) is not None]
    operations = await reader.operations([Key(line.ns, line.op) for line in shown if line.op is not None])
    return [_recovered(line, operations.get(Key(line.ns, line.op or ""))) for line in shown]


def _recovered(line: JournalEntry, operation: Operation | None) -> Recovered:
    began = None if operation is None else operation.created
    return Recovered(line.ns, line.object, line.kind, line.op, began, line.at, line.event, line.target, line.reason)
