"""Requests for actions on one object, on several, or on all that a selector chooses, and their outcomes.

One object that refuses an action does not keep the others from it: each object has an outcome of its own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import typer
from msgspec import Struct
from msgspec.structs import replace
from rich.text import Text

from stateward.client.arguments import ObjectRef, ObjectSelector
from stateward.client.errors import NOT_FOUND, ApiError, ProblemFacts, api_error_of, exit_code_of, none_if
from stateward.client.formatting import duration_text, error_text, filled_table, state_text, status_text
from stateward.client.operation_waiter import OperationWaiter, naming_open_operations
from stateward.client.output import NO, err, results
from stateward.client.progress import ProgressBars, follow_progress, group_of
from stateward.errors import BadInput
from stateward.schemas.objects import ObjectView
from stateward.schemas.operations import AcceptedView, OperationView

if TYPE_CHECKING:
    from stateward.client.session import Session

FORCE = "force"
CARRY_ON = frozenset({404, 409, 412})
"""HTTP statuses of problems of one object only: the next object is tried all the same."""

GONE = "(gone)"


class StatefulRecord(Protocol):
    """An object in a response: the generic one, or that of a domain with fields of its own."""

    @property
    def kind(self) -> str:
        """Its kind."""

    @property
    def state(self) -> str:
        """Its state."""


class RequestOutcome(Struct, frozen=True):
    """The outcome of an action on one object: accepted (with an operation, or done at once), or refused."""

    id: str
    object: StatefulRecord | None = None
    operation: OperationView | None = None
    problem: ProblemFacts | None = None
    skipped: bool = False  # it was chosen by a selector, so its refusal is no failure of the command
    cancels: bool = False  # the operation is the one that was to be cancelled

    @property
    def is_good(self) -> bool:
        """Whether it was accepted and has not failed."""
        bad = ("failed",) if self.cancels else ("failed", "cancelled")
        return self.problem is None and (self.operation is None or self.operation.status not in bad)

    @property
    def exit_code(self) -> int:
        """The exit code of this outcome alone."""
        if self.is_good or self.skipped:
            return 0
        if self.problem is None:
            return NO
        return exit_code_of(int(self.problem.get("status", 409)), str(self.problem.get("code", "")))


def request_body(force: bool, facts: Sequence[str], args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a request for an action: its facts and arguments."""
    given = [*facts, *([FORCE] if force else [])]
    return {**({"facts": list(dict.fromkeys(given))} if given else {}), **({"args": dict(args)} if args else {})}


def request_each(
    session: "Session", action: str, named: Sequence[ObjectRef], body: Mapping[str, Any]
) -> list[RequestOutcome]:
    """Request an action on each named object; a refusal of one does not keep the others from it."""
    return [_ask(session, action, ref, body) for ref in named]


def _ask(session: "Session", action: str, named: ObjectRef, body: Mapping[str, Any]) -> RequestOutcome:
    try:
        if named.kind is not None:
            session.find(named)
        return accepted_outcome(session.client.act(session.ns, named.id, action, body))
    except ApiError as problem:
        if problem.status not in CARRY_ON:
            raise
        return RequestOutcome(named.id, problem=problem.facts())
    except BadInput as problem:
        return RequestOutcome(named.id, problem={"status": 400, "detail": str(problem)})


def request_group(
    session: "Session", action: str, chosen: ObjectSelector, body: Mapping[str, Any]
) -> list[RequestOutcome]:
    """Request an action on all objects that a selector chooses, in one request."""
    if chosen.kind is not None:
        chosen = replace(chosen, kind=session.kind(chosen.kind))
    try:
        answer = session.client.act_on_group(session.ns, action, {"selector": chosen, **body})
    except ApiError:
        session.require_namespace()  # that there is no such namespace says more than that nothing is in it
        raise
    begun = [accepted_outcome(accepted) for accepted in ([answer.whole] if answer.whole else []) + answer.begun]
    return begun + [
        RequestOutcome(id_, problem=msgspec.to_builtins(why), skipped=True) for id_, why in answer.skipped.items()
    ]


def accepted_outcome(answer: AcceptedView) -> RequestOutcome:
    """Return an accepted request as an outcome."""
    return RequestOutcome(answer.object.id, answer.object, answer.operation)


def read_outcome(session: "Session", id_: str, operation: str | None) -> RequestOutcome:
    """Return an accepted request of which a response named only the object and the operation; it may be gone."""
    view = none_if(NOT_FOUND, lambda: session.client.object(session.ns, id_))
    return RequestOutcome(id_, view, None if operation is None else session.client.operation(session.ns, operation))


