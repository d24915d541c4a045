"""The rows of an action that does nothing, as the engine writes them."""

from collections.abc import Sequence
from random import sample
from time import time

from msgspec.structs import astuple

from bench.engine.lamps import LAMP, NS, Lamp, name_of
from stateward.lifecycle import SUCCEEDED, USER, WORKER
from stateward.naming import new_id
from stateward.store.records import JournalEntry, Operation, Status, WorkItem

OWNER = "bare/1"
WITHIN = 600.0
FIRST = 2**40
"""The first number of work and of lines: far from what an engine may have used in the same database."""

ACCEPTED = Operation(
    ns=NS, id="", object="", kind=LAMP.kind, action="flash", actor=str(USER), who="", facts="[]", args="{}",
    origin=Lamp.OFF.word, via=Lamp.FLASHING.word, desired=Lamp.OFF.word, failing=Lamp.BROKEN.word, hidden=False,
    within=WITHIN, generation=0, previous_spec=None, parent=None, tree=None, status=Status.WAITING, attempts=0,
    steps="{}", result=None, error=None, created=0.0,
)  # fmt: skip
QUEUED = WorkItem(
    ns=NS, op="", object="", queue="", seq=0, lane="", grp="", priority=0, ready=True, remote=False, fenced=False,
    cancelled=False, children=0, not_before=0.0, deadline=None, owner=None, epoch=0, attempts=0, observe=False,
)  # fmt: skip
BEGUN = JournalEntry(NS, "", LAMP.kind, "", 0.0, str(USER), "", "flash", Lamp.OFF.word, Lamp.FLASHING.word, None)
OVER = JournalEntry(NS, "", LAMP.kind, "", 0.0, str(WORKER), "", SUCCEEDED, Lamp.FLASHING.word, Lamp.OFF.word, None)

Pairs = Sequence[tuple[str, str]]
"""Lamps, and the operations on them."""

Rows = list[tuple[object, ...]]


def batches(actions: int, size: int, stored: int) -> list[list[tuple[str, str]]]:
    """Return which of the stored lamps to flash, batch by batch: any, but each of them once."""
    pairs = [(name_of(number), new_id()) for number in sample(range(stored), actions)]
    return [pairs[first : first + size] for first in range(0, actions, size)]


def operations(pairs: Pairs) -> Rows:
    """Return the operations as rows."""
    rest = [value.value if isinstance(value, Status) else value for value in astuple(ACCEPTED)[3:]]
    return [(NS, op, name, *rest) for name, op in pairs]


def work(pairs: Pairs, seq: int) -> Rows:
    """Return the work as rows, numbered; it is not delayed."""
    rest = astuple(QUEUED)[5:]
    return [(NS, op, name, name, number, *rest, False) for number, (name, op) in enumerate(pairs, seq)]


def lines(like: JournalEntry, pairs: Pairs, seq: int) -> Rows:
    """Return lines of the journal as rows, numbered."""
    now, rest = time(), astuple(like)[5:-1]
    return [(NS, name, LAMP.kind, op, now, *rest, number) for number, (name, op) in enumerate(pairs, seq)]
