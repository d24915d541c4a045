"""`stateward get` and `stateward list`: show objects."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

import typer

from stateward.cli.commands.kind_options import OnlyKind
from stateward.client.arguments import ObjectSelector, parse_pairs, parse_ref
from stateward.client.formatting import WIDE_COLUMNS, count_table, object_details, object_table
from stateward.client.output import err, out
from stateward.client.session import Session, on_server
from stateward.client.shared_options import Everywhere, Labels, Object
from stateward.errors import BadInput, UnknownName, count_text
from stateward.schemas.objects import GroupCount, NamespaceView, ObjectCounts, ObjectView

States = Annotated[list[str] | None, typer.Option("--state", "-s", metavar="STATE", help="Only in this state.")]
Parent = Annotated[str | None, typer.Option("--parent", metavar="OBJECT", help="Only parts of this object.")]
Like = Annotated[str | None, typer.Option("--q", metavar="TEXT", help="Only objects whose id contains this text.")]
Sort = Annotated[
    str | None,
    typer.Option(
        "--sort",
        metavar="FIELD",
        show_default="id",
        help="In this order: id, kind, state, since, created, parent, label.NAME or spec.FIELD; -FIELD reverses it.",
    ),
]
Most = Annotated[int, typer.Option("--limit", min=1, help="Show at most this many.")]
All = Annotated[bool, typer.Option("--all", help="Show all, however many there are.")]
Counting = Annotated[bool, typer.Option("--count", help="Count them, by kind and state or by --by.")]
CountBy = Annotated[
    str,
    typer.Option(
        "--by", metavar="FIELDS", help="The fields of --count: kind, state, parent or label.NAME, with commas."
    ),
]
Watching = Annotated[bool, typer.Option("--watch", help="Keep showing them as they change, until Ctrl-C.")]

LOOK_EVERY = 1.0


@on_server
def get(session: Session, object: Object) -> None:  # noqa: A002 - the glossary's word
    """Show an object, and the operation that works on it."""
    view = session.find(parse_ref(object))
    operation = None if view.op is None else session.client.operation(session.ns, view.op)
    both = {"object": view, "operation": operation}
    session.show(both, lambda _: object_details(session.state_class, view, operation))


def _stored_kind(session: Session, name: str) -> str:
    """Return the full name of a kind that the server knows, or that has objects although nobody knows it."""
    try:
        return session.kind(name)
    except UnknownName:
        if any(name in namespace.counts for namespace in session.client.namespaces()):
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
    sort: Sort = None,
    everywhere: Everywhere = False,
    limit: Most = 1000,
    all_: All = False,
    watch: Watching = False,
    count: Counting = False,
    by: CountBy = "kind,state",
) -> None:
    """List the objects of a namespace, or count them.

    stateward list --kind mci.vm --state Running,Failed --label region=eu
    stateward list -A --sort -since -o wide
    stateward list --count --by kind,label.region
    stateward list -o jsonpath='[*].spec.size'
    """
    chosen = ObjectSelector(
        kind=None if kind is None else _stored_kind(session, kind),
        parent=None if parent is None else parse_ref(parent).id,
        states=_states(state or []),
        labels=parse_pairs("label", label or []),
        q=q,
    )
    ns = None if everywhere else session.ns
    if count:
        session.show(_counts(session, ns, chosen, by.split(",")), count_table)
        return
    known = None if session.json or chosen.kind is None else session.kinds.get(chosen.kind)
    columns = [*(["ns"] if everywhere else []), *(known.columns if known else ())]
    columns += WIDE_COLUMNS if session.is_wide else ()
    if watch:
        _watch(session, lambda: session.client.objects(ns, chosen, None if all_ else limit, sort), columns)
        return
    views = list(session.client.objects(ns, chosen, None if all_ else limit + 1, sort))
    shown = views if all_ else views[:limit]
    if not views and chosen.parent is not None and not everywhere:
        session.client.object(session.ns, chosen.parent)  # tells that there is no such object
    session.show(
        shown,
        lambda shown: object_table(session.state_class, shown, columns),
        if_empty=lambda: _explain_empty(session, ns),
    )
    if len(shown) < len(views):
        err().print(f"There are more than {limit}: see --limit and --all.", style="yellow")


def _explain_empty(session: Session, ns: str | None) -> str:
    """Return the sentence for an empty list: whether the filters or the namespace are empty, and where objects are."""
    if ns is None:
        return "No objects match."
    counts = {
        namespace.ns: sum(n for states in namespace.counts.values() for n in states.values())
        for namespace in _public(session)
    }
    if counts.get(session.ns):
        return f"No objects match: namespace {session.ns} has {count_text(counts[session.ns], 'other')}."
    elsewhere = ", ".join(f"{ns} ({count})" for ns, count in counts.items())
    where = f" Objects are in {elsewhere}: choose a namespace with -n." if elsewhere else ""
    return f"Namespace {session.ns} has no objects.{where}"


def _public(session: Session) -> list[NamespaceView]:
    return [namespace for namespace in session.client.namespaces() if not namespace.ns.startswith("(")]


def _counts(session: Session, ns: str | None, chosen: ObjectSelector, by: Sequence[str]) -> ObjectCounts:
    """Count objects in a namespace, or in each of all namespaces."""
    if ns is not None:
        return session.client.count_objects(ns, chosen, by)
    rows = list[GroupCount]()
    for namespace in session.client.namespaces():
        counts = session.client.count_objects(namespace.ns, chosen, by)
        rows += [GroupCount([namespace.ns, *row.values], row.count) for row in counts.rows]
    return ObjectCounts(["namespace", *by], rows, sum(row.count for row in rows))


def _states(texts: Sequence[str]) -> list[str]:
    states = [state for text in texts for state in text.split(",")]
    if not all(states):
        raise BadInput("state", ",".join(texts), "a state, or several with commas")
    return states


def _watch(session: Session, read: Callable[[], Iterable[ObjectView]], columns: Sequence[str]) -> None:
    """Show a listing until Ctrl-C; as JSON, an object is printed again whenever it has changed."""
    if session.json:
        seen: dict[tuple[str, str], ObjectView] = {}
        while True:
            views = {(view.ns, view.id): view for view in read()}
            for key, view in views.items():
                if seen.get(key) != view:
                    session.print_data_line(view)
            seen = views
            session.pause(LOOK_EVERY)
    from stateward.client.progress import live_display

    with live_display(out()) as live:
        while True:
            live.update(object_table(session.state_class, read(), columns), refresh=True)
            session.pause(LOOK_EVERY)
