"""The journal classifier: turns journal entries into the labels of the metrics (kind, action, result).

An entry has an event and two states; the lifecycle's table tells what the event meant. The entry that ends an action
has an event such as `succeeded`, not the action. So the classifier remembers the action from the entry that began it,
or takes it from the table if only one action leads through that state."""

from collections.abc import Iterable
from typing import NamedTuple

from stateward.engine import Kind
from stateward.engine.transitions import REJECTED, REQUEUED_EVENT
from stateward.lifecycle import TRANSITIONAL, UNKNOWN, Lifecycle, Meaning
from stateward.lifecycle.rows import ENDINGS
from stateward.store.records import JournalEntry

OTHER = "(other)"
"""The label of every event that is in no table: callers and agents must not be able to create labels."""

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
    """The labels of an entry: the kind, the action, and the result."""

    kind: str
    action: str
    result: str


class JournalClassifier:
    """Classifies journal entries, which have to come in their order."""

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
        self._actions: dict[str, str] = {}  # actions by operation, until the operation has ended

    def classify(self, line: JournalEntry) -> ActionResult:
        """Return the labels of an entry."""
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
        """Return the action of an entry; remember it at the beginning of the operation, forget it at the end."""
        if RESULTS[meaning] == "accepted":
            if line.op is not None:
                self._remember(line.op, line.event)
            return line.event
        if meaning is Meaning.STEP:
            return line.event
        action = self._action(line, lifecycle)
        if line.op is not None and (line.kind, line.target) not in self._moving:
            self._actions.pop(line.op, None)
        return action

    def _action(self, line: JournalEntry, lifecycle: Lifecycle | None) -> str:
        known = self._actions.get(line.op) if line.op is not None else None
        if known is not None or lifecycle is None:
            return known or line.event
        leading = {row.event for row in lifecycle.rows if row.via is not None and row.via == line.source}
        return leading.pop() if len(leading) == 1 else line.event

    def _remember(self, op: str, action: str) -> None:
        if len(self._actions) >= MAX_REMEMBERED_OPERATIONS:
            del self._actions[next(iter(self._actions))]
        self._actions[op] = action


def _meaning(lifecycle: Lifecycle | None, line: JournalEntry) -> Meaning | None:
    """Return the meaning of an event by the table, or by the event alone if the table does not have it."""
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
