"""Objects, queues, orphans and recovered work of the ovc domain as tables on a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import fields
from rich.console import Group, RenderableType
from rich.table import Table

from stateward.client.formatting import age_text, error_text, filled_table, state_text, utc_text
from stateward.domains.ovc.api.views import HealingView, ItemView, ObjectQueueView, OrphanView
from stateward.errors import count_text

if TYPE_CHECKING:
    from stateward.client.session import Session

TITLES = ("id", "name", "state", "since", "parent", "more", "error")


def full_record(item: ItemView) -> dict[str, Any]:
    """Return an object as `--json` prints it: with every field, also those that the API leaves out, but `created`."""
    return {field.encode_name: getattr(item, field.name) for field in fields(item) if field.name != "created"}


def item_table(session: "Session", items: Sequence[ItemView]) -> Table:
    """Return objects as a table."""
    return filled_table(
        TITLES,
        (
            (
                item.id,
                item.name,
                state_text(session.state_class, f"ovc.{item.kind}", item.state),
                age_text(item.since),
                item.parent or "",
                _more(item),
                error_text(item.error),
            )
            for item in items
        ),
    )


def _more(item: ItemView) -> str:
    remarks = [
        f"firewall {item.firewall}" if item.firewall else "",
        f"on {item.node}" if item.node else "",
        count_text(len(item.disks), "disk") if item.disks else "",
        f"of {item.vm}" if item.vm else "",
        count_text(item.users, "user") if item.users else "",
        f"{count_text(len(item.away), 'VM')} away" if item.away else "",
        item.trouble or "",
        count_text(len(item.orphans), "orphan") if item.orphans else "",
        f"in the bin with {item.bin.along}" if item.bin is not None and item.bin.along else "",
    ]
    return ", ".join(filter(None, remarks))


def item_details(session: "Session", item: ItemView) -> RenderableType:
    """Return an object in full: with the report and the orphans of a node."""
    parts: list[Table] = [item_table(session, [item])]
    if item.report is not None:
        rows = [(vm, "done", "") for vm in item.report.done]
        rows += [(vm, "failed", why) for vm, why in item.report.failed.items()]
        parts.append(filled_table((f"{item.report.action} of", "result", "why"), rows))
    return Group(*parts, *_orphan_tables(item.orphans))


def queue_table(queue: ObjectQueueView) -> Table:
    """Return a queue as a table, in its order."""
    return filled_table(
        ("operation", "object", "action", "by", "status", "shown"),
        (
            (
                operation.id,
                operation.object,
                operation.action,
                operation.actor,
                operation.status,
                "hidden" if operation.hidden else "",
            )
            for operation in queue.operations
        ),
    )


def _orphan_tables(orphans: Sequence[OrphanView] | None) -> list[Table]:
    """Return the orphans as a table; none without orphans."""
    rows = [(orphan.what, orphan.name, orphan.node, utc_text(orphan.since)) for orphan in orphans or ()]
    return [filled_table(("orphan", "name", "seen at", "since"), rows)] if rows else []


def healing_view(healing: HealingView) -> RenderableType:
    """Return stuck and recovered work, and orphans."""
    rows = [(entry.object, "stuck", utc_text(entry.overdue_since), "", "") for entry in healing.stuck]
    rows += [
        (entry.object, entry.how, utc_text(entry.at), entry.state or "", entry.reason or "") for entry in healing.healed
    ]
    table = filled_table(("object", "what", "when", "state", "why"), rows)
    return Group(table if rows else "Nothing is stuck, and nothing had to be healed.", *_orphan_tables(healing.orphans))
