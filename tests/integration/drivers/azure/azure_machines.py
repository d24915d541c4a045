"""Machines in the test cloud, and how many of their parts there are."""

from tests.integration.drivers.azure.arm_cloud import ArmCloud
from tests.integration.drivers.azure.arm_machines import IMAGE, SPEC
from tests.integration.drivers.cloud_machines import CloudMachines

KINDS = ("virtualMachines", "disks", "networkInterfaces", "publicIPAddresses")

MACHINES = CloudMachines(SPEC, IMAGE)
new_machine_specs, create_machines = MACHINES.new_specs, MACHINES.create
wait_for_state, wait_until_gone = MACHINES.wait_for_state, MACHINES.wait_until_gone


def counts(cloud: ArmCloud) -> list[int]:
    """Return how many virtual machines, disks, interfaces and public addresses there are."""
    return [len(cloud.names(kind)) for kind in KINDS]
