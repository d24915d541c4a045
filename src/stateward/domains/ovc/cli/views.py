"""What the ovc domain answers with, as records, and how it looks on a terminal."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from rich.table import Table

from stateward.client.tables import age_text, error_text, filled_table, state_text, utc_text

if TYPE_CHECKING:
    from stateward.client.session import Session


class Stay(Struct, frozen=True):
    """A stay in the recycle bin."""

    since: datetime
    along: str | None = None


class Report(Struct, frozen=True):
    """What became of a node's VMs."""

    action: str
    done: list[str] = []
    failed: dict[str, str] = {}


class Stranger(Struct, frozen=True):
    """Something that no object owns."""

    node: str
    what: str
    name: str
    since: datetime


class Item(Struct, frozen=True, kw_only=True):
    """An object of any kind."""

    id: str
    kind: str
    name: str
    state: str
    since: datetime
    parent: str | None = None
    operation: str | None = None
    error: str | None = None
    spec: dict[str, Any] = {}
    bin: Stay | None = None
    disks: list[str] | None = None
    clones: list[str] | None = None
    vm: str | None = None
    users: int | None = None
    node: str | None = None
    firewall: str | None = None
    away: list[str] | None = None
    report: Report | None = None
    looked: datetime | None = None
    trouble: str | None = None
    strangers: list[Stranger] | None = None


class Asked(Struct, frozen=True):
    """What was accepted."""

    object: Item
    operation: str | None
    status: str
    again: bool = False


class Standing(Struct, frozen=True):
    """An operation in a queue."""

    id: str
    object: str
    action: str
    actor: str
    who: str
    status: str
    hidden: bool
    created: datetime


class Queue(Struct, frozen=True):
    """An object's queue."""

    object: str
    exists: bool
    stopping: bool
    operations: list[Standing]


class Stuck(Struct, frozen=True):
    """Something that the healer is about to settle."""

    object: str
    operation: str
    overdue_since: datetime


class Healed(Struct, frozen=True):
    """Something that was settled."""

    object: str
    kind: str
    at: datetime
    how: str
    operation: str | None = None
    began: datetime | None = None
    state: str | None = None
    reason: str | None = None


class Healing(Struct, frozen=True, omit_defaults=True):
    """What is stuck, what was settled, and what belongs to nobody."""

    stuck: list[Stuck]
    healed: list[Healed]
    strangers: list[Stranger] | None = None


TITLES = ("id", "name", "state", "since", "parent", "more", "error")


def item_table(session: "Session", items: Sequence[Item]) -> Table:
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


def _more(one: Item) -> str:
    told = [
        f"firewall {one.firewall}" if one.firewall else "",
        f"on {one.node}" if one.node else "",
        f"{len(one.disks)} disks" if one.disks else "",
        f"of {one.vm}" if one.vm else "",
        f"{one.users} users" if one.users else "",
        f"{len(one.away)} VMs away" if one.away else "",
        one.trouble or "",
        f"{len(one.strangers)} strangers" if one.strangers else "",
        f"in the bin with {one.bin.along}" if one.bin is not None and one.bin.along else "",
    ]
    return ", ".join(filter(None, told))


def report_table(report: Report) -> Table:
    """Return a node's report as a table."""
    rows = [(vm, "done", "") for vm in report.done]
    rows += [(vm, "failed", why) for vm, why in report.failed.items()]
    return filled_table((f"{report.action} of", "result", "why"), rows)


def queue_table(queue: Queue) -> Table:
    """Return a queue as a table, in its order."""
    return filled_table(
        ("operation", "object", "action", "by", "status", "shown"),
        (
            (one.id, one.object, one.action, one.actor, one.status, "hidden" if one.hidden else "")
            for one in queue.operations
        ),
    )


def stranger_table(strangers: Sequence[Stranger]) -> Table:
    """Return what belongs to nobody as a table."""
    rows = [(one.what, one.name, one.node, utc_text(one.since)) for one in strangers]
    return filled_table(("stranger", "name", "seen at", "since"), rows)


def healing_table(healing: Healing) -> Table:
    """Return what is stuck and what was settled as a table."""
    rows = [(one.object, "stuck", utc_text(one.overdue_since), "", "") for one in healing.stuck]
    rows += [(one.object, one.how, utc_text(one.at), one.state or "", one.reason or "") for one in healing.healed]
    return filled_table(("object", "what", "when", "state", "why"), rows)
