"""Machines in the test cloud."""

from tests.integration.drivers.cloud_machines import CloudMachines
from tests.integration.drivers.gcp.gce_world import IMAGE, SPEC

MACHINES = CloudMachines(SPEC, IMAGE, name="Machine ")
new_machine_specs, create_machines = MACHINES.new_specs, MACHINES.create
wait_for_state, wait_until_gone = MACHINES.wait_for_state, MACHINES.wait_until_gone
