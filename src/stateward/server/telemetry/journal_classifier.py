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
            name: {row.event for row in lifecycle.rows} | set(lifecycle.actions) | ENDINGS
            for name, lifecycle in self._lifecycles.items()
        }
        self._actions: dict[str, str] = {}  # actions by operation, until the operation has ended

    def classify(self, entry: JournalEntry) -> ActionResult:
        """Return the labels of an entry."""
        result = self._read(entry)
        return result if result.action in self._words.get(entry.kind, ENDINGS) else result._replace(action=OTHER)

    def _read(self, entry: JournalEntry) -> ActionResult:
        lifecycle = self._lifecycles.get(entry.kind)
        if entry.event.startswith(REJECTED):
            return ActionResult(entry.kind, entry.event.removeprefix(REJECTED), "rejected")
        if entry.event == REQUEUED_EVENT and entry.source is None:
            return ActionResult(entry.kind, self._action(entry, lifecycle), "handed_over")
        meaning = _meaning(lifecycle, entry)
        if meaning is None:
            return ActionResult(entry.kind, entry.event, "moved")
        result = RESULTS[meaning] if entry.event != UNKNOWN else "unknown"
        return ActionResult(entry.kind, self._named(entry, lifecycle, meaning), result)

    def _named(self, entry: JournalEntry, lifecycle: Lifecycle | None, meaning: Meaning) -> str:
        """Return the action of an entry; remember it at the beginning of the operation, forget it at the end."""
        if RESULTS[meaning] == "accepted":
            if entry.op is not None:
                if len(self._actions) >= MAX_REMEMBERED_OPERATIONS:
                    del self._actions[next(iter(self._actions))]
                self._actions[entry.op] = entry.event
            return entry.event
        if meaning is Meaning.STEP:
            return entry.event
        action = self._action(entry, lifecycle)
        if entry.op is not None and (entry.kind, entry.target) not in self._moving:
            self._actions.pop(entry.op, None)
        return action

    def _action(self, entry: JournalEntry, lifecycle: Lifecycle | None) -> str:
        known = self._actions.get(entry.op) if entry.op is not None else None
        if known is not None or lifecycle is None:
            return known or entry.event
        leading = {row.event for row in lifecycle.rows if row.via is not None and row.via == entry.source}
        return leading.pop() if len(leading) == 1 else entry.event


def _meaning(lifecycle: Lifecycle | None, entry: JournalEntry) -> Meaning | None:
    """Return the meaning of an event by the table, or by the event alone if the table does not have it."""
    if lifecycle is not None and entry.source is not None:
        move = lifecycle.moves.get((entry.source, entry.event, entry.actor))
        while move is not None and move.target != entry.target:
            move = move.otherwise
        if move is not None:
            return move.meaning
    if entry.event in ENDINGS:
        return {"succeeded": Meaning.SUCCESS, "timed out": Meaning.TIMEOUT, "cancelled": Meaning.CANCEL}.get(
            entry.event, Meaning.FAILURE
        )
    if lifecycle is None or entry.source is not None:
        return None
    # An entry without states is about hidden work, or about a part that is no object and has events of its own.
    hidden = any(row.event == entry.event and row.meaning is Meaning.HIDDEN for row in lifecycle.rows)
    return Meaning.HIDDEN if hidden else None
