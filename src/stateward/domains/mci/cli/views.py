"""MCIs, reviews, connections and orphans as tables on a terminal."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stateward.client.formatting import CLASS_COLOURS, error_text, facts_table, filled_table
from stateward.client.output import clean
from stateward.domains.mci.cli.tumblebug_calls import (
    NONE,
    Connection,
    GroupReview,
    Mci,
    OrphanListing,
    PassedOverVm,
    Review,
    UnmarkedListing,
    Vm,
)
from stateward.errors import count_text

FEW, FEWER = 60, 12
"""How many VMs are shown one by one: by `status`, and after an action. More VMs are counted by subgroup."""

STABLE = frozenset({"Running", "Suspended", "Empty"})
ENDED = frozenset({"Terminated"})
BAD = frozenset({"Failed", "Undefined", "Error"})


def state_of(status: str) -> str:
    """Return the state in a status string, such as Running in `Partial-Running:3 (R:3/5)`."""
    return status.partition(":")[0].removeprefix("Partial-")


def status_text(status: str) -> Text:
    """Return a status in the colour of its state."""
    state = state_of(status)
    if state in BAD:
        return Text(clean(status), style="red")
    sort = "stable" if state in STABLE else "final" if state in ENDED else "transitional"
    return Text(clean(status), style=CLASS_COLOURS[sort])


def mci_view(mci: Mci, few: float = FEW) -> RenderableType:
    """Return an MCI with its VMs; if they are more than a few, their counts by subgroup."""
    head = facts_table(
        [
            ("MCI", mci.id),
            ("status", status_text(mci.status)),
            ("action", "" if mci.target_action == NONE else f"{mci.target_action}, to {mci.target_status}"),
            ("labels", " ".join(f"{name}={value}" for name, value in sorted(mci.label.items()))),
            ("messages", error_text("\n".join(mci.system_message))),
        ]
    )
    if not mci.vm:
        return head
    vms = _vm_table(mci.vm) if len(mci.vm) <= few else _group_table(mci.vm)
    return Group(head, Text(), vms)


def _vm_table(vms: Iterable[Vm]) -> Table:
    titles = ("vm", "status", "at the provider", "place", "public IP", "private IP", "why")
    return filled_table(
        titles,
        (
            (
                one.id,
                status_text(one.status),
                one.native_status,
                one.location.display,
                one.public_ip,
                one.private_ip,
                error_text(one.system_message),
            )
            for one in vms
        ),
    )


def _group_table(vms: Iterable[Vm]) -> Table:
    counts: dict[tuple[str, str], Counter[str]] = {}
    for one in vms:
        counts.setdefault((one.sub_group_id, one.location.display), Counter())[one.status] += 1
    rows = ((*place, str(found.total()), _counted(found)) for place, found in sorted(counts.items()))
    return filled_table(("subgroup", "place", "VMs", "states"), rows)


def _counted(states: Mapping[str, int]) -> Text:
    parts = [status_text(state).append(f" {number}") for state, number in sorted(states.items())]
    return Text("  ").join(parts)


def mci_table(mcis: Iterable[Mci]) -> Table:
    """Return MCIs as a table."""
    rows = (
        (
            one.id,
            status_text(one.status),
            str(one.status_count.get("countTotal", "")),
            "" if one.target_action == NONE else one.target_action,
            " ".join(f"{name}={value}" for name, value in sorted(one.label.items())),
        )
        for one in mcis
    )
    return filled_table(("mci", "status", "VMs", "action", "labels"), rows)


def review_view(review: Review) -> RenderableType:
    """Return a review: the subgroups, and the result."""
    titles = ("group", "VMs", "connection", "can be made", "cost", "why")
    table = filled_table(titles, (_review_row(one) for one in review.vm_reviews))
    style = "green" if review.creation_viable else "red"
    total = Text(clean(f"{review.mci_name}: {review.overall_message} ({review.estimated_cost})"), style=style)
    return Group(table, Text(), total, *(Text(clean(one)) for one in review.recommendations))


def _review_row(one: GroupReview) -> tuple[str | Text, ...]:
    can = Text("yes", style="green") if one.can_create else Text("no", style="red")
    why = "; ".join([*one.errors, *one.warnings]) or ("" if one.can_create else one.message)
    return one.vm_name, str(one.sub_group_size), one.connection_name, can, one.estimated_cost, error_text(why)


def connection_table(connections: Iterable[Connection]) -> Table:
    """Return connections as a table."""
    rows = (
        (
            one.name,
            one.provider,
            one.region,
            one.zone,
            one.driver,
            one.credential,
            " ".join(f"{name}={value}" for name, value in sorted(one.options.items())),
            "" if one.namespaces is None else " ".join(one.namespaces) or "(none)",  # None: only administrators know
        )
        for one in connections
    )
    titles = ("connection", "provider", "region", "zone", "driver", "credential", "options", "granted to")
    return filled_table(titles, rows)


def orphan_view(found: OrphanListing, *, terminated: bool = False) -> RenderableType:
    """Return orphans as a table, and the connections that could not be listed; a termination shows the first ones."""
    listed = found.orphans[:FEW] if terminated else found.orphans
    rows = ((one.connection, one.key, one.native_id, one.state, one.name) for one in listed)
    titles = ("connection", "key", "at the provider", "state", "name")
    seen = filled_table(titles, rows) if found.orphans else Text("No machine is seen that no record knows.")
    blind = (error_text(f"{name} cannot be seen: {why}") for name, why in found.trouble.items())
    left = [error_text(f"{key} could not be terminated: {why}") for key, why in islice(found.left.items(), FEWER)]
    if len(found.left) > FEWER:
        left.append(error_text(f"{len(found.left) - FEWER} more could not be terminated; --json names each."))
    return Group(seen, *left, *blind, *([_terminated(found)] if terminated else []))


def unmarked_view(found: UnmarkedListing) -> RenderableType:
    """Return the machines that can be adopted as a table."""
    rows = ((one.native_id, one.state, one.name, one.public_ip, one.private_ip) for one in found.machines)
    titles = ("at the provider", "state", "name", "public", "private")
    seen = filled_table(titles, rows) if found.machines else Text("No machine is seen that can be adopted.")
    return Group(seen, *([error_text(f"The listing is not complete: {found.trouble}")] if found.trouble else []))


def _terminated(found: OrphanListing) -> Text:
    if not found.terminated:
        return Text("Nothing was terminated.")
    more = len(found.orphans) - FEW
    note = f" {more} are not in the table; --json names each." if more > 0 else ""
    return Text(f"Terminated {len(found.terminated)} of {count_text(len(found.orphans), 'machine')}.{note}")


def skipped_table(skipped: Iterable[PassedOverVm]) -> Table:
    """Return the VMs that an action has skipped, with the reasons."""
    return filled_table(("skipped", "why"), ((one.vm, error_text(one.reason)) for one in skipped))
