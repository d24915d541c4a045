"""The test cloud itself, seen by Google's library without the driver."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from google.api_core.client_options import ClientOptions
from google.api_core.exceptions import BadRequest, Conflict, NotFound
from google.auth.credentials import AnonymousCredentials

from tests.integration.drivers.gcp.gce_cloud import GceCloud
from tests.integration.drivers.gcp.gce_world import IMAGE, PROJECT, SPEC, ZONE

PLACE = {"project": PROJECT, "zone": ZONE}
DISK = {"boot": True, "initialize_params": {"source_image": f"projects/{PROJECT}/global/images/{IMAGE}"}}


@pytest.fixture
def clients(cloud: GceCloud) -> Iterator[tuple[Any, Any]]:
    """Give a test clients that are not the driver's: of instances, and of operations."""
    from google.cloud import compute_v1

    how = {"credentials": AnonymousCredentials(), "client_options": ClientOptions(api_endpoint=cloud.url)}
    made = compute_v1.InstancesClient(**how), compute_v1.ZoneOperationsClient(**how)
    yield made
    for one in made:
        one.transport.close()


def insert(instances: Any, name: str, **more: str) -> Any:
    machine_type = f"zones/{ZONE}/machineTypes/{SPEC}"
    body = {"name": name, "machine_type": machine_type, "disks": [DISK], "network_interfaces": [{}]}
    return instances.insert_unary(request={**PLACE, "instance_resource": body, **more}, retry=None)


def test_an_operation_takes_time_and_an_instance_goes_through_its_states(
    clients: tuple[Any, Any], cloud: GceCloud
) -> None:
    instances, operations = clients
    cloud.behaviour.step, now = 1.0, [0.0]
    cloud.world.clock = lambda: now[0]
    operation = insert(instances, "m1")
    seen = []
    for now[0] in (0.0, 1.0, 2.0):
        status = operations.get(**PLACE, operation=operation.name, retry=None).status.name
        seen.append((instances.get(**PLACE, instance="m1", retry=None).status, status))
    assert seen == [("PROVISIONING", "PENDING"), ("STAGING", "PENDING"), ("RUNNING", "DONE")]


def test_a_request_id_has_one_effect_and_a_name_is_given_once(clients: tuple[Any, Any], cloud: GceCloud) -> None:
    instances, _ = clients
    request_id = str(uuid4())
    first, again = (insert(instances, "m1", request_id=request_id) for _ in range(2))
    assert first.name == again.name
    with pytest.raises(Conflict):
        insert(instances, "m1", request_id=str(uuid4()))
    with pytest.raises(BadRequest):
        insert(instances, "m2", request_id="no uuid")
    assert len(cloud.world.instances) == 1


def test_a_listing_is_late_and_a_get_is_not(clients: tuple[Any, Any], cloud: GceCloud) -> None:
    instances, _ = clients
    cloud.behaviour.lag = 3600.0
    insert(instances, "m1")
    assert instances.get(**PLACE, instance="m1", retry=None).name == "m1"
    assert list(instances.list(**PLACE, retry=None)) == []


def test_a_filter_that_is_not_known_is_an_error(clients: tuple[Any, Any]) -> None:
    with pytest.raises(BadRequest):
        clients[0].list(request={**PLACE, "filter": "labels.a = b AND x"}, retry=None)


def test_what_is_not_there_is_not_found(clients: tuple[Any, Any]) -> None:
    with pytest.raises(NotFound):
        clients[0].get(**PLACE, instance="nobody", retry=None)
