"""The plug-in interface: what is asked of a type of resource when a lease is made, starts and ends.

A plug-in reads what clients say about a reservation, says what that demands of the hosts (if it is made of hosts), and
hands the resources over and takes them back. Both may be asked for again, after a crash or an unclear answer, so they
are to be idempotent. Their errors are the engine's policies: Temporary is tried again, Permanent is not.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from stateward.domains.leases.bookings import Demand
from stateward.domains.leases.model import Lease, ReservationSeen, ReservationSpec
from stateward.domains.leases.wire_values import MAX_COUNT, read_whole_number
from stateward.engine import Engine, Job, Request
from stateward.errors import BadInput, UnknownName


class HostBookings(Protocol):
    """The hosts' books, as far as a plug-in may write them."""

    async def hand_over(self, job: Job, reservation: str, hosts: Iterable[str], *, whole: bool) -> None:
        """Hand hosts over to a reservation; Temporary if another still holds one of them."""

    async def take_back(self, job: Job, reservation: str, hosts: Iterable[str]) -> None:
        """Take hosts back from a reservation."""


class ReservationTask(Struct, frozen=True):
    """A reservation that something is to be done for."""

    engine: Engine
    bookings: HostBookings
    job: Job
    lease: Lease
    spec: ReservationSpec
    seen: ReservationSeen


class ResourcePlugin(Protocol):
    """A type of resource."""

    name: str

    def read_details(self, given: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
        """Read what a client says about a reservation, or about a change of one; raises BadInput."""

    def demand(self, details: Mapping[str, Any]) -> Demand | None:
        """Return what a reservation asks of the hosts, if it is made of hosts."""

    async def check(self, ns: str, spec: ReservationSpec) -> None:
        """Raise BadInput for a new reservation that could not be had in a namespace; nothing is accepted before."""

    async def start_requests(self, task: ReservationTask) -> Sequence[Request]:
        """Return what is still to be done on other objects before `start` is called; asked again when it has ended."""

    async def start(self, task: ReservationTask) -> None:
        """Hand the resources over."""

    async def end_requests(self, task: ReservationTask) -> Sequence[Request]:
        """Return what is still to be done on other objects before `end` is called; asked again when it has ended."""

    async def end(self, task: ReservationTask) -> None:
        """Take the resources back, however much of them was handed over."""


class ResourcePlugins:
    """All types of resources, by name."""

    def __init__(self, resources: Iterable[ResourcePlugin]) -> None:
        self._resources = {one.name: one for one in resources}

    def __getitem__(self, name: str) -> ResourcePlugin:
        try:
            return self._resources[name]
        except KeyError:
            raise UnknownName("resource_type", name, self._resources) from None

    @property
    def names(self) -> list[str]:
        """The names of all types."""
        return sorted(self._resources)

    def get_by_name(self, name: object) -> ResourcePlugin:
        """Return the type that a client names."""
        if not isinstance(name, str) or name not in self._resources:
            raise BadInput("resource_type", name, f"one of {', '.join(sorted(self._resources))}")
        return self._resources[name]


def read_count(
    field: str, given: Mapping[str, Any], before: Mapping[str, Any] | None, least: int, most: int = MAX_COUNT
) -> int:
    """Read a whole number; one that is not given is what it was before."""
    return read_whole_number(field, given.get(field, (before or {}).get(field)), least, most)


def read_text(field: str, given: Mapping[str, Any], before: Mapping[str, Any] | None, default: str = "") -> str:
    """Read a text; one that is not given is what it was before, or the default."""
    value = given.get(field, (before or {}).get(field, default))
    if value is None:
        return default
    if not isinstance(value, str):
        raise BadInput(field, value, "a text")
    return value
