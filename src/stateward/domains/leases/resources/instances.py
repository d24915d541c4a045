"""`virtual:instance`: room for so many instances of one size, on hosts that several leases may share."""

from collections.abc import Mapping, Sequence
from typing import Any

from stateward.domains.leases.demand import Demand
from stateward.domains.leases.model import ReservationSpec, Share
from stateward.domains.leases.numbers import MOST_SIZE
from stateward.domains.leases.resources.hosts import read_properties, wanted_properties
from stateward.domains.leases.resources.port import Task, whole_number
from stateward.engine import Request
from stateward.errors import BadInput

AFFINITIES = {"true": True, "1": True, "false": False, "0": False, "none": None, "": None}


class Instances:
    """Shares of hosts."""

    name = "virtual:instance"

    def read(self, given: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
        """Read how large the instances are, and how many of them there are to be."""
        size = {field: whole_number(field, given, before, 0, MOST_SIZE) for field in ("vcpus", "memory_mb", "disk_gb")}
        if not any(size.values()):
            raise BadInput("vcpus", 0, "more than nothing, where memory_mb and disk_gb are nothing")
        amount = whole_number("amount", given, before, 1)
        return {**size, "amount": amount, "affinity": _affinity(given, before)} | read_properties(given, before)

    def demand(self, details: Mapping[str, Any]) -> Demand:
        """Ask for shares: all on one host, all on different ones, or anyhow."""
        share, affinity = Share(details["vcpus"], details["memory_mb"], details["disk_gb"]), details["affinity"]
        return Demand(
            details["amount"],
            details["amount"],
            share,
            wanted_properties(details),
            apart=affinity is False,
            together=affinity is True,
        )

    async def check(self, ns: str, spec: ReservationSpec) -> None:
        """Refuse nothing: whether hosts can be had is for the search to say."""

    async def starts_with(self, task: Task) -> Sequence[Request]:  # noqa: ARG002 - others need it
        """Wait for nobody."""
        return ()

    async def start(self, task: Task) -> None:
        """Open the hosts to the instances."""
        await task.books.hold(task.job, task.spec.id, task.seen.hosts, whole=False)

    async def ends_with(self, task: Task) -> Sequence[Request]:  # noqa: ARG002
        """Wait for nobody."""
        return ()

    async def end(self, task: Task) -> None:
        """Close the hosts to the instances."""
        await task.books.free(task.job, task.spec.id, task.seen.booked)


def _affinity(given: Mapping[str, Any], before: Mapping[str, Any] | None) -> bool | None:
    value = given.get("affinity", (before or {}).get("affinity"))
    word = "none" if value is None else str(value).lower()
    if word not in AFFINITIES:
        raise BadInput("affinity", value, "true, false or none")
    return AFFINITIES[word]
