"""What a line of the journal tells, in the words of the metrics: which action of which kind, and what became of it.

A line has the event and the two states; what the event meant is looked up in the lifecycle's table. The end of an
action is told by events such as `succeeded`, so the action itself is remembered from the line that began it, or read
from the table where only one action leads through that state.
"""

from collections.abc import Iterable
from typing import NamedTuple

from stateward.engine import Kind
from stateward.engine.transitions import REJECTED, REQUEUED_EVENT
from stateward.lifecycle import TRANSITIONAL, UNKNOWN, Lifecycle, Meaning
from stateward.lifecycle.rows import ENDINGS
from stateward.store.records import JournalEntry

OTHER = "(other)"
"""What every word is counted as that no table has: a label must not grow with what people and agents write."""

MAX_REMEMBERED_OPERATIONS = 100_000

RESULTS = {
    Meaning.ACTION: "accepted",
    Meaning.REQUEST: "accepted",
    Meaning.HIDDEN: "accepted",
    Meaning.STEP: "moved",
    Meaning.SUCCESS: "succeeded",
    Meaning.FAILURE: "failed",
    Meaning.TIMEOUT: "timed_out",
    Meaning.CANCEL: "cancelled",
}


class ActionResult(NamedTuple):
    """What a line tells: the kind, the action, and the result."""

    kind: str
    action: str
    result: str


class JournalClassifier:
    """Reads lines in their order."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._lifecycles = {kind.name: kind.lifecycle for kind in kinds}
        self._moving = {
            (name, state.word)
            for name, lifecycle in self._lifecycles.items()
            for state in lifecycle.states
            if state.state_class is TRANSITIONAL
        }
        self._words = {
            name: {row.event for row in one.rows} | set(one.actions) | ENDINGS for name, one in self._lifecycles.items()
        }
        self._begun: dict[str, str] = {}  # actions by operation, until it has ended

    def classify(self, line: JournalEntry) -> ActionResult:
        """Return what a line tells."""
        told = self._read(line)
        return told if told.action in self._words.get(line.kind, ENDINGS) else told._replace(action=OTHER)

    def _read(self, line: JournalEntry) -> ActionResult:
        lifecycle = self._lifecycles.get(line.kind)
        if line.event.startswith(REJECTED):
            return ActionResult(line.kind, line.event.removeprefix(REJECTED), "rejected")
        if line.event == REQUEUED_EVENT and line.source is None:
            return ActionResult(line.kind, self._action(line, lifecycle), "handed_over")
        meaning = _meaning(lifecycle, line)
        if meaning is None:
            return ActionResult(line.kind, line.event, "moved")
        result = RESULTS[meaning] if line.event != UNKNOWN else "unknown"
        return ActionResult(line.kind, self._named(line, lifecycle, meaning), result)

    def _named(self, line: JournalEntry, lifecycle: Lifecycle | None, meaning: Meaning) -> str:
        """Return the action that a line is about, and remember or forget it."""
        if RESULTS[meaning] == "accepted":
            if line.op is not None:
                self._remember(line.op, line.event)
            return line.event
        if meaning is Meaning.STEP:
            return line.event
        action = self._action(line, lifecycle)
        if line.op is not None and (line.kind, line.target) not in self._moving:
            self._begun.pop(line.op, None)
        return action

    def _action(self, line: JournalEntry, lifecycle: Lifecycle | None) -> str:
        known = self._begun.get(line.op) if line.op is not None else None
        if known is not None or lifecycle is None:
            return known or line.event
        leading = {row.event for row in lifecycle.rows if row.via is not None and row.via == line.source}
        return leading.pop() if len(leading) == 1 else line.event

    def _remember(self, op: str, action: str) -> None:
        if len(self._begun) >= MAX_REMEMBERED_OPERATIONS:
            del self._begun[next(iter(self._begun))]
        self._begun[op] = action


def _meaning(lifecycle: Lifecycle | None, line: JournalEntry) -> Meaning | None:
    """Return what an event meant, from the table; what no table has is told by the event alone."""
    if lifecycle is not None and line.source is not None:
        move = lifecycle.moves.get((line.source, line.event, line.actor))
        while move is not None and move.target != line.target:
            move = move.otherwise
        if move is not None:
            return move.meaning
    if line.event in ENDINGS:
        return {"succeeded": Meaning.SUCCESS, "timed out": Meaning.TIMEOUT, "cancelled": Meaning.CANCEL}.get(
            line.event, Meaning.FAILURE
        )
    hidden = lifecycle is not None and line.source is None and line.event in lifecycle.actions
    return Meaning.HIDDEN if hidden else None
