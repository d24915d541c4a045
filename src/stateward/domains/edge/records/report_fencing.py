"""Fencing of agent reports: which reports count.

A report may arrive late, twice, out of order, from an old connection, or about a deleted instance of the same name. It
counts only if it has the current operation, generation and connection, and if the lifecycle table allows its event.
Every other report is rejected with a reason, counted and journaled. No report is dropped silently, and none raises.

An undo is an operation of its own, so a late report about the failed operation cannot confirm the undo. The controller
leaves an error state only when the agent confirms the undo.
"""

from enum import StrEnum

from msgspec import Struct

from stateward.agents.messages import AgentReport
from stateward.domains.edge.lifecycle import NEVER_READY
from stateward.lifecycle import AGENT, CONTROLLER, NO_FACTS, Lifecycle, Move, Refusal, State, decide

UNDONE = "undone"
UNDO_CONFIRMATIONS = {"CreateError": "deleted", "UpdateError": "ready", "DeleteError": "ready"}
"""The event that confirms an undo, by error state: the instance was removed, or its previous spec restored."""


class RejectionReason(StrEnum):
    """Reason why a report is rejected."""

    OLD_NOTIFY = "old notify id"
    FOREIGN_NOTIFY = "notify id that was never given"
    NOTHING_UNDER_WAY = "no operation is under way"
    STALE_OPERATION = "stale operation"
    STALE_GENERATION = "stale generation"
    UNKNOWN_EVENT = "unknown event"


class FencedFields(Struct, frozen=True):
    """An instance's state, and the operation, generation and connection that a report must have."""

    state: State
    operation: int | None
    generation: int
    notify: int


class RejectedReport(Struct, frozen=True):
    """A rejected report, the fields it was compared with, and the reason."""

    why: RejectionReason
    fields: FencedFields
    report: AgentReport

    def __str__(self) -> str:
        against = f"operation {self.fields.operation}, generation {self.fields.generation}, notify {self.fields.notify}"
        return f"report {self.report} is rejected, {self.why}: {self.fields.state} with {against}"


def check_report(
    lifecycle: Lifecycle, fields: FencedFields, report: AgentReport, facts: frozenset[str] = NO_FACTS
) -> Move | Refusal | RejectedReport:
    """Return the transition that a report causes, or why it is rejected; `facts` are the operation's."""
    return fence(fields, report) or evaluate(lifecycle, fields, report, facts)


def fence(fields: FencedFields, report: AgentReport) -> RejectedReport | None:
    """Reject a report that is not about the current operation."""
    why = _fencing_reason(fields, report)
    return RejectedReport(why, fields, report) if why is not None else None


def _fencing_reason(fields: FencedFields, report: AgentReport) -> RejectionReason | None:
    if report.notify != fields.notify:
        return RejectionReason.OLD_NOTIFY if report.notify < fields.notify else RejectionReason.FOREIGN_NOTIFY
    if fields.operation is None:
        return RejectionReason.NOTHING_UNDER_WAY
    if report.operation != fields.operation:
        return RejectionReason.STALE_OPERATION
    return RejectionReason.STALE_GENERATION if report.generation != fields.generation else None


def evaluate(
    lifecycle: Lifecycle, fields: FencedFields, report: AgentReport, facts: frozenset[str] = NO_FACTS
) -> Move | Refusal | RejectedReport:
    """Look up the event of a report that has passed the fence."""
    if confirms_undo(fields.state, report.event, facts):
        return decide(lifecycle, fields.state, UNDONE, CONTROLLER, facts)
    if report.event not in lifecycle.events:
        return RejectedReport(RejectionReason.UNKNOWN_EVENT, fields, report)
    return decide(lifecycle, fields.state, report.event, AGENT, facts)


def confirms_undo(state: str, event: str, facts: frozenset[str]) -> bool:
    """Tell whether an event confirms an undo; an instance that was never Ready is undone by its removal."""
    never = state == "DeleteError" and NEVER_READY in facts
    return event == ("deleted" if never else UNDO_CONFIRMATIONS.get(state))
