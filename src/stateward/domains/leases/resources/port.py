"""The plug-in interface of a type of resource: what the domain calls when a lease is created, starts and ends.

A plug-in reads the details of a reservation, returns its demand for hosts (if it is made of hosts), hands the resources
over and takes them back. Both calls may be repeated after a crash or an unclear answer, so they must be idempotent.
Their errors are the engine's policies: Temporary is tried again, Permanent is not.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from stateward.domains.leases.bookings import Demand
from stateward.domains.leases.model import Lease, ReservationSeen, ReservationSpec
from stateward.domains.leases.wire_values import MAX_COUNT, read_whole_number
from stateward.engine import Engine, Job, Request, Temporary
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput, UnknownName
from stateward.plugin.entry_points import PluginFault, load_group
from stateward.plugin.runtime import ProcessContext
from stateward.store.records import Object

GROUP = "stateward.lease_resources"
METHODS = ("read_details", "demand", "check", "start_requests", "start", "end_requests", "end")


class HostBookings(Protocol):
    """The part of the booking writer that plug-ins may use."""

    async def hand_over(self, job: Job, reservation: str, hosts: Iterable[str], *, whole: bool) -> None:
        """Hand hosts over to a reservation; raises Temporary while another reservation holds one of them."""

    async def take_back(self, job: Job, reservation: str, hosts: Iterable[str]) -> None:
        """Take hosts back from a reservation."""


class ReservationTask(Struct, frozen=True):
    """A step of a job for one reservation of its lease."""

    engine: Engine
    bookings: HostBookings
    job: Job
    lease: Lease
    spec: ReservationSpec
    seen: ReservationSeen


class ResourcePlugin(Protocol):
    """A type of resource that can be reserved."""

    name: str

    def read_details(self, given: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
        """Read the details of a new reservation, or of an update (`before`: the details so far); raises BadInput.

        The details have every field that the plug-in reads; fields of a client that are not among them are refused.
        """

    def demand(self, details: Mapping[str, Any]) -> Demand | None:
        """Return a reservation's demand for hosts; None if it needs no hosts."""

    async def check(self, ns: str, spec: ReservationSpec) -> None:
        """Raise BadInput for a new reservation that a namespace cannot provide; called before the lease is accepted."""

    async def start_requests(self, task: ReservationTask) -> Sequence[Request]:
        """Return requests for other objects that must end before `start`; called again when they have ended."""

    async def start(self, task: ReservationTask) -> None:
        """Hand the resources over to the reservation."""

    async def end_requests(self, task: ReservationTask) -> Sequence[Request]:
        """Return requests for other objects that must end before `end`; called again when they have ended."""

    async def end(self, task: ReservationTask) -> None:
        """Take the resources back, also if only part of them was handed over."""


@runtime_checkable
class RemovesObjects(Protocol):
    """A type of resource whose end removes objects, which can be protected; a plug-in may have this method."""

    async def removed_objects(self, uow: UnitOfWork, lease: Object, spec: ReservationSpec) -> Sequence[Object]:
        """Return the objects that the end of a reservation removes."""


class ResourcePlugins:
    """The plug-ins of all types of resources, by name, and the faults of those that cannot be used."""

    def __init__(self, resources: Iterable[ResourcePlugin], faults: Iterable[PluginFault] = ()) -> None:
        self._resources = {resource.name: resource for resource in resources}
        self._faults = "".join(f"; {fault}" for fault in faults)

    def __getitem__(self, name: str) -> ResourcePlugin:
        try:
            return self._resources[name]
        except KeyError:
            if self._faults:
                raise Temporary(f"the type of resource {name!r} cannot be used here{self._faults}") from None
            raise UnknownName("resource_type", name, self._resources) from None

    @property
    def names(self) -> list[str]:
        """The names of all types."""
        return sorted(self._resources)

    def get_by_name(self, name: object) -> ResourcePlugin:
        """Return the plug-in that a client names; raises BadInput."""
        if not isinstance(name, str) or name not in self._resources:
            raise BadInput("resource_type", name, f"one of {', '.join(sorted(self._resources))}{self._faults}")
        return self._resources[name]


def installed_resources(context: ProcessContext, more: Iterable[ResourcePlugin] = ()) -> ResourcePlugins:
    """Return the types of resources that installed packages declare, and further ones.

    Each is declared by an entry point, whose value is a function of the process that returns the plug-in.
    """
    group = load_group(GROUP, lambda create: _checked(create(context)), context.parts.get(GROUP, ()))
    return ResourcePlugins([*group.usable.values(), *more], group.faults.values())


def _checked(resource: Any) -> ResourcePlugin:  # noqa: ANN401 - whatever a package creates
    lacking = [name for name in METHODS if not callable(getattr(resource, name, None))]
    if lacking or not isinstance(getattr(resource, "name", None), str):
        raise BadInput("resource", type(resource).__name__, f"a ResourcePlugin, with {', '.join(lacking) or 'a name'}")
    plugin: ResourcePlugin = resource
    return plugin


def read_count(
    field: str, given: Mapping[str, Any], before: Mapping[str, Any] | None, least: int, most: int = MAX_COUNT
) -> int:
    """Read a whole number; a missing one keeps the value of `before`."""
    return read_whole_number(field, given.get(field, (before or {}).get(field)), least, most)


def read_text(field: str, given: Mapping[str, Any], before: Mapping[str, Any] | None, default: str = "") -> str:
    """Read a text; a missing one keeps the value of `before`, or is the default."""
    value = given.get(field, (before or {}).get(field, default))
    if value is None:
        return default
    if not isinstance(value, str):
        raise BadInput(field, value, "a text")
    return value
