"""Objects, queues, orphans and recovered work of the ovc domain as tables on a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import fields
from rich.console import Group, RenderableType
from rich.table import Table

from stateward.client.formatting import age_text, error_text, filled_table, state_text, utc_text
from stateward.domains.ovc.api.views import HealingView, ItemView, ObjectQueueView, OrphanView
from stateward.domains.ovc.model import NodeReport
from stateward.errors import count_text

if TYPE_CHECKING:
    from stateward.client.session import Session

TITLES = ("id", "name", "state", "since", "parent", "more", "error")


def full_record(item: ItemView) -> dict[str, Any]:
    """Return an object as `--json` prints it: with every field, also those that the API leaves out, but `created`."""
    return {one.encode_name: getattr(item, one.name) for one in fields(item) if one.name != "created"}


def item_table(session: "Session", items: Sequence[ItemView]) -> Table:
    """Return objects as a table."""
    return filled_table(
        TITLES,
        (
            (
                one.id,
                one.name,
                state_text(session.state_class, f"ovc.{one.kind}", one.state),
                age_text(one.since),
                one.parent or "",
                _more(one),
                error_text(one.error),
            )
            for one in items
        ),
    )


def _more(one: ItemView) -> str:
    remarks = [
        f"firewall {one.firewall}" if one.firewall else "",
        f"on {one.node}" if one.node else "",
        count_text(len(one.disks), "disk") if one.disks else "",
        f"of {one.vm}" if one.vm else "",
        count_text(one.users, "user") if one.users else "",
        f"{count_text(len(one.away), 'VM')} away" if one.away else "",
        one.trouble or "",
        count_text(len(one.orphans), "orphan") if one.orphans else "",
        f"in the bin with {one.bin.along}" if one.bin is not None and one.bin.along else "",
    ]
    return ", ".join(filter(None, remarks))


def item_details(session: "Session", item: ItemView) -> RenderableType:
    """Return an object in full: with the report and the orphans of a node."""
    parts: list[Table] = [item_table(session, [item])]
    if item.report is not None:
        parts.append(_report_table(item.report))
    return Group(*parts, *_orphan_tables(item.orphans))


def _report_table(report: NodeReport) -> Table:
    rows = [(vm, "done", "") for vm in report.done]
    rows += [(vm, "failed", why) for vm, why in report.failed.items()]
    return filled_table((f"{report.action} of", "result", "why"), rows)


def queue_table(queue: ObjectQueueView) -> Table:
    """Return a queue as a table, in its order."""
    return filled_table(
        ("operation", "object", "action", "by", "status", "shown"),
        (
            (one.id, one.object, one.action, one.actor, one.status, "hidden" if one.hidden else "")
            for one in queue.operations
        ),
    )


def _orphan_tables(orphans: Sequence[OrphanView] | None) -> list[Table]:
    """Return the orphans as a table; none without orphans."""
    rows = [(one.what, one.name, one.node, utc_text(one.since)) for one in orphans or ()]
    return [filled_table(("orphan", "name", "seen at", "since"), rows)] if rows else []


def healing_view(healing: HealingView) -> RenderableType:
    """Return stuck and recovered work, and orphans."""
    rows = [(one.object, "stuck", utc_text(one.overdue_since), "", "") for one in healing.stuck]
    rows += [(one.object, one.how, utc_text(one.at), one.state or "", one.reason or "") for one in healing.healed]
    table = filled_table(("object", "what", "when", "state", "why"), rows)
    return Group(table if rows else "Nothing is stuck, and nothing had to be healed.", *_orphan_tables(healing.orphans))
