"""Resources that are made of hosts: whole hosts (`physical:host`) and shares of hosts (`virtual:instance`)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from stateward.domains.leases import property_expressions
from stateward.domains.leases.bookings import Demand
from stateward.domains.leases.model import ReservationSpec, Share
from stateward.domains.leases.resources.port import ReservationTask, read_count, read_text
from stateward.domains.leases.wire_values import MAX_SIZE
from stateward.engine import Request
from stateward.errors import BadInput

PROPERTIES = ("hypervisor_properties", "resource_properties")


class HostResource:
    """The steps that all resources on hosts have in common: hosts are handed over, and taken back."""

    whole: ClassVar[bool]
    """Whether a reservation has its hosts to itself."""

    async def check(self, ns: str, spec: ReservationSpec) -> None:
        """Accept everything: the allocation decides whether there are hosts."""

    async def start_requests(self, task: ReservationTask) -> Sequence[Request]:  # noqa: ARG002 - others need it
        """Return nothing: no other object is involved."""
        return ()

    async def start(self, task: ReservationTask) -> None:
        """Hand the hosts over, as soon as the previous reservation has given them back."""
        await task.bookings.hand_over(task.job, task.spec.id, task.seen.hosts, whole=self.whole)

    async def end_requests(self, task: ReservationTask) -> Sequence[Request]:  # noqa: ARG002
        """Return nothing: no other object is involved."""
        return ()

    async def end(self, task: ReservationTask) -> None:
        """Take the hosts back."""
        await task.bookings.take_back(task.job, task.spec.id, task.seen.booked)


class PhysicalHosts(HostResource):
    """`physical:host`: whole hosts, chosen by their properties."""

    name = "physical:host"
    whole = True

    def read_details(self, given: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
        """Read how many hosts are wanted, and which properties they must have."""
        least = read_count("min", given, before, 1)
        most = read_count("max", given, before, 1)
        if most < least:
            raise BadInput("max", most, f"at least {least}, the minimum")
        return {"min": least, "max": most} | read_properties(given, before)

    def demand(self, details: Mapping[str, Any]) -> Demand:
        """Return a demand for whole hosts."""
        return Demand(details["min"], details["max"], properties=wanted_properties(details))


def read_properties(given: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, str]:
    """Read the expressions by which hosts are chosen."""
    expressions = {field: read_text(field, given, before) for field in PROPERTIES}
    for field, expression in expressions.items():
        property_expressions.parse_expression(field, expression)
    return expressions


def wanted_properties(details: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the expressions that a host must match."""
    return tuple(details[field] for field in PROPERTIES if details.get(field))


AFFINITIES = {"true": True, "1": True, "false": False, "0": False, "none": None, "": None}


class VirtualInstances(HostResource):
    """`virtual:instance`: instances of one size, on hosts that several leases may share."""

    name = "virtual:instance"
    whole = False

    def read_details(self, given: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
        """Read the size and the number of the instances."""
        size = {field: read_count(field, given, before, 0, MAX_SIZE) for field in ("vcpus", "memory_mb", "disk_gb")}
        if not any(size.values()):
            raise BadInput("vcpus", 0, "more than 0 where memory_mb and disk_gb are 0")
        amount = read_count("amount", given, before, 1)
        value = given.get("affinity", (before or {}).get("affinity"))
        word = "none" if value is None else str(value).lower()
        if word not in AFFINITIES:
            raise BadInput("affinity", value, "true, false or none")
        return {**size, "amount": amount, "affinity": AFFINITIES[word]} | read_properties(given, before)

    def demand(self, details: Mapping[str, Any]) -> Demand:
        """Return a demand for shares: all on one host, all on different hosts, or on any."""
        share, affinity = Share(details["vcpus"], details["memory_mb"], details["disk_gb"]), details["affinity"]
        return Demand(
            details["amount"],
            details["amount"],
            share,
            wanted_properties(details),
            anti_affinity=affinity is False,
            affinity=affinity is True,
        )
