"""Machines in the test cloud, and how boto3 describes them."""

from typing import Any

from tests.integration.drivers.aws.moto_cloud import SPEC
from tests.integration.drivers.aws.moto_images import IMAGE
from tests.integration.drivers.cloud_machines import CloudMachines

MACHINES = CloudMachines(SPEC, IMAGE)
new_machine_specs, create_machines, wait_for_state = MACHINES.new_specs, MACHINES.create, MACHINES.wait_for_state


def describe_machines(ec2: Any, *states: str) -> list[dict[str, Any]]:
    """Return all instances that boto3 lists, or those in some states."""
    pages = ec2.get_paginator("describe_instances").paginate()
    found = [one for page in pages for each in page["Reservations"] for one in each["Instances"]]
    return [one for one in found if not states or one["State"]["Name"] in states]
