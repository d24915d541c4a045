"""The guard: which of an agent's words count.

Reports travel, so they come late, twice, out of order, from a connection that is long gone, or from an earlier life of
the same name. A report counts only when it is about the operation and the generation under way, over the connection
that is the current one, and when the table allows what it says. Everything else is rejected with a reason, to be
counted and journaled; nothing is dropped in silence, and nothing that an agent can say raises.

An undo is an operation of its own. So a late word about the operation that failed can never confirm the undo of it,
and the agent's confirmation of the undo is what lets the controller leave the error state.
"""

from enum import StrEnum

from msgspec import Struct

from stateward.agents.messages import AgentReport
from stateward.domains.edge.lifecycle import NEVER_READY
from stateward.lifecycle import AGENT, CONTROLLER, NO_FACTS, Lifecycle, Move, Refusal, State, decide

UNDONE = "undone"
UNDO_CONFIRMATIONS = {"CreateError": "deleted", "UpdateError": "ready", "DeleteError": "ready"}
"""What the agent reports when it has undone what failed: removed it, or brought the previous spec back."""

__all__ = [
    "UNDONE",
    "UNDO_CONFIRMATIONS",
    "AgentReport",
    "FencedFields",
    "RejectedReport",
    "RejectionReason",
    "check_report",
    "confirms_undo",
    "evaluate",
    "fence",
]


class RejectionReason(StrEnum):
    """Why a report does not count, as a code."""

    OLD_NOTIFY = "old notify id"
    FOREIGN_NOTIFY = "notify id that was never given"
    NOTHING_UNDER_WAY = "no operation is under way"
    STALE_OPERATION = "stale operation"
    STALE_GENERATION = "stale generation"
    UNKNOWN_EVENT = "unknown event"


class FencedFields(Struct, frozen=True):
    """What the controller knows of an object: its state, and the operation, generation and connection that count."""

    state: State
    operation: int | None
    generation: int
    notify: int


class RejectedReport(Struct, frozen=True):
    """A report that does not count, what it was up against, and why."""

    why: RejectionReason
    fields: FencedFields
    report: AgentReport

    def __str__(self) -> str:
        against = f"operation {self.fields.operation}, generation {self.fields.generation}, notify {self.fields.notify}"
        return f"report {self.report} is rejected, {self.why}: {self.fields.state} with {against}"


def check_report(
    lifecycle: Lifecycle, fields: FencedFields, report: AgentReport, facts: frozenset[str] = NO_FACTS
) -> Move | Refusal | RejectedReport:
    """Say what a report does to an object, or why it does not count; `facts` are those of the operation."""
    return fence(fields, report) or evaluate(lifecycle, fields, report, facts)


def fence(fields: FencedFields, report: AgentReport) -> RejectedReport | None:
    """Reject a report that is not about what is under way now."""
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
    """Ask the table about a report that is about what is under way."""
    if confirms_undo(fields.state, report.event, facts):
        return decide(lifecycle, fields.state, UNDONE, CONTROLLER, facts)
    if report.event not in lifecycle.events:
        return RejectedReport(RejectionReason.UNKNOWN_EVENT, fields, report)
    return decide(lifecycle, fields.state, report.event, AGENT, facts)


def confirms_undo(state: str, event: str, facts: frozenset[str]) -> bool:
    """Tell whether a word confirms the undo of an error; what never was Ready is undone by its removal."""
    never = state == "DeleteError" and NEVER_READY in facts
    return event == ("deleted" if never else UNDO_CONFIRMATIONS.get(state))
