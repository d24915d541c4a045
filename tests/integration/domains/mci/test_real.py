"""Real machines in one MCI: EC2 as boto3 sees it, QEMU guests, process groups."""

import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from stateward.domains.mci.lifecycle import MciState
from stateward.domains.mci.model import (
    CloudConnection,
    ImageRecord,
    SpecRecord,
    SubGroup,
    record_id,
    resource_seen,
    vm_of,
    vm_seen,
)
from stateward.domains.mci.provider.provider_client import ProviderClient
from stateward.drivers import Observation
from stateward.lifecycle import PROVIDER
from stateward.store import open_store
from stateward.store.records import Operation, Status
from tests.held_calls import Moment, hold_calls
from tests.integration.domains.mci.conftest import ANN, NS, MciHarness, mci, open_harness
from tests.integration.drivers.aws.conftest import session
from tests.integration.drivers.aws.ec2_machines import describe_machines
from tests.integration.drivers.aws.moto_cloud import REGION, MotoCloud, shared_cloud
from tests.integration.drivers.aws.moto_images import IMAGE
from tests.integration.drivers.cloud_faults import Fault, FaultKind
from tests.integration.drivers.local.host_machines import (
    kill_all_in,
    live_processes_in,
    needs_qemu,
    ssh_servers_in,
)
from tests.long_forms import in_long_form
from tests.waiting import until

REACHED = {"suspend": "Suspended", "resume": "Running", "terminate": "Terminated"}


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[MciHarness]:
    """An mci domain at work, on a store in a file."""
    async with open_harness(open_store(str(tmp_path / "stateward.db")), tmp_path) as opened:
        yield opened


async def states(harness: MciHarness) -> Counter[str]:
    return Counter(one.state for one in await harness.service.vms(NS, "m1"))


async def done(harness: MciHarness, action: str) -> Operation:
    """Do something to the whole MCI, and wait until that has ended."""
    return await harness.ended((await harness.service.control(NS, "m1", action, ANN)).whole)


async def shown(harness: MciHarness, connection: str) -> dict[str, Observation]:
    """Return all machines of a connection as its driver shows them."""
    listing = await (await harness.plugin.clients.by_name(connection)).list_now()
    assert listing.complete, listing.problem
    return {one.key: one for one in listing.machines}


# --- EC2 -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ec2_cloud(monkeypatch: pytest.MonkeyPatch) -> MotoCloud:
    """A test cloud with nothing in it."""
    monkeypatch.setenv("FARM_ACCESS_KEY_ID", "AKIDFARM")
    monkeypatch.setenv("FARM_SECRET_ACCESS_KEY", "secret")
    cloud = shared_cloud()
    cloud.reset()
    return cloud


@pytest.fixture
async def ec2(harness: MciHarness, ec2_cloud: MotoCloud) -> AsyncIterator[Any]:
    """A boto3 that is not ours, and a connection of ours to the same cloud."""
    options = {"endpoint_url": ec2_cloud.url}
    connection = CloudConnection("ec2", "aws", REGION, driver="aws", credential="env:FARM", options=options)
    await harness.service.add_connection(connection, ANN)
    await harness.service.register(NS, ImageRecord("hill", "ec2", IMAGE), ANN)
    client = session().client("ec2", region_name=REGION, endpoint_url=ec2_cloud.url)
    yield client
    client.close()


ON_EC2 = SubGroup("g1", 3, f"aws+{REGION}+t3.nano", "hill", connection="ec2")


def words(ec2: Any) -> Counter[str]:
    """Return what EC2 calls the states of all machines there are."""
    return Counter(one["State"]["Name"] for one in describe_machines(ec2))


async def test_an_mci_lives_on_ec2_from_its_network_to_its_end(
    harness: MciHarness, ec2: Any, ec2_cloud: MotoCloud
) -> None:
    assert (await harness.created(mci("m1", ON_EC2))).status is Status.SUCCEEDED
    assert words(ec2) == {"running": 3}
    network = resource_seen((await harness.service.resources(NS, "vNet"))[0])
    assert {one["VpcId"] for one in describe_machines(ec2)} == {network.native_id}
    vms = await harness.service.vms(NS, "m1")
    natives = {one["InstanceId"]: one for one in describe_machines(ec2)}
    assert natives.keys() == {vm_seen(one).native_id for one in vms}
    for one in vms:
        tags = {tag["Key"]: tag["Value"] for tag in natives[vm_seen(one).native_id]["Tags"]}
        assert (tags["stateward:key"], tags["Name"]) == (vm_of(one).uid, f"m1-{vm_of(one).name}")
    for action, word, state in (
        ("suspend", "stopped", MciState.SUSPENDED),
        ("resume", "running", MciState.RUNNING),
        ("reboot", "running", MciState.RUNNING),
    ):
        assert (await done(harness, action)).status is Status.SUCCEEDED
        assert (words(ec2), await harness.state()) == ({word: 3}, state)
    assert ec2_cloud.instances.reboots == dict.fromkeys(natives, 1)
    await harness.ended(await harness.service.scale(NS, "m1", "g1", 1, ANN))
    assert words(ec2) == {"running": 4}
    assert (await done(harness, "terminate")).status is Status.SUCCEEDED
    assert words(ec2) == {"terminated": 4}
    await harness.service.delete(NS, "m1", "", ANN)
    for word in ("sshKey", "securityGroup", "vNet"):
        (part,) = await harness.service.resources(NS, word)
        removed = await harness.service.delete_resource(NS, word, part.id.removeprefix(record_id(word, "")), ANN)
        assert (await harness.ended(removed)).status is Status.SUCCEEDED
    assert network.native_id not in {one["VpcId"] for one in ec2.describe_vpcs()["Vpcs"]}


