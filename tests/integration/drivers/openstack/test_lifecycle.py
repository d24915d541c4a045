"""The lifecycle of machines in a real Nova: task states, the ways to suspend, faults of the hypervisor and quotas."""

import asyncio
from base64 import b64decode
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    MachineAction,
    MachineState,
    RefusalReason,
    Suspension,
)
from stateward.drivers.openstack import OpenStackDriver
from stateward.drivers.openstack.settings import SuspendWay
from stateward.drivers.ssh_keys import new_ssh_key_pair
from stateward.errors import BadInput
from tests.integration.drivers.openstack.conftest import MakeDriver
from tests.integration.drivers.openstack.nova_server import NovaClient
from tests.integration.drivers.openstack.nova_worlds import (
    PAUSE_S,
    create_machines,
    new_machine_specs,
    wait_for_state,
    wait_until_gone,
)
from tests.waiting import until

WAYS = [
    pytest.param(SuspendWay.SUSPEND, "suspended", Suspension.NATIVE, marks=pytest.mark.long),  # as the contract does
    pytest.param(SuspendWay.PAUSE, "paused", Suspension.NATIVE, marks=pytest.mark.long),
    (SuspendWay.STOP, "stopped", Suspension.BY_STOPPING),
]


@pytest.mark.parametrize(("way", "native_state", "suspension"), WAYS)
async def test_a_machine_is_suspended_in_the_way_of_the_option(
    make: MakeDriver, way: SuspendWay, native_state: str, suspension: Suspension
) -> None:
    driver = make(suspend=way.value)
    assert driver.caps.suspension is suspension
    (handle,) = await create_machines(driver, 1)
    assert isinstance((await driver.act(MachineAction.SUSPEND, [handle]))[0], CallAccepted)
    (seen,) = await wait_for_state(driver, [handle.key], MachineState.SUSPENDED)
    assert seen.native_state == native_state
    assert isinstance((await driver.act(MachineAction.RESUME, [handle]))[0], CallAccepted)
    await wait_for_state(driver, [handle.key])


@pytest.mark.long
async def test_a_machine_that_was_suspended_in_another_way_is_resumed_in_that_way(make: MakeDriver) -> None:
    (handle,) = await create_machines(make(), 1)
    await make(suspend="pause").act(MachineAction.SUSPEND, [handle])
    driver = make()
    await wait_for_state(driver, [handle.key], MachineState.SUSPENDED)
    assert isinstance((await driver.act(MachineAction.RESUME, [handle]))[0], CallAccepted)
    await wait_for_state(driver, [handle.key])


async def test_what_is_under_way_is_shown_as_such_and_done_already(driver: OpenStackDriver, hold: Path) -> None:
    (handle,) = await create_machines(driver, 1, fake_hold=str(hold))
    hold.touch()
    await driver.act(MachineAction.SUSPEND, [handle])
    (seen,) = await wait_for_state(driver, [handle.key], MachineState.SUSPENDING)
    assert seen.native_state == "active/suspending"
    assert isinstance((await driver.act(MachineAction.SUSPEND, [handle]))[0], AlreadyDone)
    (refused,) = await driver.act(MachineAction.REBOOT, [handle])
    assert isinstance(refused, CallRefused)
    assert (refused.why, "while it is in task_state suspending" in refused.message) == (RefusalReason.CONFLICT, True)
    hold.unlink()
    await wait_for_state(driver, [handle.key], MachineState.SUSPENDED)
    hold.touch()
    await driver.act(MachineAction.TERMINATE, [handle])
    (seen,) = await wait_for_state(driver, [handle.key], MachineState.TERMINATING)
    assert seen.native_state == "suspended/deleting"
    hold.unlink()
    await wait_until_gone(driver, handle.key)
    assert isinstance((await driver.act(MachineAction.TERMINATE, [handle]))[0], AlreadyDone)


async def test_a_machine_that_is_being_made_is_never_shown_as_running(driver: OpenStackDriver, hold: Path) -> None:
    hold.touch()
    (want,) = new_machine_specs(1, fake_hold=str(hold))
    await driver.create([want])
    seen: list[tuple[MachineState, str]] = []
    while not seen or seen[-1][1] != "building/spawning":
        (one,) = (await driver.observe([want.key])).machines
        seen.append((one.state, one.native_state))
        await asyncio.sleep(PAUSE_S)
    hold.unlink()
    assert {state for state, _ in seen} == {MachineState.PENDING}
    await wait_for_state(driver, [want.key])


