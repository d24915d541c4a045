"""Resource plug-ins: each type of resource that can be reserved, behind one interface."""

from stateward.domains.leases.resources.host_resources import PhysicalHosts, VirtualInstances
from stateward.domains.leases.resources.leased_mcis import LeasedMcis
from stateward.domains.leases.resources.port import (
    HostBookings,
    ReservationTask,
    ResourcePlugin,
    ResourcePlugins,
    installed_resources,
)

__all__ = [
    "HostBookings",
    "LeasedMcis",
    "PhysicalHosts",
    "ReservationTask",
    "ResourcePlugin",
    "ResourcePlugins",
    "VirtualInstances",
    "installed_resources",
]