async def test_what_happens_on_ec2_behind_our_back_is_found(
    harness: MciHarness, ec2: Any, ec2_cloud: MotoCloud
) -> None:
    await harness.created(mci("m1", ON_EC2))
    natives = {vm_of(one).name: vm_seen(one).native_id for one in await harness.service.vms(NS, "m1")}
    ec2.stop_instances(InstanceIds=[natives["g1-1"]])
    ec2_cloud.instances.kill(vm_of(await harness.service.vm(NS, "m1", "g1-2")).uid)

    async def found() -> bool:
        await harness.plugin.reconciler.reconcile_all()
        return await states(harness) == {"Running": 1, "Suspended": 1, "Terminated": 1}

    await until(found)
    assert words(ec2) == {"running": 1, "stopped": 1, "terminated": 1}


@pytest.mark.parametrize(
    "harm", in_long_form((None, FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST), short=(None, FaultKind.LOST_ANSWER))
)
async def test_a_cancelled_reboot_on_ec2_is_done_or_unknown_and_never_told_as_not_done(
    harness: MciHarness, ec2: Any, ec2_cloud: MotoCloud, harm: FaultKind | None
) -> None:
    await harness.created(mci("m1", replace(ON_EC2, size=1)))
    (native,) = [vm_seen(one).native_id for one in await harness.service.vms(NS, "m1")]
    if harm is not None:
        ec2_cloud.inject_fault(Fault(harm, "RebootInstances"))
    begun = await harness.service.control_vm(NS, "m1", "g1-1", "reboot", ANN)

    await until(lambda: ec2_cloud.calls["RebootInstances"] > 0)
    await harness.engine.cancel(NS, begun.op.id, "ann")
    ended = await harness.ended(begun)
    assert (ended.status, ec2_cloud.instances.reboots[native]) in (
        [(Status.SUCCEEDED, 1)] if harm is None else [(Status.FAILED, 1), (Status.FAILED, 0)]
    )
    assert await states(harness) == {"Running" if harm is None else "Undefined": 1}


@pytest.mark.parametrize(
    "harm",
    in_long_form(
        (FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.DONE_BUT_ERROR), short=(FaultKind.LOST_ANSWER,)
    ),
)
async def test_a_launch_on_ec2_whose_answer_is_lost_makes_one_machine_for_each_vm(
    harness: MciHarness, ec2: Any, ec2_cloud: MotoCloud, monkeypatch: pytest.MonkeyPatch, harm: FaultKind
) -> None:
    monkeypatch.setattr("stateward.domains.mci.provider.provider_client.ABSENT_AFTER_S", 0.1)
    code = {"code": "InternalError", "status": 500} if harm is FaultKind.DONE_BUT_ERROR else {}
    ec2_cloud.inject_fault(Fault(harm, "RunInstances", times=2, **code))  # type: ignore[arg-type]
    assert (await harness.created(mci("m1", ON_EC2))).status is Status.SUCCEEDED
    assert words(ec2) == {"running": 3}


async def test_ec2_that_throttles_is_asked_again_and_fails_nothing(
    harness: MciHarness, ec2: Any, ec2_cloud: MotoCloud
) -> None:
    await harness.created(mci("m1", ON_EC2))
    ec2_cloud.inject_fault(Fault(FaultKind.ERROR, "StopInstances", code="RequestLimitExceeded", status=503))
    assert (await done(harness, "suspend")).status is Status.SUCCEEDED
    assert await states(harness) == {"Suspended": 3}
    _, loads = await harness.engine.store.reader.lanes()
    assert {load.lane.lane for load in loads if load.lane.throttled} == {f"aws/{REGION}"}


# --- machines on this host -------------------------------------------------------------------------------------------


def boots(seen: dict[str, Observation]) -> set[str]:
    return {one.details["boots"] for one in seen.values()}


@asynccontextmanager
async def nothing_stays(folder: Path) -> AsyncIterator[None]:
    try:
        yield
    finally:
        kill_all_in(folder)
        assert live_processes_in(folder) == []


