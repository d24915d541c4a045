"""The controller's record of an instance, and what each move of the table does to it.

Three rules keep late words harmless. Every wish is a new operation, with a number that only grows. A new spec gets a
generation that was never used, not even by a spec that failed or by an earlier life of the same name: the number of its
operation. And an undo is an operation of its own: from then on, nothing that is said about what failed counts.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from stateward.agents.messages import AgentOrder, OrderAction, fulfils_order
from stateward.domains.edge.lifecycle import CLUSTERINST, IGNORE_AGENT, NEVER_READY, ClusterInstState
from stateward.domains.edge.records.report_fencing import AgentReport, FencedFields, RejectedReport, evaluate, fence
from stateward.lifecycle import NO_FACTS, Lifecycle, Move, Refusal, State, decide

S = ClusterInstState

ERROR_STATES = (S.CREATE_ERROR, S.UPDATE_ERROR, S.DELETE_ERROR)
WORKING_STATES = (S.CREATING, S.UPDATING, S.DELETING)
MAX_TRIES = 2
"""How often the agent is asked to do the same work, and how many undos of one error are begun, before it is left."""

ACTION_BY_STATE: dict[str, OrderAction] = {
    S.CREATE_REQUESTED: OrderAction.CREATE,
    S.CREATING: OrderAction.CREATE,
    S.CREATE_ERROR: OrderAction.DELETE,
    S.UPDATE_REQUESTED: OrderAction.UPDATE,
    S.UPDATING: OrderAction.UPDATE,
    S.UPDATE_ERROR: OrderAction.UPDATE,
    S.DELETE_REQUESTED: OrderAction.DELETE,
    S.DELETING: OrderAction.DELETE,
    S.DELETE_ERROR: OrderAction.CREATE,
}
"""What is asked of the agent in each state while an operation is under way; in an error state that is the undo."""


class InstanceRecord(Struct, frozen=True):
    """What the controller keeps for good: the object, the operation under way (0: none), and the numbers given."""

    state: State = S.NOT_PRESENT
    operation: int = 0
    generation: int = 0  # that the operation is about
    confirmed: int = 0  # the last one that was Ready; 0: never was
    origin: State | None = None  # where a delete began
    facts: frozenset[str] = NO_FACTS  # of the operation: overrides
    tries: int = 0
    missing: bool = False  # the condition: Ready here, but not there
    issued: int = 0
    notify: int = 0

    def __str__(self) -> str:
        work = f"operation {self.operation}" if self.operation else "no operation"
        return f"{self.state}{' (missing)' if self.missing else ''}, {work}, generation {self.generation}"


def new_undo_number(record: InstanceRecord) -> int:
    """Number an undo: an operation of its own."""
    return record.issued + 1


class DecisionRules(Struct, frozen=True):
    """The controller's decisions, each by itself, so that a test can plant a wrong one and see it found."""

    lifecycle: Lifecycle = CLUSTERINST
    fence: Callable[[FencedFields, AgentReport], RejectedReport | None] = fence
    evaluate: Callable[[Lifecycle, FencedFields, AgentReport, frozenset[str]], Move | Refusal | RejectedReport] = (
        evaluate
    )
    number_undo: Callable[[InstanceRecord], int] = new_undo_number
    fulfils: Callable[[int, bool, AgentOrder], bool] = fulfils_order


def decide_event(
    rules: DecisionRules, record: InstanceRecord, event: str, actor: str, facts: frozenset[str] = NO_FACTS
) -> Move | Refusal:
    """Ask the table about an event, with what is known of the operation under way."""
    return decide(rules.lifecycle, record.state, event, actor, facts | current_facts(record), record.origin)


def current_facts(record: InstanceRecord) -> frozenset[str]:
    """Return what is true of an instance in the table's own words."""
    never = record.state == S.DELETE_ERROR and not record.confirmed
    return record.facts | {NEVER_READY} if never else record.facts


def begin_operation(
    record: InstanceRecord, move: Move, facts: frozenset[str] = NO_FACTS, at_least: int = 0
) -> InstanceRecord:
    """Return the record after something has begun; what is deleted keeps its generation."""
    operation = max(record.issued + 1, at_least)
    numbers = replace(record, operation=operation, issued=operation, tries=0, missing=False, facts=facts)
    if move.desired == S.NOT_PRESENT:
        return replace(numbers, state=move.target, origin=move.source)
    return replace(numbers, state=move.target, origin=None, generation=operation)


def apply_move(rules: DecisionRules, record: InstanceRecord, move: Move) -> InstanceRecord:
    """Return the record after a move that ends something, or brings it further; an error begins its undo at once."""
    to = move.target
    if to == S.READY:
        return replace(record, state=to, operation=0, confirmed=record.generation, origin=None, facts=NO_FACTS, tries=0)
    if to == S.NOT_PRESENT:
        return InstanceRecord(state=to, issued=record.issued, notify=record.notify)
    if to in ERROR_STATES:
        return begin_undo(rules, enter_error(record, to))
    return replace(record, state=to)


def enter_error(record: InstanceRecord, to: State) -> InstanceRecord:
    """Return the record in an error whose undo is still to begin, as the clock leaves it."""
    return replace(record, state=to, operation=0, origin=None, facts=NO_FACTS, tries=0)


def needs_undo(record: InstanceRecord) -> bool:
    """Tell whether an undo is still to begin."""
    return record.state in ERROR_STATES and not record.operation and not record.tries


def begin_undo(rules: DecisionRules, record: InstanceRecord) -> InstanceRecord:
    """Begin an undo, the first or a further one, or leave the error as it is after the last one."""
    if record.tries == MAX_TRIES:
        return replace(record, operation=0)
    aim = record.confirmed if record.state != S.CREATE_ERROR and record.confirmed else record.generation
    operation = rules.number_undo(record)
    issued = max(record.issued, operation)
    return replace(record, operation=operation, issued=issued, generation=aim, tries=record.tries + 1)


def requested_action(record: InstanceRecord) -> OrderAction | None:
    """Return what the agent is to do now, if anything; what never was Ready is not brought back, but removed."""
    if not record.operation:
        return None
    if record.state == S.DELETE_ERROR and not record.confirmed:
        return OrderAction.DELETE
    return ACTION_BY_STATE.get(record.state)


def due_order(record: InstanceRecord, connection: int) -> AgentOrder | None:
    """Return the order that is due over a connection, if one is; what ignores the agent is not asked of it."""
    work = None if IGNORE_AGENT in record.facts else requested_action(record)
    return None if work is None else AgentOrder(work, record.operation, record.generation, connection)


def fenced_fields(record: InstanceRecord) -> FencedFields:
    """Return what the guard needs to know."""
    return FencedFields(record.state, record.operation or None, record.generation, record.notify)
