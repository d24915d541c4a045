"""`stateward lifecycle ...` and `stateward validate`: show, check and explain the lifecycle tables."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from stateward.client.formatting import filled_table
from stateward.client.output import NO, Json, print_json, results
from stateward.errors import count_text
from stateward.lifecycle import AllowedEvent, Lifecycle, check
from stateward.lifecycle.decide import actions_between
from stateward.lifecycle.describe import describe, describe_allowed, describe_fault
from stateward.lifecycle.render import markdown, mermaid, text
from stateward.lifecycle.render.phrases import format_duration, named_actors
from stateward.lifecycle.render.row_tables import colour_state
from stateward.plugin.registry import installed

app = typer.Typer(no_args_is_help=True, help="Show, check and explain the declared lifecycles.")

Kind = Annotated[str, typer.Argument(help="A kind of object, such as mci.vm (see: stateward lifecycle list).")]


class Format(StrEnum):
    """How a lifecycle can be shown."""

    TABLE = "table"
    MERMAID = "mermaid"
    SVG = "svg"
    TEXT = "text"


DRAWINGS: dict[Format, Callable[[Lifecycle], str]] = {
    Format.TABLE: markdown,
    Format.MERMAID: mermaid,
    Format.SVG: lambda lifecycle: installed().picture_of(lifecycle),
}


@app.command("list")
def list_(json: Json = False) -> None:
    """List the kinds of objects, with the size of their tables."""
    if json:
        print_json([describe(lifecycle) for lifecycle in installed().lifecycles])
        return
    rows = (
        (
            lifecycle.kind,
            lifecycle.declaration.about,
            *(str(len(part)) for part in (lifecycle.states, lifecycle.rows, lifecycle.actions)),
        )
        for lifecycle in installed().lifecycles
    )
    results().print(filled_table(("kind", "about", "states", "rows", "actions"), rows))


@app.command()
def show(
    kind: Kind,
    form: Annotated[Format, typer.Option("--format", help="How to show it.")] = Format.TEXT,
    json: Json = False,
) -> None:
    """Show a lifecycle: its states and rows, as text, Markdown table, Mermaid or SVG."""
    lifecycle = installed().lifecycle_of(kind)
    if json:
        print_json(describe(lifecycle))
    elif form is Format.TEXT:
        results().print(text(lifecycle))
    else:
        typer.echo(DRAWINGS[form](lifecycle))


@app.command("check")
def check_(
    kind: Annotated[str | None, typer.Argument(help="One kind; all if not given.")] = None, json: Json = False
) -> None:
    """Prove that nothing can get stuck; the exit code is 1 if there is a fault."""
    several = installed().lifecycles if kind is None else (installed().lifecycle_of(kind),)
    faults = [fault for lifecycle in several for fault in check(lifecycle)]
    if json:
        print_json(
            {
                "checked": [lifecycle.kind for lifecycle in several],
                "faults": [describe_fault(fault) for fault in faults],
            }
        )
    else:
        for fault in faults:
            results().print(str(fault), style="red", markup=False)
        results().print(f"{count_text(len(several), 'lifecycle')} checked, {count_text(len(faults), 'fault')} found")
    if faults:
        raise typer.Exit(NO)


@app.command()
def explain(
    kind: Kind, state: Annotated[str, typer.Argument(help="A state of that kind.")], json: Json = False
) -> None:
    """Show what may happen in a state: by whom, to which state, within what time."""
    lifecycle = installed().lifecycle_of(kind)
    here = lifecycle.state(state)
    allowed = lifecycle.allowed[here]
    if json:
        print_json(
            {
                "kind": kind,
                "state": here.word,
                "state_class": here.state_class,
                "about": here.about,
                "allowed": [describe_allowed(event) for event in allowed],
            }
        )
        return
    results().print(colour_state(here), f"is {here.state_class}" + (f": {here.about}" if here.about else ""))
    results().print(_table(allowed) if allowed else "Nothing can happen any more.")


def validate(
    kind: Kind,
    start: Annotated[str, typer.Argument(metavar="FROM", help="The present state.")],
    end: Annotated[str, typer.Argument(metavar="TO", help="The state to reach.")],
    json: Json = False,
) -> None:
    """Tell whether an object can get from one state to another, and how.

    The exit code is 1 if it cannot.

      stateward validate mci.vm Running Suspended
    """
    lifecycle = installed().lifecycle_of(kind)
    ways = actions_between(lifecycle, start, end)
    if json:
        print_json({"allowed": bool(ways), "ways": [describe_allowed(way) for way in ways]})
    elif ways:
        results().print(_table(ways))
    else:
        results().print(
            f"No: {kind} cannot be brought from {start} to {end}. {_reachable(lifecycle, start)}", markup=False
        )
    if not ways:
        raise typer.Exit(NO)


def _reachable(lifecycle: Lifecycle, start: str) -> str:
    ends = [state.word for state in lifecycle.states if actions_between(lifecycle, start, state.word)]
    return f"From {start} it can reach: {', '.join(ends) or 'nothing'}"


TITLES = ("event", "by", "into", "to reach", "on error", "within", "needs", "if begun in")


def _table(allowed: tuple[AllowedEvent, ...]) -> Table:
    return filled_table(TITLES, map(_cells, allowed))


def _cells(event: AllowedEvent) -> tuple[str | Text, ...]:
    return (
        event.event,
        ", ".join(named_actors(event.actors)),
        colour_state(event.target),
        colour_state(event.desired) if event.desired else "",
        colour_state(event.error) if event.error else "",
        format_duration(event.within),
        ", ".join(event.needs),
        ", ".join(event.origins),
    )
