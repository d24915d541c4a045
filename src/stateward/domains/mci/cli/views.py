"""MCIs, reviews, connections and orphans as tables on a terminal."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stateward.client.formatting import CLASS_COLOURS, error_text, facts_table, filled_table
from stateward.client.output import clean
from stateward.domains.mci.cli import tumblebug_calls
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


def mci_view(mci: tumblebug_calls.Mci, few: float = FEW) -> RenderableType:
    """Return an MCI with its VMs; if they are more than a few, their counts by subgroup."""
    head = facts_table(
        [
            ("MCI", mci.id),
            ("status", status_text(mci.status)),
            (
                "action",
                "" if mci.target_action == tumblebug_calls.NONE else f"{mci.target_action}, to {mci.target_status}",
            ),
            ("labels", " ".join(f"{name}={value}" for name, value in sorted(mci.label.items()))),
            ("messages", error_text("\n".join(mci.system_message))),
        ]
    )
    if not mci.vm:
        return head
    vms = _vm_table(mci.vm) if len(mci.vm) <= few else _group_table(mci.vm)
    return Group(head, Text(), vms)


def _vm_table(vms: Iterable[tumblebug_calls.Vm]) -> Table:
    titles = ("vm", "status", "at the provider", "place", "public IP", "private IP", "why")
    return filled_table(
        titles,
        (
            (
                vm.id,
                status_text(vm.status),
                vm.native_status,
                vm.location.display,
                vm.public_ip,
                vm.private_ip,
                error_text(vm.system_message),
            )
            for vm in vms
        ),
    )


def _group_table(vms: Iterable[tumblebug_calls.Vm]) -> Table:
    counts: dict[tuple[str, str], Counter[str]] = {}
    for vm in vms:
        counts.setdefault((vm.sub_group_id, vm.location.display), Counter())[vm.status] += 1
    rows = ((*place, str(statuses.total()), _counted(statuses)) for place, statuses in sorted(counts.items()))
    return filled_table(("subgroup", "place", "VMs", "states"), rows)


def _counted(states: Mapping[str, int]) -> Text:
    parts = [status_text(state).append(f" {number}") for state, number in sorted(states.items())]
    return Text("  ").join(parts)


def mci_table(mcis: Iterable[tumblebug_calls.Mci]) -> Table:
    """Return MCIs as a table."""
    rows = (
        (
            mci.id,
            status_text(mci.status),
            str(mci.status_count.get("countTotal", "")),
            "" if mci.target_action == tumblebug_calls.NONE else mci.target_action,
            " ".join(f"{name}={value}" for name, value in sorted(mci.label.items())),
        )
        for mci in mcis
    )
    return filled_table(("mci", "status", "VMs", "action", "labels"), rows)


def review_view(review: tumblebug_calls.Review) -> RenderableType:
    """Return a review: the subgroups, and the result."""
    titles = ("group", "VMs", "connection", "can be made", "cost", "why")
    table = filled_table(titles, (_review_row(group) for group in review.vm_reviews))
    style = "green" if review.creation_viable else "red"
    total = Text(clean(f"{review.mci_name}: {review.overall_message} ({review.estimated_cost})"), style=style)
    return Group(table, Text(), total, *(Text(clean(recommendation)) for recommendation in review.recommendations))


def _review_row(group: tumblebug_calls.GroupReview) -> tuple[str | Text, ...]:
    can = Text("yes", style="green") if group.can_create else Text("no", style="red")
    why = "; ".join([*group.errors, *group.warnings]) or ("" if group.can_create else group.message)
    return group.vm_name, str(group.sub_group_size), group.connection_name, can, group.estimated_cost, error_text(why)


def connection_table(connections: Iterable[tumblebug_calls.Connection]) -> Table:
    """Return connections as a table."""
    rows = (
        (
            connection.name,
            connection.provider,
            connection.region,
            connection.zone,
            connection.driver,
            connection.credential,
            " ".join(f"{name}={value}" for name, value in sorted(connection.options.items())),
            # None: only administrators know
            "" if connection.namespaces is None else " ".join(connection.namespaces) or "(none)",
        )
        for connection in connections
    )
    titles = ("connection", "provider", "region", "zone", "driver", "credential", "options", "granted to")
    return filled_table(titles, rows)


def orphan_view(listing: tumblebug_calls.OrphanListing, *, terminated: bool = False) -> RenderableType:
    """Return orphans as a table, and the connections that could not be listed; a termination shows the first ones."""
    listed = listing.orphans[:FEW] if terminated else listing.orphans
    rows = ((orphan.connection, orphan.key, orphan.native_id, orphan.state, orphan.name) for orphan in listed)
    titles = ("connection", "key", "at the provider", "state", "name")
    seen = filled_table(titles, rows) if listing.orphans else Text("No machine is seen that no record knows.")
    blind = (error_text(f"{name} cannot be seen: {why}") for name, why in listing.trouble.items())
    left = [error_text(f"{key} could not be terminated: {why}") for key, why in islice(listing.left.items(), FEWER)]
    if len(listing.left) > FEWER:
        left.append(error_text(f"{len(listing.left) - FEWER} more could not be terminated; --json names each."))
    return Group(seen, *left, *blind, *([_terminated(listing)] if terminated else []))


def unmarked_view(listing: tumblebug_calls.UnmarkedListing) -> RenderableType:
    """Return the machines that can be adopted as a table."""
    rows = (
        (machine.native_id, machine.state, machine.name, machine.public_ip, machine.private_ip)
        for machine in listing.machines
    )
    titles = ("at the provider", "state", "name", "public", "private")
    seen = filled_table(titles, rows) if listing.machines else Text("No machine is seen that can be adopted.")
    return Group(seen, *([error_text(f"The listing is not complete: {listing.trouble}")] if listing.trouble else []))


def _terminated(listing: tumblebug_calls.OrphanListing) -> Text:
    if not listing.terminated:
        return Text("Nothing was terminated.")
    more = len(listing.orphans) - FEW
    note = f" {more} are not in the table; --json names each." if more > 0 else ""
    return Text(f"Terminated {len(listing.terminated)} of {count_text(len(listing.orphans), 'machine')}.{note}")


def skipped_table(skipped: Iterable[tumblebug_calls.PassedOverVm]) -> Table:
    """Return the VMs that an action has skipped, with the reasons."""
    return filled_table(("skipped", "why"), ((entry.vm, error_text(entry.reason)) for entry in skipped))