async def test_a_pause_that_the_hypervisor_fails_leaves_the_machine_running(make: MakeDriver, nova: NovaClient) -> None:
    driver = make(suspend="pause")
    (handle,) = await create_machines(driver, 1, fake_fail="pause")
    assert isinstance((await driver.act(MachineAction.SUSPEND, [handle]))[0], CallAccepted)
    (seen,) = await wait_for_state(driver, [handle.key], MachineState.RUNNING)
    assert "pause" in nova.actions(seen.native_id)


async def test_a_machine_that_no_host_can_run_fails_for_want_of_capacity(driver: OpenStackDriver) -> None:
    (want,) = new_machine_specs(1, fake_fail="spawn")
    assert isinstance((await driver.create([want]))[0], CallAccepted)
    (seen,) = await wait_for_state(driver, [want.key], MachineState.FAILED)
    assert (seen.native_state, seen.details["cause"]) == ("error", "capacity")
    assert "No valid host" in seen.details["reason"] or "Exhausted all hosts" in seen.details["reason"]


async def test_keys_that_may_log_in_are_user_data_for_cloud_init(make: MakeDriver, nova: NovaClient) -> None:
    keys = (new_ssh_key_pair().public, new_ssh_key_pair().public)
    wanted = [replace(one, authorized_keys=keys) for one in new_machine_specs(1)] + new_machine_specs(1)
    await make(config_drive="true").create(wanted)
    with_keys, without = (nova.server_of(want.key) for want in wanted)  # as Nova shows it to an administrator
    text = b64decode(with_keys["OS-EXT-SRV-ATTR:user_data"]).decode()
    assert text.splitlines()[0] == "#cloud-config"
    assert yaml.safe_load(text) == {"ssh_authorized_keys": list(keys)}
    assert (with_keys["config_drive"], without["OS-EXT-SRV-ATTR:user_data"]) == ("True", None)


async def test_a_text_that_is_no_key_is_refused(driver: OpenStackDriver, nova: NovaClient) -> None:
    (want,) = new_machine_specs(1)
    (outcome,) = await driver.create([replace(want, authorized_keys=("no key",))])
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, nova.servers()) == (RefusalReason.INVALID, [])


@pytest.mark.parametrize("option", ["suspend", "config_drive", "settle_time"])
async def test_an_option_that_means_nothing_is_bad_input(make: MakeDriver, option: str) -> None:
    with pytest.raises(BadInput, match=option):
        make(**{option: "perhaps"})


async def test_a_full_quota_is_told_at_once(driver: OpenStackDriver, nova: NovaClient) -> None:
    nova.set_quota(instances=0)
    (outcome,) = await driver.create(new_machine_specs(1))
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, "Quota exceeded" in outcome.message) == (RefusalReason.QUOTA, True)
    assert nova.servers() == []


@pytest.mark.long
async def test_a_quota_that_two_machines_race_for_is_told_at_once_or_by_the_listing(
    make: MakeDriver, nova: NovaClient
) -> None:
    nova.set_quota(instances=1)
    drivers, wanted = [make(), make()], new_machine_specs(2)
    outcomes = await asyncio.gather(*(one.create([want]) for one, want in zip(drivers, wanted, strict=True)))
    refused = [outcome for (outcome,) in outcomes if isinstance(outcome, CallRefused)]
    assert all(outcome.why is RefusalReason.QUOTA for outcome in refused)
    await until(
        drivers[0].observe, lambda listing: not any(one.state is MachineState.PENDING for one in listing.machines)
    )
    failed = [one for one in (await drivers[0].observe()).machines if one.state is MachineState.FAILED]
    assert all(one.details["cause"] == "quota" for one in failed)
    assert len(refused) + len(failed) >= 1


@pytest.mark.long
async def test_a_machine_without_resources_gets_the_one_network_that_there_is(driver: OpenStackDriver) -> None:
    (handle,) = await create_machines(driver, 1)
    (seen,) = await wait_for_state(driver, [handle.key])
    assert seen.private_ip.startswith("192.168.1.")
    assert seen.details["spec"] == "m1.tiny"
