"""What can be reserved: each type of resource is a plug-in behind one interface."""

from stateward.domains.leases.resources.host_resources import Instances, PhysicalHosts
from stateward.domains.leases.resources.leased_mcis import Mcis
from stateward.domains.leases.resources.port import Books, Resource, Resources, Task

__all__ = ["Books", "Instances", "Mcis", "PhysicalHosts", "Resource", "Resources", "Task"]
