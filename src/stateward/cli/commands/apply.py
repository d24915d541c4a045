"""`stateward apply` and `stateward diff`: make objects as files describe them, or show how they differ.

All documents are read and compared with the stored objects before anything is changed: the objects of a kind are listed
in pages, and the updates are planned in one request. What a document asks for is written with the version that was
compared, so that a concurrent change is refused instead of overwritten.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from difflib import unified_diff
from itertools import takewhile
from typing import Annotated, Any

import msgspec
import typer
from msgspec import Struct
from msgspec.structs import replace

from stateward.cli.commands.create import NotClear, find_removal
from stateward.cli.commands.object_files import ObjectDocument, read_documents, to_yaml
from stateward.cli.object_changes import (
    DIGEST_LABEL,
    REWRITTEN,
    ObjectChange,
    Verb,
    contains,
    creating_action,
    decide_change,
    decide_removals,
    digest_of,
    parents_first,
)
from stateward.client.action_requests import CARRY_ON, RequestOutcome, accepted_outcome, wait_for_outcomes
from stateward.client.arguments import ObjectSelector, parse_pairs
from stateward.client.confirmation import confirm_removal
from stateward.client.errors import NOT_FOUND, ApiError, ProblemFacts, api_error_of, none_if
from stateward.client.output import NO, results
from stateward.client.session import Session, on_server, print_error, requests_action
from stateward.client.shared_options import Labels
from stateward.errors import BadInput, StatewardError, count_text
from stateward.schemas.objects import ObjectView

Files = Annotated[
    list[str],
    typer.Option(
        "--file", "-f", metavar="FILE", help="A file or folder of YAML or JSON; - is standard input. Repeatable."
    ),
]
Prune = Annotated[
    bool,
    typer.Option(
        "--prune",
        help="Also remove objects that apply has created, that have the labels of -l, and that are in no file.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")]

FEW = 20
"""Up to this number of documents of a kind, objects are read one by one; more are read in pages of the kind."""

MOST_PLANNED = 1000
ALREADY_EXISTS = "exists"
PRECONDITION_FAILED, TOO_LARGE = 412, 413
INVALID = (400, TOO_LARGE, 422)
"""HTTP statuses of documents that are not valid, whatever else there is."""

TROUBLE = 2
"""Exit code of `diff` if it cannot tell, as that of diff(1): 1 means that there are differences."""

DONE = {Verb.CREATE: "created", Verb.UPDATE: "updated", Verb.LABEL: "labelled", Verb.REMOVE: "removed"}


class NothingApplied(StatewardError):
    """Some documents cannot be applied; nothing was changed."""

    reasons: list[str]

    def __str__(self) -> str:
        return "nothing was changed: " + "\n  ".join(["", *self.reasons] if len(self.reasons) > 1 else self.reasons)


class AppliedChange(Struct, frozen=True):
    """A change, and the outcome of the request for it, if one was made; or of its plan, if that is refused."""

    change: ObjectChange
    outcome: RequestOutcome | None = None
    planned: bool = False

    @property
    def result(self) -> str:
        """What was done, or would be done."""
        verb, outcome = self.change.verb, self.outcome
        if outcome is None:
            return str(verb) if verb is Verb.KEEP else f"would {verb}"
        if outcome.problem is not None:
            return "would be refused" if self.planned else "refused"
        op = outcome.operation
        return op.status if op is not None and op.status in ("failed", "cancelled") else DONE[verb]

    @property
    def why(self) -> str:
        """Why it was or would be refused, or why its operation failed; empty otherwise."""
        if self.outcome is None:
            return ""
        if self.outcome.problem is not None:
            return _why(self.change, self.outcome.problem)
        return (self.outcome.operation and self.outcome.operation.error) or ""


@requests_action
def apply(
    session: Session,
    file: Files,
    prune: Prune = False,
    label: Labels = None,
    dry_run: DryRun = False,
) -> None:
    """Make objects as files describe them: create what is missing, update what differs.

    A second run changes nothing. An object whose kind has no update action is refused if it differs.

      stateward apply -f objects/ --dry-run
      stateward apply -f objects/ --prune -l app=shop --wait
    """
    changes = find_changes(session, read_documents(session, file), _chosen_labels(prune, label))
    planned = changes if dry_run else [change for change in changes if change.verb is not Verb.REMOVE]
    refused = plan_changes(session, planned)
    if dry_run:
        _finish(session, [_planned_change(change, refused.get((change.namespace, change.id))) for change in changes])
        return
    removals = [change for change in changes if change.verb is Verb.REMOVE]
    if removals:
        names = ", ".join(f"{change.namespace}/{change.id}" for change in removals)
        confirm_removal(session, f"Remove {count_text(len(removals), 'object')} that no file describes ({names})?")
    done: list[AppliedChange] = []
    try:
        for change in changes:
            done.append(_carry_out(session, change))  # noqa: PERF401 - those before an error must stay in the list
        ended = _wait(session, done) if session.wait else done
    except (StatewardError, KeyboardInterrupt):  # a server that is gone, for example: what was done stays done
        _print(session, done)
        raise
    _finish(session, ended)


@on_server
def diff(session: Session, file: Files, prune: Prune = False, label: Labels = None) -> None:
    """Show what `apply` would change. The exit code is 0 without differences, 1 with some, and 2 or more on errors.

    stateward diff -f objects/
    """
    try:
        changes = find_changes(session, read_documents(session, file), _chosen_labels(prune, label))
    except StatewardError as error:
        code = print_error(error, [session.client.http.token], json=session.json)
        raise typer.Exit(max(code, TROUBLE)) from None
    differing = [change for change in changes if change.verb is not Verb.KEEP]
    if session.json:
        session.print_data([_plain(AppliedChange(change)) for change in changes])
    else:
        for change in differing:
            sys.stdout.write(difference(change))
    if differing:
        raise typer.Exit(NO)


def _chosen_labels(prune: bool, labels: Sequence[str] | None) -> dict[str, str] | None:
    """Return the labels of what may be pruned; None if nothing is."""
    if prune != bool(labels):
        given = "given with --label KEY=VALUE, which says what belongs to the files" if prune else "given with --prune"
        raise BadInput("--prune" if prune else "--label", None, given)
    return parse_pairs("label", labels or []) if prune else None


# --- what is to be done ----------------------------------------------------------------------------------------------


def find_changes(
    session: Session, documents: Sequence[ObjectDocument], pruned: Mapping[str, str] | None
) -> list[ObjectChange]:
    """Return what is to be done about each document, and about objects without one; raises if something cannot be."""
    documents = parents_first(documents)
    if pruned is not None:
        _check_labels(documents, pruned)
    views = _read_objects(session, documents)
    changes, reasons = [], []
    for document in documents:
        try:
            changes.append(
                decide_change(document, views.get((document.namespace, document.id)), session.kinds.get(document.kind))
            )
        except BadInput as error:
            reasons.append(str(error))
    if reasons:
        raise NothingApplied(reasons)
    if pruned is not None:
        for ns in sorted({document.namespace for document in documents}):
            changes += decide_removals(documents, _labelled(session, ns, pruned), ns)
    return changes


def _check_labels(documents: Sequence[ObjectDocument], pruned: Mapping[str, str]) -> None:
    """Raise if a document lacks a label by which pruning chooses: a later run would not find its object."""
    for document in documents:
        for name, value in pruned.items():
            if document.labels.get(name) != value:
                raise BadInput(
                    f"{document.place('labels')}: labels.{name}", document.labels.get(name), f"{value!r}, as in --label"
                )


def _read_objects(session: Session, documents: Sequence[ObjectDocument]) -> dict[tuple[str, str], ObjectView]:
    """Return the stored objects of documents: few are read one by one, and many as pages of their kind."""
    wanted: dict[tuple[str, str], set[str]] = defaultdict(set)
    for document in documents:
        wanted[document.namespace, document.kind].add(document.id)
    views: dict[tuple[str, str], ObjectView] = {}
    for (ns, kind), ids in wanted.items():
        stored = _read_few(session, ns, ids) if len(ids) <= FEW else _read_pages(session, ns, kind, ids)
        views |= {(ns, view.id): view for view in stored}
    return views


def _read_few(session: Session, ns: str, ids: Iterable[str]) -> list[ObjectView]:
    read = (none_if(NOT_FOUND, lambda id_=id_: session.client.object(ns, id_)) for id_ in sorted(ids))  # type: ignore[misc]
    return [view for view in read if view is not None]


def _read_pages(session: Session, ns: str, kind: str, ids: set[str]) -> list[ObjectView]:
    last = max(ids)
    pages = takewhile(lambda view: view.id <= last, session.client.objects(ns, ObjectSelector(kind=kind)))
    return none_if(NOT_FOUND, lambda: [view for view in pages if view.id in ids]) or []


def _labelled(session: Session, ns: str, labels: Mapping[str, str]) -> list[ObjectView]:
    try:
        return list(session.client.objects(ns, ObjectSelector(labels=dict(labels))))
    except ApiError as problem:
        if problem.status not in (400, 404):  # no object carries the label, or the namespace holds nothing yet
            raise
        return []


def _planned_change(change: ObjectChange, problem: ProblemFacts | None) -> AppliedChange:
    """Return a change of a dry run; `problem` says why it would be refused."""
    outcome = None if problem is None else RequestOutcome(change.id, change.found, problem=problem)
    return AppliedChange(change, outcome, planned=True)


def plan_changes(session: Session, changes: Sequence[ObjectChange]) -> dict[tuple[str, str], ProblemFacts]:
    """Plan all changes of a namespace in one request; returns why some of them would be refused as things are now.

    Raises if an update would be refused, or if a document is not valid. Other refusals of new objects do not keep the
    rest from being applied: what a document needs may be there after the next run.
    """
    planned: dict[str, list[tuple[ObjectChange, dict[str, Any]]]] = defaultdict(list)
    reasons: list[str] = []
    refused: dict[tuple[str, str], ProblemFacts] = {}
    for change in changes:
        try:
            asked = _planned_request(session, change)
        except NotClear as error:
            refused[change.namespace, change.id] = _not_clear(error)
        else:
            if asked is not None:
                planned[change.namespace].append((change, asked))
    for ns, all_ in planned.items():
        plans = [all_[first : first + MOST_PLANNED] for first in range(0, len(all_), MOST_PLANNED)]
        verdicts = [verdict for some in plans for verdict in _plan(session, ns, [asked for _, asked in some])]
        sees_all = len(verdicts) == 1  # otherwise what a document needs may be in another plan
        problems = [problem for verdict in verdicts for problem in verdict]
        for (change, _), problem in zip(all_, problems, strict=True):
            if problem is None:
                continue
            is_wrong = problem["status"] == TOO_LARGE or (sees_all and problem["status"] in INVALID)
            if change.verb is Verb.UPDATE or is_wrong:
                reasons.append(_why(change, problem))
            refused[change.namespace, change.id] = problem
    if reasons:
        raise NothingApplied(reasons)
    return refused


def _plan(session: Session, ns: str, asked: Sequence[dict[str, Any]]) -> list[list[ProblemFacts | None]]:
    """Return the problem of each request, by plans: several if the server does not read such a large one."""
    try:
        answers = session.client.plan(ns, asked)
    except ApiError as problem:
        if problem.status != TOO_LARGE:
            raise
        if len(asked) == 1:
            return [[problem.facts()]]
        half = len(asked) // 2
        return _plan(session, ns, asked[:half]) + _plan(session, ns, asked[half:])
    return [[None if answer.problem is None else msgspec.to_builtins(answer.problem) for answer in answers]]


def _planned_request(session: Session, change: ObjectChange) -> dict[str, Any] | None:
    """Return a change as a request of a plan; None if it needs none, or if the server finds its action by itself."""
    named = {"object": change.id, "action": change.action}
    if change.verb is Verb.UPDATE:
        return {**named, "spec": _spec(change)}
    if change.verb is Verb.REMOVE and change.found is not None:
        return {**named, "action": find_removal(session, change.found, change.namespace)}
    if change.verb is not Verb.CREATE or change.document is None:
        return None
    action = change.document.action or creating_action(session.kinds.get(change.document.kind))
    body = {name: value for name, value in change.document.body.items() if name != "id"}
    return None if action is None else {**named, **body, "action": action, "labels": change.labels}


def _why(change: ObjectChange, problem: Mapping[str, Any]) -> str:
    """Return why a change is refused, with the file and the line that it is about."""
    told = api_error_of(int(problem.get("status", 409)), problem)
    place = "" if change.document is None else f"{change.document.place(str(problem.get('field') or 'id'))}: "
    return f"{place}{change.id}: {told or problem}"


def _spec(change: ObjectChange) -> dict[str, Any]:
    return {} if change.document is None or change.document.spec is None else change.document.spec


# --- doing it --------------------------------------------------------------------------------------------------------


def _carry_out(session: Session, change: ObjectChange) -> AppliedChange:
    """Request a change; a refusal of one object does not keep the others from theirs.

    An object that somebody has created since it was looked for is compared with its document, as any other.
    """
    try:
        return AppliedChange(change, carry_out(session, change))
    except ApiError as problem:
        if problem.status not in (*CARRY_ON, *INVALID, 403):
            raise
        if change.verb is Verb.CREATE and change.document is not None and problem.code == ALREADY_EXISTS:
            view = none_if(NOT_FOUND, lambda: session.client.object(change.namespace, change.id))
            if view is not None:
                return _carry_out_again(session, change.document, view)
        return AppliedChange(change, RequestOutcome(change.id, change.found, problem=problem.facts()))
    except NotClear as error:
        return AppliedChange(change, RequestOutcome(change.id, change.found, problem=_not_clear(error)))


def _carry_out_again(session: Session, document: ObjectDocument, view: ObjectView) -> AppliedChange:
    try:
        return _carry_out(session, decide_change(document, view, session.kinds.get(document.kind)))
    except BadInput as error:
        change = ObjectChange(Verb.UPDATE, view.id, document.namespace, document, view)
        return AppliedChange(change, RequestOutcome(view.id, view, problem={"status": 400, "detail": str(error)}))


def _not_clear(error: NotClear) -> ProblemFacts:
    return {"status": 409, "detail": str(error)}


def carry_out(session: Session, change: ObjectChange) -> RequestOutcome | None:
    """Request a change with the version that was compared; returns None if there is nothing to do."""
    ns, client = change.namespace, session.client
    if change.verb is Verb.KEEP:
        return None
    if change.verb is Verb.REMOVE and change.found is not None:
        removal = find_removal(session, change.found, ns)
        return accepted_outcome(client.act(ns, change.id, removal, {}, version=change.found.version))
    if change.verb is Verb.CREATE and change.document is not None:
        made = client.create(ns, {**change.document.body, "labels": change.labels})
        return accepted_outcome(replace(made, object=_set_labels(session, change, made.object)))
    view = change.found
    assert view is not None
    if change.verb is Verb.LABEL:
        return RequestOutcome(change.id, client.set_labels(ns, change.id, change.labels, view.version))
    done = client.act(ns, change.id, change.action, {"spec": _spec(change)}, version=view.version)
    return accepted_outcome(replace(done, object=_set_labels(session, change, done.object)))


def _set_labels(session: Session, change: ObjectChange, made: ObjectView) -> ObjectView:
    """Set the labels of an object whose new spec is accepted, and keep those that others set meanwhile.

    The digest of the document must not be stored before its spec: an `apply` that was interrupted between the two would
    be taken for done. It also says whether the kind stores another spec than the document has.
    """
    document, before = change.document, change.labels if change.found is None else change.found.labels
    changed = {name: value for name, value in change.labels.items() if before.get(name) != value}
    if document is not None and DIGEST_LABEL in made.labels and not contains(made.spec, document.spec or {}):
        changed[DIGEST_LABEL] = digest_of(document) + REWRITTEN
    while True:
        kept = {name: value for name, value in made.labels.items() if name in change.labels or name not in before}
        if (labels := {**kept, **changed}) == made.labels:
            return made
        try:
            return session.client.set_labels(change.namespace, change.id, labels, made.version)
        except ApiError as problem:
            if problem.status != PRECONDITION_FAILED:
                raise
            made = session.client.object(change.namespace, change.id)


def _wait(session: Session, done: Sequence[AppliedChange]) -> list[AppliedChange]:
    """Wait for the operations, in the order of the changes."""
    by_ns: dict[str, list[RequestOutcome]] = defaultdict(list)
    for applied in done:
        if applied.outcome is not None:
            by_ns[applied.change.namespace].append(applied.outcome)
    ended: dict[tuple[str, str], RequestOutcome] = {}
    for ns, outcomes in by_ns.items():
        there = Session(session.client, ns, output=session.output, pause=session.pause)
        ended |= {(ns, outcome.id): outcome for outcome in wait_for_outcomes(there, outcomes, session.timeout)}
    return [
        AppliedChange(applied.change, ended.get((applied.change.namespace, applied.change.id), applied.outcome))
        for applied in done
    ]


# --- output ----------------------------------------------------------------------------------------------------------


def difference(change: ObjectChange) -> str:
    """Return the difference between a stored object and its document, as diff(1) shows it."""
    stored, described = _stored(change), _described(change)
    name = f"{change.namespace}/{change.id}"
    place = "(no file)" if change.document is None else change.document.place()
    lines = unified_diff(
        to_yaml(stored).splitlines() if stored else [],
        to_yaml(described).splitlines() if described else [],
        f"{name} (stored)" if stored else "(no object)",
        f"{name} ({place})" if described else place,
        lineterm="",
    )
    return "".join(f"{line}\n" for line in lines)


def _described(change: ObjectChange) -> dict[str, Any]:
    if change.document is None:
        return {}
    labels = {name: value for name, value in change.labels.items() if name != DIGEST_LABEL}
    document = change.document
    parent = {} if document.parent is None else {"parent": document.parent}
    return {"kind": document.kind, **parent, "labels": labels, "spec": _spec(change)}


def _stored(change: ObjectChange) -> dict[str, Any]:
    if change.found is None:
        return {}
    labels = {name: value for name, value in change.found.labels.items() if name != DIGEST_LABEL}
    spec = change.found.spec
    if change.document is not None and not contains(spec, _spec(change)):
        spec = _shared(spec, _spec(change))
    is_shown = change.document is None or change.document.parent is not None
    parent = {"parent": change.found.parent} if is_shown and change.found.parent is not None else {}
    return {"kind": change.found.kind, **parent, "labels": labels, "spec": spec}


def _shared(stored: Any, described: Any) -> Any:  # noqa: ANN401 - plain JSON
    """Return the part of a stored value that a document describes: defaults of the kind are no differences."""
    if isinstance(stored, dict) and isinstance(described, dict):
        return {name: _shared(stored[name], described[name]) for name in described if name in stored}
    return stored


def _finish(session: Session, done: Sequence[AppliedChange]) -> None:
    """Print all results, and exit with the highest of their exit codes unless all are good."""
    _print(session, done)
    code = max((applied.outcome.exit_code for applied in done if applied.outcome is not None), default=0)
    if code:
        raise typer.Exit(code)


def _print(session: Session, done: Sequence[AppliedChange]) -> None:
    if session.json:
        session.print_data([_plain(applied) for applied in done])
    else:
        from stateward.client.formatting import filled_table

        titles = ("object", "namespace", "result", "state", "operation", "why")
        results().print(filled_table(titles, map(_row, done)))


def _row(applied: AppliedChange) -> tuple[str, ...]:
    change, outcome = applied.change, applied.outcome
    is_done = outcome is not None and outcome.problem is None
    state = outcome.object.state if is_done and outcome is not None and outcome.object is not None else ""
    op = outcome.operation.id if outcome is not None and outcome.operation is not None else ""
    return change.id, change.namespace, applied.result, state, op, applied.why


def _plain(applied: AppliedChange) -> dict[str, Any]:
    change, outcome = applied.change, applied.outcome
    record: dict[str, Any] = {
        "object": change.id,
        "namespace": change.namespace,
        "result": applied.result.replace(" ", "_"),
        "place": None if change.document is None else change.document.place(),
        "why": applied.why or None,
        "operation": None,
        "problem": None,
    }
    if outcome is not None:
        record |= msgspec.to_builtins({"operation": outcome.operation, "problem": outcome.problem})
    return record