def wait_for_outcomes(
    session: "Session", outcomes: list[RequestOutcome], timeout: float | None
) -> list[RequestOutcome]:
    """Wait for the end of all accepted operations, with a progress bar for each group."""
    if timeout is not None and not isfinite(timeout):
        raise BadInput("--timeout", timeout, "a number of seconds")
    outcomes = outcomes + _parts(session, outcomes)
    groups = {outcome.operation.id: _group(outcome) for outcome in outcomes if outcome.operation is not None}
    ended: dict[str, OperationView] = {}
    operations = [outcome.operation for outcome in outcomes if outcome.operation is not None]
    pending = {operation.id: f"{operation.action} {operation.object}" for operation in operations}
    with (
        naming_open_operations(session.ns, pending),
        ProgressBars(err(), Counter(groups.values()), quiet=session.json) as bars,
    ):
        for operation in _following(session, operations, bars, timeout):
            ended[operation.id] = operation
            del pending[operation.id]
            bars.count_ended(groups[operation.id], good=operation.status == "succeeded")
    return [_ended(session, outcome, ended) for outcome in outcomes]


def _following(
    session: "Session", operations: Sequence[OperationView], bars: ProgressBars, timeout: float | None
) -> Iterator[OperationView]:
    """Yield operations as they end; of a single operation, the progress text is shown meanwhile."""
    following = OperationWaiter(session.client, session.ns, operations, timeout=timeout, pause=session.pause)
    if len(operations) == 1 and session.client.has_worker:
        follow_progress(session.client, operations[0], bars.show_text, timeout)
    yield from following


def _parts(session: "Session", outcomes: Sequence[RequestOutcome]) -> list[RequestOutcome]:
    """Return the child operations of the only outcome: a bar for each group of them says more than one bar."""
    if len(outcomes) != 1 or outcomes[0].operation is None:
        return []
    children = session.client.children(session.ns, outcomes[0].operation.id)
    if not children:
        return []
    parts = {part.id: part for part in session.client.objects(session.ns, ObjectSelector(parent=outcomes[0].id))}
    return [RequestOutcome(child.object, parts.get(child.object), child) for child in children]


def _group(outcome: RequestOutcome) -> str:
    if outcome.object is None:
        return outcome.operation.kind if outcome.operation is not None else ""
    labels = outcome.object.labels if isinstance(outcome.object, ObjectView) else {}
    return group_of(outcome.object.kind, labels)


def _ended(session: "Session", outcome: RequestOutcome, ended: Mapping[str, OperationView]) -> RequestOutcome:
    """Return an outcome with its ended operation, and the object as it is now."""
    if outcome.operation is None or outcome.operation.id not in ended:
        return outcome
    now = none_if(NOT_FOUND, lambda: session.client.object(session.ns, outcome.id))
    return replace(outcome, object=now, operation=ended[outcome.operation.id])


def finish_requests(session: "Session", outcomes: list[RequestOutcome]) -> None:
    """Print the outcomes of requests; with `--wait`, after their operations have ended."""
    warn_of_waiting(session, outcomes)
    print_outcomes(session, wait_for_outcomes(session, outcomes, session.timeout) if session.wait else outcomes)


def finish_cancellation(session: "Session", id_: str) -> None:
    """Print the operation of an object that was told to cancel it; with `--wait`, after the operation has ended."""
    view = session.client.object(session.ns, id_)
    outcome = replace(read_outcome(session, id_, view.op), cancels=True)
    print_outcomes(session, wait_for_outcomes(session, [outcome], session.timeout)[:1] if session.wait else [outcome])


def warn_of_waiting(session: "Session", outcomes: Iterable[RequestOutcome]) -> None:
    """Warn that accepted operations wait, if no worker runs."""
    if not session.client.has_worker and any(outcome.operation is not None for outcome in outcomes):
        err().print("No server runs on this data folder: the work waits until one does.", style="yellow")


def print_outcomes(session: "Session", outcomes: Sequence[RequestOutcome]) -> None:
    """Print the outcome for each object, and exit with the highest of their exit codes unless all are good."""
    if session.json:
        session.print_data([_plain(outcome) for outcome in outcomes])
    else:
        results().print(filled_table(TITLES, (_row(session, outcome) for outcome in outcomes)))
    code = max((outcome.exit_code for outcome in outcomes), default=0)
    if code:
        raise typer.Exit(code)


def _plain(outcome: RequestOutcome) -> dict[str, Any]:
    fields = msgspec.to_builtins({"object": outcome.object, "operation": outcome.operation, "problem": outcome.problem})
    return {"id": outcome.id, **fields, "skipped": outcome.skipped}


TITLES = ("object", "state", "result", "took", "operation", "why")


def _row(session: "Session", outcome: RequestOutcome) -> tuple[Any, ...]:
    if outcome.problem is not None:
        error = api_error_of(int(outcome.problem.get("status", 409)), outcome.problem)
        word = "skipped" if outcome.skipped else "refused"
        return outcome.id, "", word, "", "", error_text(str(error) if error else str(outcome.problem))
    if outcome.operation is None:
        return outcome.id, _state(session, outcome.object), "done", "", "", ""
    state, op = _state(session, outcome.object), outcome.operation
    return outcome.id, state, status_text(op.status), duration_text(op), op.id, error_text(op.error)


def _state(session: "Session", view: StatefulRecord | None) -> str | Text:
    if view is None:
        return GONE
    known = view.state_class if isinstance(view, ObjectView) else None
    return state_text(session.state_class, view.kind, view.state, known)
