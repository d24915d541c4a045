"""The recycle bin: objects are deleted and restored with their parents, and destroyed at the end of the retention."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.domains.ovc.errors import HasRunning, ParentInBin, ParentNotReady
from stateward.domains.ovc.model import AccountSpec, CloudspaceSpec, ImageSpec
from stateward.engine.errors import Protected
from stateward.store.filters import Selector
from stateward.store.port import Store
from tests.integration.domains.ovc.ovc_harness import ADA, ANN, Cloud, open_cloud
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOON = 0.3
"""A short retention, in seconds."""


async def halted(cloud: Cloud, box: str = "") -> str:
    """Make a VM that does not run."""
    vm = await cloud.vm(box)
    await cloud.did(vm, "stop")
    return vm


async def timers(cloud: Cloud) -> set[str]:
    """Return whose stays in the bin have a timer."""
    return {one.object for one in await cloud.engine.store.reader.timers(cloud.ns, 1000)}


# --- cascades --------------------------------------------------------------------------------------------------------


async def test_a_user_cannot_take_down_machines_that_run_and_an_administrator_can(cloud: Cloud) -> None:
    vm = await cloud.vm()
    for id_ in (cloud.box, cloud.account):
        for action in ("delete", "destroy"):
            with pytest.raises(HasRunning, match=vm):
                await cloud.ask(id_, action)
    await cloud.did(cloud.box, "delete", ADA)
    assert await cloud.states(cloud.box, vm, cloud.boot_disk(vm)) == ["DELETED", "DELETED", "TOBEDELETED"]


async def test_nothing_is_taken_down_that_takes_a_protected_object_along(cloud: Cloud) -> None:
    vm = await halted(cloud)
    disk = cloud.boot_disk(vm)
    await cloud.engine.protect(cloud.ns, disk, "production")
    for id_ in (vm, cloud.box, cloud.account):
        for action in ("delete", "destroy"):
            with pytest.raises(Protected, match=disk):
                await cloud.ask(id_, action, ADA)
    await cloud.engine.protect(cloud.ns, disk, None)
    await cloud.did(vm, "destroy")


async def test_restoring_brings_back_exactly_those_that_went_down_with_it(cloud: Cloud) -> None:
    before, along = await halted(cloud), await halted(cloud)
    disk, loose = await cloud.attached(along), await cloud.attached(along)
    await cloud.did(loose, "delete")
    await cloud.did(before, "delete")
    await cloud.did(cloud.box, "delete")
    assert await cloud.states(cloud.box, before, along, disk, loose) == [
        "DELETED",
        "DELETED",
        "DELETED",
        "TOBEDELETED",
        "TOBEDELETED",
    ]
    await cloud.did(cloud.box, "restore")
    assert await cloud.states(cloud.box, before, along, disk, loose) == [
        "DEPLOYED",
        "DELETED",
        "HALTED",
        "ASSIGNED",
        "TOBEDELETED",
    ]
    await cloud.did(before, "restore")
    assert await cloud.state(before) == "HALTED"


async def test_an_account_takes_everything_along_and_brings_it_back(cloud: Cloud) -> None:
    other = await cloud.new_box()
    vm, apart = await halted(cloud), await halted(cloud, other)
    disk, own = await cloud.disk(), await cloud.disk()
    await cloud.did(apart, "delete")
    await cloud.did(other, "delete")
    await cloud.did(own, "delete")
    everything = (cloud.account, cloud.box, cloud.image, vm, disk, other, apart, own)
    await cloud.did(cloud.account, "delete")
    assert set(await cloud.states(*everything)) == {"DELETED"}
    await cloud.did(cloud.account, "restore")
    assert await cloud.states(*everything) == [
        "CONFIRMED",
        "DEPLOYED",
        "CREATED",
        "HALTED",
        "CREATED",
        "DELETED",
        "DELETED",
        "DELETED",
    ]
    await cloud.did(cloud.account, "destroy")
    assert set(await cloud.states(*everything)) == {"DESTROYED"}
    counts = await cloud.engine.store.reader.count_states(Selector(cloud.ns))
    assert {state for _, state in counts} == {"DESTROYED", "ENABLED"}


async def test_nothing_is_restored_or_made_below_what_lies_in_the_bin(cloud: Cloud) -> None:
    vm = await halted(cloud)
    disk, loose = await cloud.attached(vm), await cloud.disk()
    await cloud.did(loose, "delete")
    await cloud.did(cloud.box, "delete")
    with pytest.raises(ParentInBin, match=cloud.box):
        await cloud.ask(vm, "restore")
    with pytest.raises(ParentInBin, match=vm):
        await cloud.ask(disk, "restore")
    with pytest.raises(ParentNotReady):
        await cloud.vm()
    await cloud.did(cloud.account, "delete")
    for id_ in (cloud.box, loose, cloud.image):
        with pytest.raises(ParentInBin, match=cloud.account):
            await cloud.ask(id_, "restore")
    with pytest.raises(ParentNotReady):
        await cloud.service.create(cloud.ns, CloudspaceSpec("new", cloud.account), ANN)


async def test_a_parent_waits_for_what_is_busy_below_it(cloud: Cloud) -> None:
    vm = await cloud.vm()
    cloud.gates.close("pause")
    pausing = await cloud.ask(vm, "pause")
    deleting = await cloud.ask(cloud.box, "delete", ADA)
    await cloud.until_state(cloud.box, "DELETING")
    assert await cloud.state(vm) == "PAUSING"
    cloud.gates.open("pause")
    assert (await cloud.ended(pausing)).status == "succeeded"
    assert (await cloud.ended(deleting)).status == "succeeded"
    assert await cloud.states(cloud.box, vm) == ["DELETED", "DELETED"]


async def test_a_child_that_will_not_go_keeps_its_parent_and_the_next_try_goes_on(cloud: Cloud) -> None:
    vms = [await cloud.vm() for _ in range(3)]
    cloud.gates.fail_at(f"stop:{vms[1]}", "it hangs")
    deleting = await cloud.do(cloud.box, "delete", ADA)
    assert (deleting.status, "it hangs" in str(deleting.error)) == ("failed", True)
    assert await cloud.states(cloud.box, *vms) == ["DEPLOYED", "DELETED", "RUNNING", "DELETED"]
    assert await timers(cloud) == {vms[0], vms[2]}  # nobody else sees to them
    cloud.gates.stop_failing(f"stop:{vms[1]}")
    await cloud.did(cloud.box, "delete", ADA)
    assert await timers(cloud) == {cloud.box}
    await cloud.did(cloud.box, "restore")
    assert await cloud.states(cloud.box, *vms) == ["DEPLOYED", "HALTED", "HALTED", "HALTED"]
    assert await timers(cloud) == set()


async def test_an_account_of_which_one_child_will_not_go_stays_says_which_and_can_be_asked_again(cloud: Cloud) -> None:
    other = await cloud.new_box()
    vm, stubborn, disk = await cloud.vm(), await cloud.vm(other), await cloud.disk()
    cloud.gates.fail_at(f"stop:{stubborn}", "it hangs")
    deleting = await cloud.do(cloud.account, "delete", ADA)
    assert deleting.status == "failed"
    assert all(word in str(deleting.error) for word in (other, stubborn, "it hangs"))
    assert await cloud.states(cloud.account, cloud.box, vm) == ["CONFIRMED", "DELETED", "DELETED"]
    assert await cloud.states(other, stubborn, disk, cloud.image) == ["DEPLOYED", "RUNNING", "CREATED", "CREATED"]
    assert (await cloud.get(cloud.account)).error == deleting.error
    assert await timers(cloud) == {cloud.box}  # it went, and nobody else sees to it
    cloud.gates.stop_failing(f"stop:{stubborn}")
    await cloud.did(cloud.account, "delete", ADA)
    everything = (cloud.account, cloud.box, vm, other, stubborn, disk, cloud.image)
    assert set(await cloud.states(*everything)) == {"DELETED"}
    assert await timers(cloud) == {cloud.account}
    await cloud.did(cloud.account, "restore")
    assert await cloud.states(cloud.account, cloud.box, vm, other, stubborn) == [
        "CONFIRMED",
        "DEPLOYED",
        "HALTED",
        "DEPLOYED",
        "HALTED",
    ]


async def test_what_was_taken_down_by_a_cascade_that_failed_can_be_restored_on_its_own(cloud: Cloud) -> None:
    other = await cloud.new_box()
    vm, stubborn = await cloud.vm(), await cloud.vm(other)
    cloud.gates.fail_at(f"stop:{stubborn}", "it hangs")
    assert (await cloud.do(cloud.account, "delete", ADA)).status == "failed"
    await cloud.did(cloud.box, "restore")
    assert await cloud.states(cloud.box, vm) == ["DEPLOYED", "HALTED"]
    assert await timers(cloud) == set()


async def test_a_destruction_that_fails_half_way_is_an_error_and_goes_on_when_asked_again(cloud: Cloud) -> None:
    other = await cloud.new_box()
    vm, stubborn = await cloud.vm(), await cloud.vm(other)
    cloud.gates.fail_at(f"stop:{stubborn}", "it hangs")
    destroying = await cloud.do(cloud.account, "destroy", ADA)
    assert (destroying.status, stubborn in str(destroying.error)) == ("failed", True)
    assert await cloud.states(cloud.account, cloud.box, vm) == ["ERROR", "DESTROYED", "DESTROYED"]
    assert await cloud.states(other, stubborn) == ["ERROR", "ERROR"]
    cloud.gates.stop_failing(f"stop:{stubborn}")
    await cloud.did(cloud.account, "destroy")
    counts = await cloud.engine.store.reader.count_states(Selector(cloud.ns))
    assert {state for _, state in counts} == {"DESTROYED", "ENABLED"}


async def test_clones_go_before_what_they_were_made_of(cloud: Cloud) -> None:
    vm = await halted(cloud)
    clone = await cloud.vm(clone_of=vm)
    await cloud.did(cloud.box, "destroy", ADA)
    assert await cloud.states(cloud.box, vm, clone) == ["DESTROYED"] * 3


async def test_what_was_only_described_goes_with_its_parent_when_that_is_destroyed(cloud: Cloud) -> None:
    made = await cloud.service.create(cloud.ns, cloud.vm_spec(), ANN, deploy=False)
    vm = made.object.id
    await cloud.did(cloud.box, "delete")
    assert await cloud.states(vm, cloud.boot_disk(vm)) == ["VIRTUAL", "MODELED"]
    await cloud.did(cloud.box, "destroy")
    assert await cloud.states(vm, cloud.boot_disk(vm)) == ["DESTROYED", "DESTROYED"]


# --- retention -------------------------------------------------------------------------------------------------------


async def impatient(cloud: Cloud, retention: float = SOON) -> Cloud:
    """Move to an account whose bin is emptied soon."""
    spec = AccountSpec("impatient", retention)
    cloud.account = await cloud.made(cloud.service.create(cloud.ns, spec, ANN))
    cloud.box = await cloud.new_box()
    image = ImageSpec("image", cloud.account)
    cloud.image = await cloud.made(cloud.service.create(cloud.ns, image, ANN))
    return cloud


async def test_what_has_lain_in_the_bin_for_long_enough_is_destroyed_by_the_clock(cloud: Cloud) -> None:
    await impatient(cloud)
    vm, disk = await cloud.vm(), await cloud.disk()
    await cloud.did(vm, "delete")
    await cloud.did(disk, "delete")
    for id_ in (vm, cloud.boot_disk(vm), disk):
        await cloud.until_state(id_, "DESTROYED")
    lines = [line for line in await cloud.engine.history(cloud.ns, vm) if line.event == "destroy"]
    assert [line.actor for line in lines] == ["clock"]


async def test_with_its_parent_it_is_the_parents_timer_that_counts(cloud: Cloud) -> None:
    await impatient(cloud, 3600.0)
    vm = await cloud.vm()
    await cloud.did(cloud.box, "delete", ADA)
    assert await timers(cloud) == {cloud.box}
    await cloud.did(cloud.account, "delete")
    assert await timers(cloud) == {cloud.account, cloud.box}  # it lay there before, on its own
    assert await cloud.state(vm) == "DELETED"


async def test_of_stays_that_end_together_what_is_further_down_ends_first(cloud: Cloud) -> None:
    await impatient(cloud, 3600.0)
    disk, vm = await cloud.disk(), await cloud.vm()
    wanted = [disk, vm, cloud.box, cloud.image, cloud.account]
    for id_ in wanted:
        await cloud.did(id_, "delete")
    pending = await cloud.engine.store.reader.timers(cloud.ns, 100)
    assert [one.object for one in sorted(pending, key=lambda one: one.rank)] == wanted
    assert len({one.rank for one in pending}) == len(wanted)


async def test_what_is_restored_is_not_destroyed(cloud: Cloud) -> None:
    await impatient(cloud, 3600.0)
    vm = await cloud.vm()
    await cloud.did(vm, "delete")
    assert await timers(cloud) == {vm}
    await cloud.did(vm, "restore")
    assert await timers(cloud) == set()


async def test_no_timer_is_left_of_a_machine_that_was_deleted_during_a_migration_and_restored(cloud: Cloud) -> None:
    vm = await cloud.vm()
    cloud.gates.close("move")
    moving = await cloud.ask(vm, "migrate", ADA)
    await cloud.gates.wait_for_arrival("move")
    deleting = await cloud.ask(vm, "delete")
    cloud.gates.open("move")
    for accepted in (moving, deleting):
        assert (await cloud.ended(accepted)).status == "succeeded"
    assert await timers(cloud) == {vm}
    await cloud.did(vm, "restore")
    assert (await cloud.state(vm), await timers(cloud)) == ("HALTED", set())


async def test_what_went_down_with_its_parent_during_a_migration_comes_back_with_it(cloud: Cloud) -> None:
    vm = await cloud.vm()
    cloud.gates.close("move")
    moving = await cloud.ask(vm, "migrate", ADA)
    await cloud.gates.wait_for_arrival("move")
    deleting = await cloud.ask(cloud.box, "delete", ADA)
    await cloud.until_state(vm, "DELETING")
    cloud.gates.open("move")
    for accepted in (moving, deleting):
        assert (await cloud.ended(accepted)).status == "succeeded"
    assert await timers(cloud) == {cloud.box}
    await cloud.did(cloud.box, "restore")
    assert await cloud.states(cloud.box, vm) == ["DEPLOYED", "HALTED"]


async def test_an_image_in_use_outlasts_its_retention(cloud: Cloud) -> None:
    await impatient(cloud, 0.0)
    await cloud.vm()
    await cloud.did(cloud.image, "delete")
    await until(lambda: _waits_longer(cloud))
    assert await cloud.state(cloud.image) == "DELETED"


async def _waits_longer(cloud: Cloud) -> bool:
    now = await cloud.engine.store.reader.time()
    pending = await cloud.engine.store.reader.timers(cloud.ns, 10)
    return any(one.object == cloud.image and one.due > now + 60 for one in pending)


async def test_a_retention_that_ends_while_nobody_works_is_caught_up_with(
    new_store: Callable[[], Store], tmp_path: Path
) -> None:
    async with open_cloud(new_store(), tmp_path) as cloud:
        await impatient(await cloud.create_base_objects())
        vm = await cloud.vm()
        await cloud.did(vm, "delete")
        await cloud.did(cloud.box, "delete", ADA)  # the VM may be on its way out already
        box, ns = cloud.box, cloud.ns
    # real time: a longer pause proves the same
    await asyncio.sleep(SOON)  # the downtime itself
    async with open_cloud(new_store(), tmp_path) as cloud:
        cloud.ns = ns
        for id_ in (vm, box, cloud.boot_disk(vm)):
            await cloud.until_state(id_, "DESTROYED")
