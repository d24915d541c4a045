"""`stateward describe`: the page of an object as text."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct
from rich.console import Group, RenderableType
from rich.text import Text

from stateward.client import formatting
from stateward.client.arguments import ObjectSelector, parse_ref
from stateward.client.output import clean
from stateward.client.session import Session, on_server
from stateward.client.shared_options import Object
from stateward.schemas.journal import LineView
from stateward.schemas.objects import AllowedView, GroupCount, ObjectView
from stateward.schemas.operations import OperationView
from stateward.schemas.waiting import WhyView

NEWEST_OPERATIONS, NEWEST_ENTRIES, MOST_CHILDREN = 5, 10, 20
FORCE = "force"


class ObjectPageText(Struct, frozen=True):
    """What the page of an object shows; `children` are counted by kind and state."""

    object: ObjectView
    waiting: WhyView
    allowed: AllowedView
    operations: list[OperationView]
    events: list[LineView]
    children: list[GroupCount]


@on_server
def describe(session: Session, object: Object) -> None:  # noqa: A002 - the glossary's word
    """Show all about an object, as its page in the console does.

    This is its state, what goes on and why it waits, the last error, possible actions, events and children.

    stateward describe vm/web-1
    """
    view = session.find(parse_ref(object))
    client, ns = session.client, session.ns
    page = ObjectPageText(
        view,
        client.why(ns, view.id),
        client.allowed(ns, view.id),
        client.operations(ns, NEWEST_OPERATIONS, object=view.id),
        list(client.object_history(ns, view.id))[-NEWEST_ENTRIES:],
        client.count_objects(ns, ObjectSelector(parent=view.id), ["kind", "state"]).rows,
    )
    session.show(page, lambda page: _page(session, page))


def _page(session: Session, page: ObjectPageText) -> RenderableType:
    parts: list[RenderableType] = [_summary(session, page)]
    parts += _section("Actions", _actions(page.allowed))
    parts += _section("Operations", _operations(page.operations))
    rows = [
        (kind or "", formatting.state_text(session.state_class, kind or "", state or ""), f"{group.count:,}")
        for group in page.children[:MOST_CHILDREN]
        for kind, state in [group.values]
    ]
    parts += _section("Children", [formatting.filled_table(("kind", "state", "objects"), rows)] if rows else [])
    parts += _section("Events", [formatting.entry_text(session.state_class, entry) for entry in page.events])
    return Group(*parts)


def _section(title: str, lines: Iterable[RenderableType]) -> list[RenderableType]:
    shown = list(lines)
    return [Text(f"\n{title}", style="bold"), *shown] if shown else []


def _summary(session: Session, page: ObjectPageText) -> RenderableType:
    view, last = page.object, next(iter(page.operations), None)
    return formatting.facts_table(
        [
            ("object", f"{view.kind}/{view.id}"),
            ("namespace", view.ns),
            ("state", formatting.state_text(session.state_class, view.kind, view.state, view.state_class)),
            ("since", f"{formatting.utc_text(view.since)} ({formatting.age_text(view.since)})"),
            ("now", clean(page.waiting.text)),
            ("error", formatting.error_text(view.error or (last.error if last else None))),
            (
                "last",
                ""
                if last is None
                else f"{last.action} by {formatting.actor_text(last.actor, last.who)}, {last.status}",
            ),
            ("parent", view.parent or ""),
            ("labels", " ".join(f"{name}={value}" for name, value in sorted(view.labels.items()))),
            ("created", formatting.utc_text(view.created)),
            ("version", str(view.version)),
            *((f"spec.{name}", _value(value)) for name, value in (view.spec or {}).items()),
            *((f"seen.{name}", _value(value)) for name, value in (view.seen or {}).items()),
        ]
    )


def _value(value: object) -> str:
    return value if isinstance(value, str) else formatting.json_text(msgspec.to_builtins(value))


def _actions(allowed: AllowedView) -> list[RenderableType]:
    """Return the actions that make sense now, with what each needs and where it leads."""
    possible = [action for action in allowed.actions if action.allowed and action.event != "create"]
    rows = [
        (
            action.event,
            f"to {action.end}" if action.end else "",
            " ".join("--force" if fact == FORCE else f"--fact {fact}" for fact in action.needs),
        )
        for action in possible
    ]
    return [formatting.filled_table(("action", "leads", "needs"), rows)] if rows else []


def _operations(operations: list[OperationView]) -> list[RenderableType]:
    rows = (
        (
            operation.id,
            operation.action,
            formatting.status_text(operation.status),
            formatting.actor_text(operation.actor, operation.who),
            formatting.utc_text(operation.created),
            formatting.duration_text(operation),
            formatting.error_text(operation.error),
        )
        for operation in operations
    )
    return (
        [formatting.filled_table(("operation", "action", "status", "by", "created", "took", "error"), rows)]
        if operations
        else []
    )