async def whole_life(harness: MciHarness, wanted: SubGroup, connection: str, folder: Path) -> None:
    """Make machines, suspend, resume and reboot them all, lose one, find that out, and end them."""
    size = wanted.size
    assert (await harness.created(mci("m1", wanted))).status is Status.SUCCEEDED
    assert len({*live_processes_in(folder)} - {*ssh_servers_in(folder)}) == size
    for action, state in (("suspend", "Suspended"), ("resume", "Running"), ("reboot", "Running")):
        assert (await done(harness, action)).status is Status.SUCCEEDED
        assert await states(harness) == {state: size}
        assert {one.state for one in (await shown(harness, connection)).values()} == {state.lower()}
    assert boots(await shown(harness, connection)) == {"2"}
    victim = await harness.service.vm(NS, "m1", f"{wanted.name}-2")
    os.kill(int((await shown(harness, connection))[vm_of(victim).uid].details["pid"]), signal.SIGKILL)

    async def found() -> bool:
        await harness.plugin.reconciler.reconcile_all()
        return await states(harness) == {"Running": size - 1, "Terminated": 1}

    await until(found)
    line = (await harness.engine.history(NS, victim.id))[-1]
    assert (line.actor, line.event) == (PROVIDER, "shows terminated")
    await harness.until(lambda state: state == MciState.PARTIAL)
    assert (await done(harness, "terminate")).status is Status.SUCCEEDED
    assert await states(harness) == {"Terminated": size}
    assert {*live_processes_in(folder)} - {*ssh_servers_in(folder)} == set()


async def cancelled_at(harness: MciHarness, action: str, owner: object, moment: Moment) -> None:
    """Cancel an action on the only VM while its call is held; its record and its machine must agree."""
    (vm,) = await harness.service.vms(NS, "m1")
    with hold_calls(owner, "act", moment) as held:
        begun = await harness.service.control_vm(NS, "m1", vm_of(vm).name, action, ANN)
        await held.wait_for_arrival()
        await harness.engine.cancel(NS, begun.op.id, "ann")
        if isinstance(owner, ProviderClient):
            assert (await harness.ended(begun)).status is Status.CANCELLED
            assert held.made == 0
        else:
            held.release()
            assert (await harness.ended(begun)).status is Status.SUCCEEDED
    (now,) = await harness.service.vms(NS, "m1")
    (machine,) = (await shown(harness, vm_of(vm).connection)).values()
    assert now.state == machine.state.capitalize() == (REACHED[action] if held.made else vm.state)


async def cancelled_at_every_time(harness: MciHarness) -> None:
    """Cancel each action before its call is sent; then before the call arrives, or before its answer does."""
    (vm,) = await harness.service.vms(NS, "m1")
    client = await harness.plugin.clients.by_name(vm_of(vm).connection)
    for moment in get_args(Moment):
        for action in ("suspend", "resume"):
            await cancelled_at(harness, action, client, "before")
            await cancelled_at(harness, action, client.driver, moment)
    await cancelled_at(harness, "terminate", client, "before")
    await cancelled_at(harness, "terminate", client.driver, "after")


@needs_qemu
async def test_what_is_cancelled_at_a_qemu_guest_is_told_as_what_its_machine_is_afterwards(
    harness: MciHarness, tmp_path: Path
) -> None:
    await register_qemu(harness)
    async with nothing_stays(tmp_path / "machines" / "qemu" / "here"):
        await harness.created(mci("m1", SubGroup("guest", 1, "tiny", "tick")))
        await cancelled_at_every_time(harness)


async def test_what_is_cancelled_at_a_process_machine_is_told_as_what_it_is_afterwards(
    harness: MciHarness, tmp_path: Path
) -> None:
    await harness.grant_host()
    async with nothing_stays(tmp_path / "machines" / "process" / "here"):
        await harness.created(mci("m1", SubGroup("p", 1, "local+here+tiny", "sh")))
        await cancelled_at_every_time(harness)


async def test_what_is_cancelled_on_ec2_is_told_as_what_its_machine_is_afterwards(
    harness: MciHarness, ec2: Any
) -> None:
    await harness.created(mci("m1", replace(ON_EC2, size=1)))
    await cancelled_at_every_time(harness)


async def register_qemu(harness: MciHarness) -> None:
    """Let the namespace make QEMU guests on this host."""
    await harness.service.add_connection(CloudConnection("lab", "lab", "here", driver="qemu", namespaces=(NS,)), ANN)
    await harness.service.register(NS, SpecRecord("tiny", "lab", "tiny"), ANN)
    await harness.service.register(NS, ImageRecord("tick", "lab", "tick"), ANN)


@needs_qemu
@pytest.mark.parametrize("size", in_long_form((8, 50), short=(8,)))
async def test_qemu_guests_of_one_mci_are_suspended_resumed_and_rebooted_and_one_that_was_killed_is_found(
    harness: MciHarness, tmp_path: Path, size: int
) -> None:
    await register_qemu(harness)
    folder = tmp_path / "machines" / "qemu" / "here"
    async with nothing_stays(folder):
        await whole_life(harness, SubGroup("guest", size, "tiny", "tick"), "lab", folder)


@pytest.mark.parametrize("size", in_long_form((8, 50), short=(8,)))
async def test_process_machines_of_one_mci_are_suspended_resumed_and_rebooted_and_one_that_was_killed_is_found(
    harness: MciHarness, tmp_path: Path, size: int
) -> None:
    await harness.grant_host()
    folder = tmp_path / "machines" / "process" / "here"
    async with nothing_stays(folder):
        await whole_life(harness, SubGroup("p", size, "local+here+tiny", "sh"), "local", folder)
