"""The controller's record of an instance, and how each transition changes it.

Three rules fence late reports. Every request is a new operation, with a number that only grows. Every new spec gets an
unused generation: the number of its operation, which no failed spec and no deleted instance of the same name has had.
An undo is an operation of its own, so reports about the failed operation no longer count.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from stateward.agents.messages import AgentOrder, AgentReport, OrderAction, fulfils_order
from stateward.domains.edge.lifecycle import CLUSTERINST, IGNORE_AGENT, NEVER_READY, WAS_READY, ClusterInstState
from stateward.domains.edge.records.report_fencing import FencedFields, RejectedReport, evaluate, fence
from stateward.lifecycle import NO_FACTS, Lifecycle, Move, Refusal, State, decide

S = ClusterInstState

ERROR_STATES = (S.CREATE_ERROR, S.UPDATE_ERROR, S.DELETE_ERROR)
WORKING_STATES = (S.CREATING, S.UPDATING, S.DELETING)
MAX_TRIES = 2
"""How often the same work is requested of an agent, and how many undos of one error are started."""

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
"""The action requested of the agent in each state during an operation; in an error state, it is the undo."""


class InstanceRecord(Struct, frozen=True):
    """The durable record of an instance: its state, the current operation (0: none), and the numbers issued."""

    state: State = S.NOT_PRESENT
    operation: int = 0
    generation: int = 0  # of the current operation
    confirmed: int = 0  # the last generation that was Ready; 0: none was
    origin: State | None = None  # the state in which a delete began
    facts: frozenset[str] = NO_FACTS  # overrides of the operation
    tries: int = 0
    missing: bool = False  # Ready in the record, absent at the site
    issued: int = 0
    notify: int = 0

    def __str__(self) -> str:
        work = f"operation {self.operation}" if self.operation else "no operation"
        return f"{self.state}{' (missing)' if self.missing else ''}, {work}, generation {self.generation}"


def new_undo_number(record: InstanceRecord) -> int:
    """Return the operation number of an undo, which is an operation of its own."""
    return record.issued + 1


class DecisionRules(Struct, frozen=True):
    """The controller's decisions, one field each; a test replaces one, and the explorer must find it."""

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
    """Look up an event in the lifecycle table, with the facts of the current operation."""
    return decide(rules.lifecycle, record.state, event, actor, facts | current_facts(record), record.origin)


def current_facts(record: InstanceRecord) -> frozenset[str]:
    """Return the facts of an instance for the lifecycle table."""
    if record.state == S.DELETE_ERROR and not record.confirmed:
        return record.facts | {NEVER_READY}
    return record.facts | {WAS_READY} if record.state == S.CREATE_ERROR and record.confirmed else record.facts


def begin_operation(
    record: InstanceRecord, move: Move, facts: frozenset[str] = NO_FACTS, at_least: int = 0
) -> InstanceRecord:
    """Return the record after the start of an operation; a delete keeps the generation."""
    operation = max(record.issued + 1, at_least)
    numbers = replace(record, operation=operation, issued=operation, tries=0, missing=False, facts=facts)
    if move.desired == S.NOT_PRESENT:
        return replace(numbers, state=move.target, origin=move.source)
    return replace(numbers, state=move.target, origin=None, generation=operation)


def apply_move(rules: DecisionRules, record: InstanceRecord, move: Move) -> InstanceRecord:
    """Return the record after a transition that ends or advances an operation; an error starts its undo at once."""
    to = move.target
    if to == S.READY and record.state == S.CREATE_ERROR:  # what was re-created in vain is still missing
        back = replace(record, state=to, operation=0, generation=record.confirmed, origin=None, facts=NO_FACTS, tries=0)
        return replace(back, missing=True)
    if to in (S.READY, S.NOT_PRESENT):
        return end_operation(record, to)
    if to in ERROR_STATES:
        return begin_undo(rules, enter_error(record, to))
    return replace(record, state=to)


def end_operation(record: InstanceRecord, to: State) -> InstanceRecord:
    """Return the record after an operation that has succeeded, in the state Ready or NotPresent."""
    if to == S.NOT_PRESENT:
        return InstanceRecord(state=to, issued=record.issued, notify=record.notify)
    return replace(record, state=to, operation=0, confirmed=record.generation, origin=None, facts=NO_FACTS, tries=0)


def enter_error(record: InstanceRecord, to: State) -> InstanceRecord:
    """Return the record in an error state whose undo has not started, as after a time-out."""
    return replace(record, state=to, operation=0, origin=None, facts=NO_FACTS, tries=0)


def needs_undo(record: InstanceRecord) -> bool:
    """Tell whether an undo has yet to start."""
    return record.state in ERROR_STATES and not record.operation and not record.tries


def begin_undo(rules: DecisionRules, record: InstanceRecord) -> InstanceRecord:
    """Start the next undo of an error; after `MAX_TRIES` of them the error stays."""
    if record.tries == MAX_TRIES:
        return replace(record, operation=0)
    aim = record.confirmed if record.state != S.CREATE_ERROR and record.confirmed else record.generation
    operation = rules.number_undo(record)
    issued = max(record.issued, operation)
    return replace(record, operation=operation, issued=issued, generation=aim, tries=record.tries + 1)


def requested_action(record: InstanceRecord) -> OrderAction | None:
    """Return the action requested of the agent now, if any; what was never Ready is removed, not restored."""
    if not record.operation:
        return None
    if record.state == S.DELETE_ERROR and not record.confirmed:
        return OrderAction.DELETE
    return ACTION_BY_STATE.get(record.state)


def due_order(record: InstanceRecord, connection: int) -> AgentOrder | None:
    """Return the order due over a connection, if any; none is sent for an operation that ignores the agent.

    The undo of a failed re-create keeps the data of the instance: nobody has asked to delete it.
    """
    work = None if IGNORE_AGENT in record.facts else requested_action(record)
    if work is None:
        return None
    keep_data = work is OrderAction.DELETE and WAS_READY in current_facts(record)
    return AgentOrder(work, record.operation, record.generation, connection, keep_data=keep_data)


def fenced_fields(record: InstanceRecord) -> FencedFields:
    """Return the fields that reports are fenced by."""
    return FencedFields(record.state, record.operation or None, record.generation, record.notify)
