"""The test cloud itself, asked by Azure's own client alone, with its own polling."""

from typing import TYPE_CHECKING, Any

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError

from stateward.drivers.azure import AzureDriver
from stateward.drivers.azure.names import arm_name
from tests.integration.drivers.azure.arm_cloud import GROUP, ArmCloud
from tests.integration.drivers.azure.azure_machines import create_machines

if TYPE_CHECKING:
    from azure.mgmt.compute.aio import ComputeManagementClient


async def body_of(compute: "ComputeManagementClient", name: str) -> Any:
    return dict(await compute.virtual_machines.get(GROUP, name))


async def test_the_library_follows_an_operation_to_its_end(
    driver: AzureDriver, cloud: ArmCloud, compute: "ComputeManagementClient"
) -> None:
    (handle,) = await create_machines(driver, 1)
    cloud.behaviour.retry_after = 0
    name = arm_name(handle.key)
    await (await compute.virtual_machines.begin_deallocate(GROUP, name, polling_interval=0)).result()
    shown = await compute.virtual_machines.get(GROUP, name, expand="instanceView")
    codes = [one["code"] for one in shown["properties"]["instanceView"]["statuses"]]
    assert codes == ["ProvisioningState/succeeded", "PowerState/deallocated"]


async def test_an_operation_that_fails_tells_the_library_its_code(
    driver: AzureDriver, cloud: ArmCloud, compute: "ComputeManagementClient"
) -> None:
    (handle,) = await create_machines(driver, 1)
    cloud.behaviour.retry_after = 0
    cloud.records.failures["start"] = ("AllocationFailed", "no room")
    poller = await compute.virtual_machines.begin_start(GROUP, arm_name(handle.key), polling_interval=0)
    with pytest.raises(HttpResponseError) as caught:
        await poller.result()
    assert getattr(caught.value.error, "code", "") == "AllocationFailed"


async def test_a_put_that_may_only_create_changes_nothing_that_exists(
    driver: AzureDriver, compute: "ComputeManagementClient"
) -> None:
    (handle,) = await create_machines(driver, 1)
    name = arm_name(handle.key)
    with pytest.raises(ResourceExistsError) as caught:
        await compute.virtual_machines.begin_create_or_update(
            GROUP, name, await body_of(compute, name), etag="*", match_condition=MatchConditions.IfMissing
        )
    assert caught.value.status_code == 412


async def test_a_put_of_something_that_exists_changes_it(
    driver: AzureDriver, compute: "ComputeManagementClient"
) -> None:
    (handle,) = await create_machines(driver, 1)
    name = arm_name(handle.key)
    body: Any = {**await body_of(compute, name), "tags": {"changed": "yes"}}
    await compute.virtual_machines.begin_create_or_update(GROUP, name, body, polling=False)
    assert (await body_of(compute, name))["tags"] == {"changed": "yes"}


async def test_a_listing_has_pages_and_the_group_in_capitals(
    driver: AzureDriver, cloud: ArmCloud, compute: "ComputeManagementClient"
) -> None:
    await create_machines(driver, 3)
    cloud.behaviour.page = 2
    ids = [str(one["id"]) async for one in compute.virtual_machines.list(GROUP)]
    assert len(ids) == 3
    assert all(f"/resourceGroups/{GROUP.upper()}/" in one for one in ids)
    assert cloud.calls["LIST virtualMachines"] >= 2


async def test_a_restart_of_a_machine_that_is_off_is_refused(
    driver: AzureDriver, cloud: ArmCloud, compute: "ComputeManagementClient"
) -> None:
    (handle,) = await create_machines(driver, 1)
    cloud.records.of("virtualMachines")[arm_name(handle.key)].power = "deallocated"
    with pytest.raises(ResourceExistsError) as caught:
        await compute.virtual_machines.begin_restart(GROUP, arm_name(handle.key))
    assert caught.value.status_code == 409


async def test_what_is_not_there_is_not_found(cloud: ArmCloud, compute: "ComputeManagementClient") -> None:
    with pytest.raises(ResourceNotFoundError):
        await compute.virtual_machines.get(GROUP, "none")
    with pytest.raises(ResourceNotFoundError):
        await compute.virtual_machines.get("elsewhere", "none")


async def test_who_asks_too_often_is_told_so(cloud: ArmCloud, compute: "ComputeManagementClient") -> None:
    cloud.behaviour.calls = 0
    with pytest.raises(HttpResponseError) as caught:
        await compute.virtual_machines.get(GROUP, "any")
    assert caught.value.status_code == 429
