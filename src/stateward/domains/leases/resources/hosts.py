"""`physical:host`: whole hosts, chosen by their properties."""

from collections.abc import Mapping, Sequence
from typing import Any

from stateward.domains.leases import properties
from stateward.domains.leases.demand import Demand
from stateward.domains.leases.model import ReservationSpec
from stateward.domains.leases.resources.port import Task, text, whole_number
from stateward.engine import Request
from stateward.errors import BadInput

PROPERTIES = ("hypervisor_properties", "resource_properties")


class PhysicalHosts:
    """Hosts that one lease has to itself."""

    name = "physical:host"

    def read(self, given: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
        """Read how many hosts are wanted, and which will do."""
        least = whole_number("min", given, before, 1)
        most = whole_number("max", given, before, 1)
        if most < least:
            raise BadInput("max", most, f"at least min, {least}")
        return {"min": least, "max": most} | read_properties(given, before)

    def demand(self, details: Mapping[str, Any]) -> Demand:
        """Ask for whole hosts."""
        return Demand(details["min"], details["max"], properties=wanted_properties(details))

    async def check(self, ns: str, spec: ReservationSpec) -> None:
        """Refuse nothing: whether hosts can be had is for the search to say."""

    async def starts_with(self, task: Task) -> Sequence[Request]:  # noqa: ARG002 - others need it
        """Wait for nobody."""
        return ()

    async def start(self, task: Task) -> None:
        """Hand the hosts over, as soon as whoever had them before has given them back."""
        await task.books.hold(task.job, task.spec.id, task.seen.hosts, whole=True)

    async def ends_with(self, task: Task) -> Sequence[Request]:  # noqa: ARG002
        """Wait for nobody."""
        return ()

    async def end(self, task: Task) -> None:
        """Take the hosts back."""
        await task.books.free(task.job, task.spec.id, task.seen.booked)


def read_properties(given: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, str]:
    """Read which hosts will do."""
    found = {field: text(field, given, before) for field in PROPERTIES}
    for field, expression in found.items():
        properties.read(field, expression)
    return found


def wanted_properties(details: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the expressions that a host has to satisfy."""
    return tuple(details[field] for field in PROPERTIES if details.get(field))
