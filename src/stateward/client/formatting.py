"""Objects, operations and journal entries as texts and tables for a terminal."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stateward.client.output import clean, plain_table

if TYPE_CHECKING:
    from stateward.schemas.journal import LineView
    from stateward.schemas.objects import ObjectCounts, ObjectView
    from stateward.schemas.operations import OperationView

CLASS_COLOURS = {"stable": "green", "transitional": "yellow", "final": "blue"}
STATUS_COLOURS = {"waiting": "cyan", "running": "yellow", "succeeded": "green", "failed": "red", "cancelled": "magenta"}
StateClassOf = Callable[[str, str], str]
"""Returns the class of a state of a kind; empty where it is not known."""

SPANS = ((86400, "d"), (3600, "h"), (60, "min"))


def state_text(class_of: StateClassOf, kind: str, state: str, state_class: str | None = None) -> Text:
    """Return a state in the colour of its class."""
    return Text(clean(state), style=CLASS_COLOURS.get(state_class or class_of(kind, state), ""))


def status_text(status: str, shown: str | None = None) -> Text:
    """Return an operation's status in its colour, or another word for it."""
    return Text(shown or status, style=STATUS_COLOURS.get(status, ""))


def error_text(error: str | None) -> Text:
    """Return an error message in red."""
    return Text(clean(error or ""), style="red")


def utc_text(at: datetime | None) -> str:
    """Return a time, in UTC, to the second."""
    return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def span_text(seconds: float) -> str:
    """Return a duration in its largest unit."""
    for length, unit in SPANS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def age_text(at: datetime | None, now: datetime | None = None) -> str:
    """Return how long ago a time was."""
    return "" if at is None else span_text(((now or datetime.now(UTC)) - at).total_seconds())


def duration_text(operation: "OperationView") -> str:
    """Return how long an operation took from its acceptance."""
    return "" if operation.ended is None else span_text((operation.ended - operation.created).total_seconds())


def actor_text(actor: str, who: str) -> str:
    """Return the actor, and the person or program behind it."""
    return f"{actor} ({who})" if who else actor


def count_table(counts: "ObjectCounts") -> Table:
    """Return a table of counts of objects, with their sum."""
    table = plain_table(*(name.removeprefix("label.") for name in counts.by), "count")
    table.columns[-1].justify = "right"
    for row in counts.rows:
        table.add_row(*(_cell(value or "-") for value in row.values), f"{row.count:,}")
    table.add_row("all", *("" for _ in counts.by[1:]), f"{counts.total:,}", style="bold")
    return table


def filled_table(titles: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Return a table without the columns that would be empty."""
    kept = [list(row) for row in rows]
    used = [n for n in range(len(titles)) if n == 0 or any(str(row[n]) for row in kept)]
    table = plain_table(*(titles[n] for n in used))
    for row in kept:
        table.add_row(*(_cell(row[n]) for n in used))
    return table


def _cell(value: str | Text) -> Text:
    return value if isinstance(value, Text) else Text(clean(value))


OBJECT_TITLES = ("id", "kind", "state", "since", "operation", "parent", "labels", "error")


WIDE_COLUMNS = ("version", "created")


def object_table(class_of: StateClassOf, objects: Iterable["ObjectView"], columns: Sequence[str] = ()) -> Table:
    """Return objects as a table, with further columns: paths such as `spec.address`, those of the kind among them."""
    rows = (
        (*_object_row(class_of, view), *(_column_text(view, *_path_steps(path)) for path in columns))
        for view in objects
    )
    return filled_table((*OBJECT_TITLES, *_column_titles(columns)), rows)


def _path_steps(path: str) -> list[str]:
    return path.split(".", 1 if path.startswith("labels.") else -1)  # the name of a label may have dots


def _column_titles(columns: Sequence[str]) -> list[str]:
    """Return the last names of paths, where they are clear."""
    names = [_path_steps(path)[-1] for path in columns]
    taken = [*OBJECT_TITLES, *names]
    return [name if taken.count(name) == 1 else path for path, name in zip(columns, names, strict=True)]


def _column_text(view: "ObjectView", field: str, *steps: str) -> str:
    value: Any = getattr(view, field, None)
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, datetime):
        return utc_text(value)
    return "" if value is None else value if isinstance(value, str) else json_text(value)


def _object_row(class_of: StateClassOf, view: "ObjectView") -> tuple[str | Text, ...]:
    labels = " ".join(f"{name}={value}" for name, value in sorted(view.labels.items()))
    state = state_text(class_of, view.kind, view.state, view.state_class)
    error = error_text(view.error)
    return view.id, view.kind, state, age_text(view.since), view.op or "", view.parent or "", labels, error


def facts_table(facts: Iterable[tuple[str, str | Text]]) -> Table:
    """Return a table of names and values, without empty values."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", overflow="fold")
    table.add_column(overflow="fold")
    for name, value in facts:
        if str(value):
            table.add_row(name, _cell(value))
    return table


def object_details(class_of: StateClassOf, view: "ObjectView", operation: "OperationView | None") -> RenderableType:
    """Return all fields of an object, and of the operation that holds its state."""
    facts = facts_table(
        [
            ("object", view.id),
            ("kind", view.kind),
            ("state", state_text(class_of, view.kind, view.state, view.state_class)),
            ("since", f"{utc_text(view.since)} ({age_text(view.since)})"),
            ("error", error_text(view.error)),
            ("parent", view.parent or ""),
            ("queue", view.queue if view.queue and view.queue != view.id else ""),
            ("labels", " ".join(f"{name}={value}" for name, value in sorted(view.labels.items()))),
            ("version", str(view.version)),
            ("created", utc_text(view.created)),
            ("spec", json_text(view.spec) if view.spec else ""),
            ("seen", json_text(view.seen) if view.seen else ""),
        ]
    )
    return facts if operation is None else Group(facts, Text(), operation_details(operation))


def operation_details(operation: "OperationView") -> RenderableType:
    """Return all fields of an operation."""
    return facts_table(
        [
            ("operation", operation.id),
            ("object", operation.object),
            ("action", f"{operation.action} by {actor_text(operation.actor, operation.who)}"),
            ("facts", ", ".join(operation.facts)),
            ("args", json_text(operation.args) if operation.args else ""),
            ("way", f"{operation.origin} -> {operation.via} -> {operation.desired}" if operation.desired else ""),
            ("status", status_text(operation.status)),
            ("attempts", str(operation.attempts) if operation.attempts > 1 else ""),
            ("steps", json_text(operation.steps) if operation.steps else ""),
            ("created", utc_text(operation.created)),
            ("took", duration_text(operation)),
            ("error", error_text(operation.error)),
            ("result", json_text(operation.result) if operation.result is not None else ""),
            ("traceback", Text(clean(operation.traceback or ""))),
        ]
    )


def json_text(value: Any) -> str:  # noqa: ANN401 - whatever JSON can say
    """Return a value as one line of JSON."""
    return msgspec.json.encode(value).decode()


def entry_text(class_of: StateClassOf, line: "LineView") -> Text:
    """Return a journal entry as one line."""
    text = Text.assemble((utc_text(line.at), "dim"), " ", (clean(line.object), "bold"), " ", clean(line.event))
    if line.target is not None:
        source = state_text(class_of, line.kind, line.source) if line.source else Text("(new)")
        text.append_text(Text.assemble(" ", source, " -> ", state_text(class_of, line.kind, line.target)))
    text.append(clean(f" by {actor_text(line.actor, line.who)}"), style="dim")
    if line.reason:
        text.append_text(Text(": ") + error_text(line.reason))
    return text
