"""A machine from its network to its end, as the test cloud keeps it."""

import json

import pytest
from msgspec.structs import replace

from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CloudResource,
    MachineAction,
    MachineHandle,
    MachineState,
    RefusalReason,
    ResourceKind,
)
from stateward.drivers.gcp import GcpDriver
from stateward.drivers.gcp.names import key_label, name_of, request_id
from stateward.drivers.gcp.states import STATES
from stateward.drivers.ssh_keys import new_ssh_key_pair
from tests.integration.drivers.gcp.conftest import MakeGcpDriver
from tests.integration.drivers.gcp.gce_cloud import GceCloud
from tests.integration.drivers.gcp.gce_test_machines import (
    create_machines,
    new_machine_specs,
    wait_for_state,
    wait_until_gone,
)
from tests.integration.drivers.gcp.gce_world import ARM_IMAGE, ARM_SPEC, FAMILY, IMAGE, PROJECT, SPEC


async def test_a_machine_lives_from_its_network_to_its_end(driver: GcpDriver, cloud: GceCloud) -> None:
    network = await driver.ensure(CloudResource(ResourceKind.NETWORK, "net", "net"))
    assert isinstance(network, CallAccepted)
    resources = {ResourceKind.NETWORK: network.native_id}
    for kind, facts in {
        ResourceKind.SUBNET: {"cidr": "10.9.1.0/24"},
        ResourceKind.SECURITY_GROUP: {"rules": '[{"ports":"22"}]'},
        ResourceKind.SSH_KEY: {"public_key": "ssh-ed25519 AAAAfarm farm"},
    }.items():
        outcome = await driver.ensure(CloudResource(kind, f"k-{kind}", "x", network.native_id, facts))
        assert isinstance(outcome, CallAccepted)
        resources[kind] = outcome.native_id
    tags = {"Team": "Blue Sky", "stateward-key": "forged"}
    want = replace(new_machine_specs(1)[0], resources=resources, disk_gib=20, tags=tags, user="ada")
    further = new_ssh_key_pair().public
    want = replace(want, authorized_keys=(f"{further} somebody",))
    (outcome,) = await driver.create([want])
    assert isinstance(outcome, CallAccepted)

    there = cloud.world.find(want.key).body
    group = resources[ResourceKind.SECURITY_GROUP]
    assert there["name"] == outcome.native_id == name_of(want.key)
    assert there["labels"] == {
        "team": "blue-sky",
        "name": want.name.lower().replace(" ", "-"),
        "stateward-key": want.key,
        group: "",
    }
    assert there["tags"]["items"] == [group]
    assert there["disks"][0]["initializeParams"]["diskSizeGb"] == "20"
    assert there["networkInterfaces"][0]["subnetwork"].endswith(resources[ResourceKind.SUBNET])
    items = {item["key"]: item["value"] for item in there["metadata"]["items"]}
    assert items["ssh-keys"].split("\n") == ["ada:ssh-ed25519 AAAAfarm farm", f"ada:{further}"]
    assert (items["block-project-ssh-keys"], items["enable-oslogin"]) == ("TRUE", "FALSE")

    handle = MachineHandle(want.key, outcome.native_id)
    (seen,) = await wait_for_state(driver, [want.key])
    assert (seen.name, seen.details["spec"], bool(seen.public_ip)) == (want.name, SPEC, True)
    assert seen.private_ip == there["networkInterfaces"][0]["networkIP"]
    for action, state, word in (
        (MachineAction.SUSPEND, MachineState.SUSPENDED, "SUSPENDED"),
        (MachineAction.RESUME, MachineState.RUNNING, "RUNNING"),
    ):
        assert isinstance((await driver.act(action, [handle]))[0], CallAccepted)
        (seen,) = await wait_for_state(driver, [want.key], state)
        assert seen.native_state == word
    assert isinstance((await driver.act(MachineAction.TERMINATE, [handle]))[0], CallAccepted)
    await wait_until_gone(driver, want.key)
    assert cloud.world.living() == []


async def test_states_on_the_way_are_told_as_such(driver: GcpDriver, cloud: GceCloud) -> None:
    cloud.behaviour.step = cloud.behaviour.suspending = cloud.behaviour.stopping = 3600.0
    (want,) = new_machine_specs(1)
    await driver.create([want])
    instance, now = cloud.world.find(want.key), cloud.world.clock

    async def observed() -> tuple[MachineState, str]:
        (seen,) = (await driver.observe([want.key])).machines
        return seen.state, seen.native_state

    assert await observed() == (MachineState.PENDING, "PROVISIONING")
    instance.move(now(), (0.0, "RUNNING"))
    await driver.act(MachineAction.SUSPEND, [MachineHandle(want.key)])
    assert await observed() == (MachineState.SUSPENDING, "SUSPENDING")
    instance.move(now(), (0.0, "SUSPENDED"))
    await driver.act(MachineAction.RESUME, [MachineHandle(want.key)])
    assert await observed() == (MachineState.RESUMING, "PROVISIONING")
    for word, state in (("REPAIRING", MachineState.REBOOTING), ("STOPPING", MachineState.SUSPENDING)):
        instance.move(now(), (0.0, word))
        assert await observed() == (state, word)
    instance.move(now(), (0.0, "RUNNING"))
    await driver.act(MachineAction.TERMINATE, [MachineHandle(want.key)])
    assert await observed() == (MachineState.TERMINATING, "STOPPING")


def test_no_state_of_google_is_folded_into_another_kind() -> None:
    assert {"TERMINATED", "STOPPED"} == {
        word for word, state in STATES.items() if state is MachineState.SUSPENDED and word != "SUSPENDED"
    }
    assert MachineState.TERMINATED not in STATES.values()  # an instance that is deleted is not listed


