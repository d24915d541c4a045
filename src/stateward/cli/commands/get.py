"""`stateward get` and `stateward list`: show objects."""

from collections.abc import Sequence
from typing import Annotated

import typer

from stateward.cli.commands.kind_options import OnlyKind
from stateward.client.arguments import ObjectSelector, parse_pairs, parse_ref
from stateward.client.formatting import object_details, object_table, print_json_line
from stateward.client.output import err, out
from stateward.client.progress import live_display
from stateward.client.session import Session, on_server
from stateward.client.shared_options import Labels, Object
from stateward.errors import BadInput, UnknownName
from stateward.schemas.objects import ObjectView

States = Annotated[list[str] | None, typer.Option("--state", "-s", metavar="STATE", help="Only in this state.")]
Parent = Annotated[str | None, typer.Option("--parent", metavar="OBJECT", help="Only parts of this object.")]
Like = Annotated[str | None, typer.Option("--q", metavar="TEXT", help="Only objects whose id contains this text.")]
Most = Annotated[int, typer.Option("--limit", min=1, help="Show no more than this many.")]
All = Annotated[bool, typer.Option("--all", help="Show all, however many there are.")]
Watching = Annotated[bool, typer.Option("--watch", help="Go on showing them as they change, until Ctrl-C.")]

LOOK_EVERY = 1.0


@on_server
def get(session: Session, object: Object) -> None:  # noqa: A002 - the glossary's word
    """Show an object, and the operation that works on it."""
    found = session.find(parse_ref(object))
    operation = None if found.op is None else session.client.operation(session.ns, found.op)
    both = {"object": found, "operation": operation}
    session.show(both, lambda _: object_details(session.state_class, found, operation))


def _stored_kind(session: Session, name: str) -> str:
    """Return the full name of a kind that the server knows, or that has objects although nobody knows it."""
    try:
        return session.kind(name)
    except UnknownName:
        if any(name in one.counts for one in session.client.namespaces()):
            return name
        raise


@on_server
def list_(
    session: Session,
    kind: OnlyKind = None,
    state: States = None,
    label: Labels = None,
    parent: Parent = None,
    q: Like = None,
    limit: Most = 1000,
    all_: All = False,
    watch: Watching = False,
) -> None:
    """List the objects of a namespace."""
    chosen = ObjectSelector(
        kind=None if kind is None else _stored_kind(session, kind),
        parent=None if parent is None else parse_ref(parent).id,
        states=_states(state or []),
        labels=parse_pairs("label", label or []),
        q=q,
    )
    known = None if session.json or chosen.kind is None else session.kinds.get(chosen.kind)
    columns = [] if known is None else known.columns
    if watch:
        _watch(session, chosen, None if all_ else limit, columns)
        return
    found = list(session.client.objects(session.ns, chosen, None if all_ else limit + 1))
    shown = found if all_ else found[:limit]
    none = f"No such objects in namespace {session.ns}."
    session.show(shown, lambda shown: object_table(session.state_class, shown, columns) if shown else none)
    if len(shown) < len(found):
        err().print(f"There are more than {limit}: see --limit and --all.", style="yellow")


def _states(texts: Sequence[str]) -> list[str]:
    found = [one for text in texts for one in text.split(",")]
    if not all(found):
        raise BadInput("state", ",".join(texts), "a state, or several with commas")
    return found


def _watch(session: Session, chosen: ObjectSelector, limit: int | None, columns: Sequence[str]) -> None:
    """Show a listing until Ctrl-C; as JSON, an object is printed again whenever it has changed."""
    if session.json:
        _watch_lines(session, chosen, limit)
    with live_display(out()) as live:
        while True:
            found = session.client.objects(session.ns, chosen, limit)
            live.update(object_table(session.state_class, found, columns), refresh=True)
            session.pause(LOOK_EVERY)


def _watch_lines(session: Session, chosen: ObjectSelector, limit: int | None) -> None:
    seen: dict[str, ObjectView] = {}
    while True:
        found = {one.id: one for one in session.client.objects(session.ns, chosen, limit)}
        for id_, one in found.items():
            if seen.get(id_) != one:
                print_json_line(one)
        seen = found
        session.pause(LOOK_EVERY)
