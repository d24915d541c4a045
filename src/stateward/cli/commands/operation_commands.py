"""`stateward operations ...` and `stateward logs`: list operations, show one, follow it."""

from collections.abc import Iterable, Iterator
from typing import Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from stateward.cli.commands.kind_options import OnlyKind
from stateward.cli.commands.wait import Operation
from stateward.cli.default_command import set_default_command
from stateward.client import formatting
from stateward.client.arguments import parse_ref
from stateward.client.output import NO, clean, results
from stateward.client.session import Session, on_server
from stateward.client.shared_options import Everywhere, complete_objects
from stateward.errors import BadInput, count_text
from stateward.schemas.operations import OperationView
from stateward.schemas.timeline import SpanKind, SpanStatus, SpanView, TimelineView

app = typer.Typer(
    help="List operations, show one, or follow it.\n\n"
    "Without a command, it lists the newest operations of the namespace.\n\n"
    "  stateward operations list --status running,waiting\n"
    "  stateward operations follow OPERATION"
)

OfObject = Annotated[
    str | None,
    typer.Option("--object", metavar="OBJECT", help="Only those on this object.", autocompletion=complete_objects),
]
ByAction = Annotated[str | None, typer.Option("--action", metavar="ACTION", help="Only those of this action.")]
InStatus = Annotated[
    str | None,
    typer.Option("--status", metavar="STATUS", help="Only these: waiting, running, succeeded, failed, cancelled."),
]
By = Annotated[
    str | None, typer.Option("--who", metavar="NAME", help="Only those that this person or client requested.")
]
PartsOf = Annotated[str | None, typer.Option("--group", metavar="OPERATION", help="Only the parts of this operation.")]
Most = Annotated[int, typer.Option("--limit", min=1, help="Show at most this many.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Keep printing lines until the operation has ended.")]

LOOK_EVERY_S = 0.5
NO_TIME = "-".ljust(20)


@on_server
def list_(
    session: Session,
    object: OfObject = None,  # noqa: A002 - the glossary's word
    kind: OnlyKind = None,
    action: ByAction = None,
    status: InStatus = None,
    who: By = None,
    group: PartsOf = None,
    everywhere: Everywhere = False,
    limit: Most = 50,
) -> None:
    """List operations, newest first; an action on many objects is one line, with the number of its parts.

    stateward operations list --status failed -A
    stateward operations list --object vm/web-1
    """
    named = None if object is None else parse_ref(object).id
    for option, value in (("--object", object), ("--group", group)):
        if everywhere and value is not None:
            raise BadInput(option, value, "left out where -A is given: it is of one namespace")
    only = {
        "kind": None if kind is None else session.kind(kind),
        "action": action,
        "status": status,
        "who": who,
        **({} if everywhere else {"object": named, "group": group}),
    }
    operations = session.client.operations(None if everywhere else session.ns, limit, **only)
    if not operations and named is not None:
        session.client.object(session.ns, named)  # tells that there is no such object
    if not operations and group is not None:
        session.client.operation(session.ns, group)
    session.show(operations, lambda listed: _table(listed, everywhere=everywhere, wide=session.is_wide))


def _table(operations: list[OperationView], *, everywhere: bool, wide: bool) -> Table:
    rows = (
        (
            operation.id,
            operation.ns if everywhere else "",
            operation.object,
            operation.action,
            formatting.status_text(operation.status),
            ", ".join(f"{count:,} {status}" for status, count in (operation.parts or {}).items()),
            formatting.actor_text(operation.actor, operation.who),
            formatting.age_text(operation.created),
            formatting.duration_text(operation),
            str(operation.attempts) if wide else "",
            operation.kind if wide else "",
            formatting.error_text(operation.error),
        )
        for operation in operations
    )
    titles = ("operation", "namespace", "object", "action", "status", "parts", "by", "age", "took", "attempts", "kind")
    return formatting.filled_table((*titles, "error"), rows)


