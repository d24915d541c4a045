"""Objects, queues, orphans and recovered work of the ovc domain as tables on a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from stateward.client.formatting import age_text, error_text, filled_table, state_text, utc_text
from stateward.domains.ovc.api.views import HealingView, ItemView, ObjectQueueView, OrphanView
from stateward.domains.ovc.model import NodeReport

if TYPE_CHECKING:
    from stateward.client.session import Session

TITLES = ("id", "name", "state", "since", "parent", "more", "error")


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
    told = [
        f"firewall {one.firewall}" if one.firewall else "",
        f"on {one.node}" if one.node else "",
        f"{len(one.disks)} disks" if one.disks else "",
        f"of {one.vm}" if one.vm else "",
        f"{one.users} users" if one.users else "",
        f"{len(one.away)} VMs away" if one.away else "",
        one.trouble or "",
        f"{len(one.orphans)} orphans" if one.orphans else "",
        f"in the bin with {one.bin.along}" if one.bin is not None and one.bin.along else "",
    ]
    return ", ".join(filter(None, told))


def report_table(report: NodeReport) -> Table:
    """Return a node's report as a table."""
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


def orphan_table(orphans: Sequence[OrphanView]) -> Table:
    """Return what belongs to nobody as a table."""
    rows = [(one.what, one.name, one.node, utc_text(one.since)) for one in orphans]
    return filled_table(("orphan", "name", "seen at", "since"), rows)


def healing_table(healing: HealingView) -> Table:
    """Return what is stuck and what was settled as a table."""
    rows = [(one.object, "stuck", utc_text(one.overdue_since), "", "") for one in healing.stuck]
    rows += [(one.object, one.how, utc_text(one.at), one.state or "", one.reason or "") for one in healing.healed]
    return filled_table(("object", "what", "when", "state", "why"), rows)
