"""Machines in the test cloud."""

from tests.integration.drivers.cloud_machines import CloudMachines
from tests.integration.drivers.gcp.gce_world import IMAGE, SPEC

_machines = CloudMachines(SPEC, IMAGE, name="Machine ")
new_machine_specs, create_machines = _machines.new_specs, _machines.create
wait_for_state, wait_until_gone = _machines.wait_for_state, _machines.wait_until_gone