@on_server
def show(session: Session, operation: Operation) -> None:
    """Show an operation, and where its time went: waits, attempts, steps, provider calls, parts, output.

    stateward operations show OPERATION
    """
    timeline = session.client.timeline(session.ns, operation)
    session.show(timeline, lambda shown: Group(formatting.operation_details(shown.operation), Text(), _timeline(shown)))


def _timeline(timeline: TimelineView) -> Table:
    rows = (
        (formatting.utc_text(span.began), span.kind, span_name(span), _status_text(span.status), _took(span), span.text)
        for span in timeline.spans
    )
    return formatting.filled_table(("when", "what", "name", "status", "took", "text"), rows)


@on_server
def follow(session: Session, operation: Operation) -> None:
    """Follow an operation: print its steps and progress until it has ended, then how it ended.

    The exit code is 1 if it failed or was cancelled.
    """
    ended = print_log(session, operation, following=True)
    if session.json:
        session.print_data_line(ended)
    else:
        session.show(ended, formatting.operation_details)
    if ended.status != "succeeded":
        raise typer.Exit(NO)


@on_server
def logs(session: Session, operation: Operation, following: Follow = False) -> None:
    """Print the steps and the progress of an operation, line by line.

    stateward logs -f OPERATION
    """
    print_log(session, operation, following=following)


def print_log(session: Session, operation: str, *, following: bool) -> OperationView:
    """Print the spans of an operation, each again when it has ended; returns the operation as it is then.

    The timeline is read again and again, so that a restart of the server is no end.
    """
    console, seen = results(), dict[SpanKey, str]()
    timeline = session.client.timeline(session.ns, operation)
    if following and not timeline.operation.has_ended:
        session.require_worker()
    while True:
        for span in new_spans(timeline.spans, seen):
            if session.json:
                session.print_data_line(span)
            else:
                console.print(_line(span), soft_wrap=True)
        if not following or timeline.operation.has_ended:
            return timeline.operation
        session.pause(LOOK_EVERY_S)
        timeline = session.client.timeline(session.ns, operation)


SpanKey = tuple[str, str, str, str]


def new_spans(spans: Iterable[SpanView], seen: dict[SpanKey, str]) -> Iterator[SpanView]:
    """Yield the spans that were not seen, or not in their status; from now on they are seen."""
    for span in spans:
        key = (span.kind, span_name(span), str(span.began), span.op or "")
        if seen.get(key) != span.status:
            seen[key] = span.status
            yield span


def span_name(span: SpanView) -> str:
    """Return the name of a span; a call also has its target, its provider, and how often it was sent."""
    if span.kind is not SpanKind.CALL:
        return span.name
    often = ""
    if span.count > 1:
        slowest = "" if span.slowest_s is None else f", the slowest {formatting.span_text(span.slowest_s)}"
        often = f" ({count_text(span.count, 'time')}{slowest})"
    return (
        f"{span.name}{f' {span.target}' if span.target else ''}{f' at {span.provider}' if span.provider else ''}{often}"
    )


def _line(span: SpanView) -> Text:
    words = Text.assemble(
        (formatting.utc_text(span.began) or NO_TIME, "dim"), f" {span.kind} ", (clean(span_name(span)), "bold")
    )
    if span.kind not in (SpanKind.OUTPUT, SpanKind.EVENT):
        words.append(" ").append_text(_status_text(span.status))
    took = f" after {_took(span)}" if _took(span) else ""
    colon = ": " if span.text and span_name(span) else ""  # progress without a text has counts only
    return words.append(clean(f"{took}{colon}{span.text}"))


def _status_text(status: str) -> Text:
    return formatting.status_text("succeeded" if status == SpanStatus.DONE else status, status)


def _took(span: SpanView) -> str:
    if span.began is None or span.ended is None or span.ended == span.began:
        return ""
    return formatting.span_text((span.ended - span.began).total_seconds())


set_default_command(app, list_)
app.command("list")(list_)
app.command("show")(show)
app.command("follow")(follow)
