"""The types of resources that come with Stateward, each as a function of the process that it lives in."""

from stateward.domains.leases.resources.host_resources import PhysicalHosts, VirtualInstances
from stateward.domains.leases.resources.leased_mcis import LeasedMcis
from stateward.plugin.runtime import ProcessContext


def physical_hosts(_: ProcessContext) -> PhysicalHosts:
    """Create the type of whole hosts."""
    return PhysicalHosts()


def virtual_instances(_: ProcessContext) -> VirtualInstances:
    """Create the type of room on shared hosts."""
    return VirtualInstances()


def leased_mcis(context: ProcessContext) -> LeasedMcis:
    """Create the type of MCIs, which the mci domain creates and removes."""
    return LeasedMcis(context.templates)