async def test_a_stopped_machine_is_at_rest_and_is_started_by_resume(driver: GcpDriver, cloud: GceCloud) -> None:
    (handle,) = await create_machines(driver, 1)
    cloud.world.stop(handle.key)
    (seen,) = (await driver.observe([handle.key])).machines
    assert (seen.state, seen.native_state) == (MachineState.SUSPENDED, "TERMINATED")
    assert isinstance((await driver.act(MachineAction.SUSPEND, [handle]))[0], AlreadyDone)
    assert isinstance((await driver.act(MachineAction.RESUME, [handle]))[0], CallAccepted)
    assert cloud.calls["instances.start"] == 1
    await wait_for_state(driver, [handle.key])


async def test_machines_of_others_are_not_shown(driver: GcpDriver, cloud: GceCloud) -> None:
    (handle,) = await create_machines(driver, 1)
    cloud.world.find(handle.key).body["labels"] = {"team": "blue"}
    assert list((await driver.observe()).machines) == []


@pytest.mark.parametrize("key", ["K" * 70, "schlüssel/✓", 'a" OR "b', "key*"])
async def test_any_key_is_found_again_exactly(driver: GcpDriver, key: str) -> None:
    want = replace(new_machine_specs(1)[0], key=key)
    assert isinstance((await driver.create([want]))[0], CallAccepted)
    assert [one.key for one in (await driver.observe([key])).machines] == [key]
    assert [one.key for one in (await driver.observe()).machines] == [key]


def test_a_key_that_may_be_a_label_is_the_label() -> None:
    assert (key_label("key-1"), key_label("Key 1") != "Key 1") == ("key-1", True)
    assert request_id("insert", "a") == request_id("insert", "a") != request_id("insert", "b")


@pytest.mark.parametrize(
    ("image", "source"),
    [
        (IMAGE, f"projects/{PROJECT}/global/images/{IMAGE}"),
        (FAMILY, f"projects/{PROJECT}/global/images/family/{FAMILY}"),
        ("debian-12", "projects/debian-cloud/global/images/family/debian-12"),
        (f"https://x/compute/v1/projects/{PROJECT}/global/images/{IMAGE}", f"projects/{PROJECT}/global/images/{IMAGE}"),
    ],
)
async def test_an_image_is_found_by_name_family_or_address(
    driver: GcpDriver, cloud: GceCloud, image: str, source: str
) -> None:
    want = replace(new_machine_specs(1)[0], image=image)
    assert await driver.check(SPEC, image) is None
    await driver.create([want])
    assert cloud.world.find(want.key).body["disks"][0]["initializeParams"]["sourceImage"] == source


async def test_an_image_for_another_processor_is_refused_by_the_check(driver: GcpDriver) -> None:
    refusal = await driver.check(SPEC, ARM_IMAGE)
    assert isinstance(refusal, CallRefused)
    assert (refusal.why, "ARM64" in refusal.message) == (RefusalReason.INVALID, True)
    assert await driver.check(ARM_SPEC, ARM_IMAGE) is None


async def test_a_machine_without_a_public_address_has_none(make: MakeGcpDriver) -> None:
    driver = make(public_address="false")
    (handle,) = await create_machines(driver, 1)
    (seen,) = (await driver.observe([handle.key])).machines
    assert (seen.public_ip, bool(seen.private_ip)) == ("", True)


@pytest.mark.parametrize("user", ["ada:x", "ada\nroot", "-", "a" * 40])
async def test_a_user_that_could_add_a_key_of_its_own_is_refused(driver: GcpDriver, cloud: GceCloud, user: str) -> None:
    key = await driver.ensure(CloudResource(ResourceKind.SSH_KEY, "ssh", "key"))
    assert isinstance(key, CallAccepted)
    want = replace(new_machine_specs(1)[0], user=user, resources={ResourceKind.SSH_KEY: key.native_id})
    (outcome,) = await driver.create([want])
    assert isinstance(outcome, CallRefused)
    assert (outcome.why, cloud.calls["instances.insert"]) == (RefusalReason.INVALID, 0)


async def test_every_call_is_told_to_the_meter_under_its_own_name(make: MakeGcpDriver) -> None:
    told: list[str] = []
    driver = make(meter=told.append)
    await driver.create(
        [replace(one, image=f"projects/{PROJECT}/global/images/{IMAGE}") for one in new_machine_specs(2)]
    )
    await driver.observe()
    assert told == ["instances.insert", "instances.insert", "instances.list"]


def test_the_library_is_loaded_only_when_a_driver_is_made() -> None:
    from subprocess import run
    from sys import executable

    lines = "import json, sys, stateward.drivers.builtin_drivers, stateward.domains.mci.plugin"
    program = f"{lines}; print(json.dumps([one for one in sys.modules if one.startswith('google')]))"
    done = run([executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


async def test_further_keys_alone_log_in_too(driver: GcpDriver, cloud: GceCloud) -> None:
    key = new_ssh_key_pair().public
    want, odd = (
        replace(one, authorized_keys=(text,)) for one, text in zip(new_machine_specs(2), (key, "odd"), strict=True)
    )
    outcome, refused = await driver.create([want, odd])
    assert isinstance(outcome, CallAccepted)
    assert isinstance(refused, CallRefused)
    items = {item["key"]: item["value"] for item in cloud.world.find(want.key).body["metadata"]["items"]}
    assert items["ssh-keys"].partition(":")[2] == key
