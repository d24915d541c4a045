"""The lifecycle of VMs and their disks: one action at a time, and disks that change together with their VM."""

import asyncio
from typing import get_args

import pytest
from msgspec.structs import replace

from stateward.domains.ovc.errors import (
    BootDisk,
    ChangedWithVm,
    HasClones,
    ImageInUse,
    NameTaken,
    NotAttached,
    NotNow,
    OtherAccount,
    OtherAction,
    ParentNotReady,
    QueueOccupied,
    TooManyDisks,
)
from stateward.domains.ovc.lifecycle import VM
from stateward.domains.ovc.model import MAX_DISKS, DiskSpec, ImageSpec, vm_seen
from stateward.domains.ovc.nodes.driver_node import DriverNode
from stateward.domains.ovc.nodes.port import Power
from stateward.drivers.simulated.faults import CALM
from stateward.engine import Accepted, Denied, Refused
from stateward.errors import BadInput
from stateward.store.records import Key
from tests.held_calls import Moment, hold_calls
from tests.integration.domains.ovc.ovc_harness import ADA, ANN, Cloud

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIFE = (
    ("pause", "PAUSED"),
    ("resume", "RUNNING"),
    ("reboot", "RUNNING"),
    ("reset", "RUNNING"),
    ("stop", "HALTED"),
    ("start", "RUNNING"),
    ("pause", "PAUSED"),
    ("reboot", "RUNNING"),
    ("delete", "DELETED"),
    ("restore", "HALTED"),
    ("destroy", "DESTROYED"),
)


async def test_a_machine_lives_through_all_of_its_states(cloud: Cloud) -> None:
    vm = await cloud.vm()
    for action, state in LIFE:
        await cloud.did(vm, action)
        assert await cloud.state(vm) == state, action


# --- one action at a time --------------------------------------------------------------------------------------------


async def test_of_many_racing_actions_exactly_one_is_accepted(cloud: Cloud) -> None:
    vm = await cloud.vm()
    cloud.gates.close("pause")
    asked = await asyncio.gather(*(cloud.ask(vm, "pause") for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(one, Accepted) for one in asked) == 1
    assert sum(isinstance(one, NotNow) for one in asked) == 19
    cloud.gates.open("pause")


async def test_who_believes_in_another_state_is_told_that_other_action_is_happening(cloud: Cloud) -> None:
    vm = await cloud.vm()
    await cloud.did(vm, "pause")
    with pytest.raises(OtherAction, match=f"Other action currently happening on vm {vm}"):
        await cloud.service.act(cloud.ns, VM.kind, vm, "stop", ANN, status="RUNNING")
    assert await cloud.state(vm) == "PAUSED"


async def test_update_status_is_one_step_or_none(cloud: Cloud) -> None:
    vm = await cloud.vm()
    cloud.gates.close("pause")
    update = cloud.service.update_status
    accepted = await update(cloud.ns, "vm", vm, "RUNNING", "PAUSING", ANN)
    assert accepted.object.state == "PAUSING"
    with pytest.raises(OtherAction, match=f"Other action currently happening on vm {vm}"):
        await update(cloud.ns, "vm", vm, "RUNNING", "STOPPING", ANN)
    with pytest.raises(BadInput, match="transition that begins in RUNNING"):
        await update(cloud.ns, "vm", vm, "RUNNING", "HALTED", ANN)
    cloud.gates.open("pause")
    await cloud.ended(accepted)


async def test_the_same_key_gets_the_same_answer(cloud: Cloud) -> None:
    spec = cloud.vm_spec()
    first = await cloud.service.create(cloud.ns, spec, ANN, "once")
    await cloud.ended(first)
    again = await cloud.service.create(cloud.ns, spec, ANN, "once")
    assert (again.object.id, again.again) == (first.object.id, True)


# --- together --------------------------------------------------------------------------------------------------------


async def test_a_disk_and_its_machine_change_together_when_it_is_attached_and_detached(cloud: Cloud) -> None:
    vm, disk = await cloud.vm(), await cloud.disk()
    cloud.gates.close("attach")
    attaching = await cloud.ask(vm, "attach disk", disk=disk)
    assert await cloud.states(vm, disk) == ["ATTACHING_DISK", "ATTACHING"]
    assert (await cloud.get(disk)).op == attaching.op.id
    with pytest.raises(NotNow):
        await cloud.ask(disk, "delete")
    cloud.gates.open("attach")
    await cloud.ended(attaching)
    found = await cloud.get(disk)
    assert (await cloud.state(vm), found.state, found.queue, found.parent) == ("RUNNING", "ASSIGNED", vm, vm)
    await cloud.did(vm, "detach disk", disk=disk)
    found = await cloud.get(disk)
    assert (await cloud.state(vm), found.state, found.queue, found.parent) == (
        "RUNNING",
        "CREATED",
        disk,
        cloud.account,
    )


async def test_their_states_change_in_the_same_step(cloud: Cloud) -> None:
    vm, disk = await cloud.vm(), await cloud.disk()
    await cloud.did(vm, "attach disk", disk=disk)
    changes = {id_: [line for line in await cloud.engine.history(cloud.ns, id_) if line.target] for id_ in (vm, disk)}
    ends = [(changes[id_][-2].at, changes[id_][-1].at) for id_ in (vm, disk)]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("state", ["RUNNING", "PAUSED"])
async def test_where_it_cannot_be_attached_both_go_back_with_the_error(cloud: Cloud, state: str) -> None:
    vm, disk = await cloud.vm(), await cloud.disk()
    if state == "PAUSED":
        await cloud.did(vm, "pause")
    cloud.gates.fail_at("attach", "no slot is free")
    assert (await cloud.do(vm, "attach disk", disk=disk)).status == "failed"
    assert await cloud.states(vm, disk) == [state, "CREATED"]
    assert [(await cloud.get(id_)).error for id_ in (vm, disk)] == ["no slot is free"] * 2
    assert (await cloud.get(disk)).queue == disk
    cloud.gates.stop_failing("attach")
    await cloud.did(vm, "attach disk", disk=disk)


async def test_a_disk_that_cannot_be_added_is_left_in_error_and_can_be_destroyed(cloud: Cloud) -> None:
    vm = await cloud.vm()
    cloud.gates.fail_at("attach")
    adding = await cloud.ask(vm, "add disk", name="data", gib=2)
    disk = next(one.id for one in await cloud.service.disks_of(cloud.ns, vm) if one.state in ("ASSIGNING", "ERROR"))
    assert (await cloud.ended(adding)).status == "failed"
    assert await cloud.states(vm, disk) == ["RUNNING", "ERROR"]
    await cloud.did(disk, "destroy")
    assert [one.id for one in await cloud.service.disks_of(cloud.ns, vm)] == [cloud.boot_disk(vm)]


async def test_a_machine_that_came_back_from_the_bin_is_on_no_node_and_gets_disks_all_the_same(cloud: Cloud) -> None:
    vm = await cloud.vm()
    await cloud.did(vm, "delete")
    await cloud.did(vm, "restore")
    assert await cloud.node_of(vm) == ""
    disk = await cloud.attached(vm)
    await cloud.did(vm, "detach disk", disk=disk)
    await cloud.did(vm, "start")
    assert await cloud.node_of(vm) != ""


async def test_of_two_machines_that_want_one_disk_exactly_one_gets_it(cloud: Cloud) -> None:
    one, other, disk = await cloud.vm(), await cloud.vm(), await cloud.disk()
    for _ in range(5):
        asked = await asyncio.gather(
            *(cloud.ask(vm, "attach disk", disk=disk) for vm in (one, other)), return_exceptions=True
        )
        won = [got for got in asked if isinstance(got, Accepted)]
        assert (len(won), sum(isinstance(got, Denied) for got in asked)) == (1, 1)
        await cloud.ended(won[0])
        winner = won[0].object.id
        loser = other if winner == one else one
        assert await cloud.states(winner, loser, disk) == ["RUNNING", "RUNNING", "ASSIGNED"]
        with pytest.raises(NotAttached):
            await cloud.ask(loser, "detach disk", disk=disk)
        asked = await asyncio.gather(
            *(cloud.ask(winner, "detach disk", disk=disk) for _ in range(2)), return_exceptions=True
        )
        won = [got for got in asked if isinstance(got, Accepted)]
        assert len(won) == 1
        await cloud.ended(won[0])


async def test_a_disk_is_not_given_to_another_machine_before_it_is_taken_from_the_first(cloud: Cloud) -> None:
    one, other = await cloud.vm(), await cloud.vm()
    disk = await cloud.attached(one)
    with pytest.raises(Refused):
        await cloud.ask(other, "attach disk", disk=disk)
    cloud.gates.close("detach")
    detaching = await cloud.ask(one, "detach disk", disk=disk)
    with pytest.raises(NotNow, match=detaching.op.id):
        await cloud.ask(other, "attach disk", disk=disk)
    assert await cloud.states(one, other, disk) == ["DETACHING_DISK", "RUNNING", "DETACHING"]
    cloud.gates.open("detach")
    assert (await cloud.ended(detaching)).status == "succeeded"
    await cloud.did(other, "attach disk", disk=disk)
    assert (await cloud.get(disk)).queue == other


async def test_what_is_done_to_an_attached_disk_stands_in_its_machines_queue(cloud: Cloud) -> None:
    vm = await cloud.vm()
    first, second = await cloud.attached(vm), await cloud.attached(vm)
    cloud.gates.close("pause")
    pausing = await cloud.ask(vm, "pause")
    deleting = [await cloud.ask(disk, "delete") for disk in (first, second)]
    queue = await cloud.service.queuer.queue(cloud.ns, vm)
    assert [(one.object, one.action) for one in queue.operations] == [
        (vm, "pause"),
        (first, "delete"),
        (second, "delete"),
    ]
    cloud.gates.open("pause")
    for accepted in (pausing, *deleting):
        assert (await cloud.ended(accepted)).status == "succeeded"
    assert await cloud.states(vm, first, second) == ["PAUSED", "TOBEDELETED", "TOBEDELETED"]
    await cloud.did(first, "restore")
    await cloud.did(second, "destroy")
    assert await cloud.states(first, second) == ["ASSIGNED", "DESTROYED"]


async def test_a_machine_is_not_destroyed_while_one_of_its_disks_is_in_transition(cloud: Cloud) -> None:
    vm = await cloud.vm()
    disk = await cloud.attached(vm)
    cloud.gates.close("detach")
    deleting = await cloud.ask(disk, "delete")
    with pytest.raises(NotNow, match=deleting.op.id):
        await cloud.ask(vm, "destroy")
    assert await cloud.state(vm) == "RUNNING"
    cloud.gates.open("detach")
    await cloud.ended(deleting)
    await cloud.did(vm, "destroy")
    assert await cloud.states(vm, disk) == ["DESTROYED", "DESTROYED"]


# --- rules -----------------------------------------------------------------------------------------------------------


async def test_a_boot_disk_comes_and_goes_with_its_machine_alone(cloud: Cloud) -> None:
    vm, other = await cloud.vm(), await cloud.vm()
    boot = cloud.boot_disk(vm)
    assert await cloud.state(boot) == "ASSIGNED"
    for id_, action in ((vm, "detach disk"), (other, "attach disk"), (boot, "delete"), (boot, "destroy")):
        with pytest.raises(BootDisk):
            await cloud.ask(id_, action, disk=boot)
    for action in ("attach", "detach"):
        with pytest.raises((ChangedWithVm, Refused)):
            await cloud.ask(boot, action)


async def test_the_disk_of_another_account_is_forbidden(cloud: Cloud) -> None:
    vm, disk = await cloud.vm(), await cloud.disk(await cloud.new_account())
    with pytest.raises(OtherAccount) as refused:
        await cloud.ask(vm, "attach disk", disk=disk)
    assert refused.value.code == "forbidden"


async def test_a_machine_has_no_more_than_25_disks(cloud: Cloud) -> None:
    vm = await cloud.vm()
    for number in range(MAX_DISKS - 1):
        await cloud.did(vm, "add disk", name=f"data {number}")
    with pytest.raises(TooManyDisks, match="25"):
        await cloud.ask(vm, "add disk", name="one more")
    with pytest.raises(TooManyDisks):
        await cloud.ask(vm, "attach disk", disk=await cloud.disk())


async def test_a_name_stays_reserved_in_the_recycle_bin_and_is_free_when_destroyed(cloud: Cloud) -> None:
    spec = cloud.vm_spec()
    vm = await cloud.made(cloud.service.create(cloud.ns, spec, ANN))
    with pytest.raises(NameTaken, match=vm):
        await cloud.service.create(cloud.ns, spec, ANN)
    await cloud.did(vm, "delete")
    with pytest.raises(NameTaken, match="DELETED"):
        await cloud.service.create(cloud.ns, spec, ANN)
    await cloud.did(vm, "destroy")
    await cloud.made(cloud.service.create(cloud.ns, spec, ANN))


async def test_of_many_who_want_one_name_at_once_one_gets_it(cloud: Cloud) -> None:
    spec = DiskSpec("data", cloud.account)
    asked = await asyncio.gather(
        *(cloud.service.create(cloud.ns, spec, ANN) for _ in range(10)), return_exceptions=True
    )
    assert sum(isinstance(one, Accepted) for one in asked) == 1
    assert sum(isinstance(one, NameTaken) for one in asked) == 9


async def test_repeating_delete_and_destroy_is_a_success_that_does_nothing(cloud: Cloud) -> None:
    vm, disk = await cloud.vm(), await cloud.disk()
    for id_ in (vm, disk):
        for action in ("delete", "destroy"):
            await cloud.did(id_, action)
            before = await cloud.get(id_)
            again = await cloud.ask(id_, action)
            assert (again.operation, again.again, await cloud.get(id_)) == (None, True, before)


async def test_an_image_that_machines_stand_on_cannot_be_destroyed(cloud: Cloud) -> None:
    vm = await cloud.vm()
    with pytest.raises(ImageInUse):
        await cloud.ask(cloud.image, "destroy")
    await cloud.did(vm, "delete")
    with pytest.raises(ImageInUse):
        await cloud.ask(cloud.image, "destroy")
    await cloud.did(vm, "destroy")
    await cloud.did(cloud.image, "destroy")


async def test_a_machine_with_clones_cannot_be_deleted(cloud: Cloud) -> None:
    vm = await cloud.vm()
    with pytest.raises(ParentNotReady):  # it runs
        await cloud.vm(clone_of=vm)
    await cloud.did(vm, "stop")
    clone = await cloud.vm(clone_of=vm)
    for action in ("delete", "destroy"):
        with pytest.raises(HasClones, match=clone):
            await cloud.ask(vm, action)
    await cloud.did(clone, "delete")
    with pytest.raises(HasClones, match=clone):
        await cloud.ask(vm, "destroy")
    await cloud.did(vm, "delete")
    await cloud.did(clone, "destroy")
    await cloud.did(vm, "destroy")


async def test_nothing_is_made_or_started_below_what_is_disabled(cloud: Cloud) -> None:
    vm = await cloud.vm()
    await cloud.did(vm, "stop")
    await cloud.did(cloud.box, "disable")
    with pytest.raises(ParentNotReady, match="DISABLED"):
        await cloud.ask(vm, "start")
    with pytest.raises(ParentNotReady, match="DISABLED"):
        await cloud.vm()
    await cloud.did(cloud.box, "enable")
    await cloud.did(cloud.account, "disable")
    with pytest.raises(ParentNotReady, match="CONFIRMED"):
        await cloud.ask(vm, "start")


async def test_a_deploy_that_fails_can_be_tried_again_and_nothing_is_left_behind(cloud: Cloud) -> None:
    cloud.gates.fail_at("start", "no memory")
    made = await cloud.service.create(cloud.ns, cloud.vm_spec(), ANN)
    vm = made.object.id
    assert (await cloud.ended(made)).status == "failed"
    assert await cloud.states(vm, cloud.boot_disk(vm)) == ["ERROR", "ERROR"]
    cloud.gates.stop_failing("start")
    await cloud.did(vm, "deploy")
    assert await cloud.states(vm, cloud.boot_disk(vm)) == ["RUNNING", "ASSIGNED"]


async def test_all_that_several_failed_starts_may_have_left_is_stopped_before_the_next(cloud: Cloud) -> None:
    cloud.gates.fail_at("start", "no memory")
    made = await cloud.service.create(cloud.ns, cloud.vm_spec(), ANN)
    vm = made.object.id
    assert (await cloud.ended(made)).status == "failed"
    (first,) = vm_seen(await cloud.get(vm)).stale_machines
    assert (await cloud.do(vm, "deploy")).status == "failed"
    second = vm_seen(await cloud.get(vm)).stale_machines[-1]
    assert first != second
    cloud.gates.stop_failing("start")
    await cloud.start_late(first, second)
    await cloud.did(vm, "deploy")
    assert await cloud.powers(first, second) == [Power.OFF, Power.OFF]
    assert vm_seen(await cloud.get(vm)).stale_machines == ()


# --- hidden work -----------------------------------------------------------------------------------------------------


async def test_one_request_waits_behind_a_migration_and_a_second_is_refused_whatever_it_is_about(cloud: Cloud) -> None:
    vm = await cloud.vm()
    disk, other = await cloud.attached(vm), await cloud.attached(vm)
    cloud.gates.close("move")
    migrating = await cloud.ask(vm, "migrate", ADA)
    assert migrating.object.state == "RUNNING"
    deleting = await cloud.ask(disk, "delete")
    assert deleting.object.state == "DELETING"
    with pytest.raises(QueueOccupied, match=deleting.op.id):
        await cloud.ask(vm, "stop")
    with pytest.raises(QueueOccupied):
        await cloud.ask(other, "delete")
    with pytest.raises(Denied):
        await cloud.ask(vm, "migrate", ADA)
    assert await cloud.states(vm, other) == ["RUNNING", "ASSIGNED"]
    cloud.gates.open("move")
    assert (await cloud.ended(migrating)).status == "succeeded"
    assert (await cloud.ended(deleting)).status == "succeeded"


async def test_users_cannot_migrate_and_are_not_told_of_it(cloud: Cloud) -> None:
    vm = await cloud.vm()
    with pytest.raises(Refused, match="for admin and controller only"):
        await cloud.ask(vm, "migrate")


async def test_a_machine_without_power_moves_in_the_books_and_starts_at_its_new_place(cloud: Cloud) -> None:
    vm = await cloud.vm()
    await cloud.did(vm, "stop")
    before = await cloud.node_of(vm)
    await cloud.did(vm, "migrate", ADA)
    after = await cloud.node_of(vm)
    assert (before != after, await cloud.state(vm)) == (True, "HALTED")
    await cloud.did(vm, "start")
    assert await cloud.node_of(vm) == after


async def test_what_a_failed_migration_may_have_left_is_swept_before_anything_else(cloud: Cloud) -> None:
    vm = await cloud.vm()
    cloud.gates.fail_at("move")
    assert (await cloud.do(vm, "migrate", ADA)).status == "failed"
    found = await cloud.engine.store.reader.object(Key(cloud.ns, vm))
    assert found is not None
    assert (found.state, found.error) == ("RUNNING", None)
    cloud.gates.stop_failing("move")
    await cloud.did(vm, "migrate", ADA)
    await cloud.did(vm, "destroy")


async def test_all_that_several_cancelled_migrations_may_have_left_is_stopped_with_the_machine(cloud: Cloud) -> None:
    vm = await cloud.vm()
    left = [await cloud.cancel_migration(vm) for _ in range(2)]
    await cloud.start_late(*left)
    await cloud.did(vm, "stop")
    assert await cloud.powers(*left) == [Power.OFF, Power.OFF]
    assert vm_seen(await cloud.get(vm)).stale_machines == ()


# --- cancelling ------------------------------------------------------------------------------------------------------


async def test_what_waits_behind_a_migration_can_be_cancelled_and_all_it_held_goes_back(cloud: Cloud) -> None:
    vm, disk = await cloud.vm(), await cloud.disk()
    cloud.gates.close("move")
    migrating = await cloud.ask(vm, "migrate", ADA)
    attaching = await cloud.ask(vm, "attach disk", disk=disk)
    assert await cloud.states(vm, disk) == ["ATTACHING_DISK", "ATTACHING"]
    await cloud.engine.cancel(cloud.ns, attaching.op.id)
    found = await cloud.get(disk)
    assert (found.state, found.queue, found.parent) == ("CREATED", disk, cloud.account)
    assert await cloud.state(vm) == "RUNNING"
    cloud.gates.open("move")
    assert (await cloud.ended(migrating)).status == "succeeded"
    await cloud.did(vm, "attach disk", disk=disk)


async def test_a_deploy_that_is_cancelled_leaves_the_description_and_can_be_asked_for_again(cloud: Cloud) -> None:
    cloud.gates.close("start")
    made = await cloud.service.create(cloud.ns, cloud.vm_spec(), ANN)
    vm = made.object.id
    await cloud.gates.wait_for_arrival("start")
    await cloud.engine.cancel(cloud.ns, made.op.id)
    assert (await cloud.ended(made)).status == "cancelled"
    assert await cloud.states(vm, cloud.boot_disk(vm)) == ["VIRTUAL", "MODELED"]
    cloud.gates.open("start")
    await cloud.did(vm, "deploy")
    assert await cloud.states(vm, cloud.boot_disk(vm)) == ["RUNNING", "ASSIGNED"]


@pytest.mark.parametrize("action", ["reset", "reboot"])
async def test_a_reset_that_is_cancelled_before_its_call_is_not_done(cloud: Cloud, action: str) -> None:
    vm = await cloud.vm()
    node, key = await machine_key(cloud, vm)
    with hold_calls(node, "reset", "before") as held:
        asked = await cloud.ask(vm, action)
        await held.wait_for_arrival()
        await cloud.engine.cancel(cloud.ns, asked.op.id)
        assert (await cloud.ended(asked)).status == "cancelled"
    assert (await cloud.state(vm), await reboots(node, key), held.made) == ("RUNNING", 0, 0)


@pytest.mark.parametrize("moment", get_args(Moment))
@pytest.mark.parametrize("action", ["reset", "reboot"])
async def test_a_reset_that_is_cancelled_during_its_call_is_done(cloud: Cloud, action: str, moment: Moment) -> None:
    vm = await cloud.vm()
    node, key = await machine_key(cloud, vm)
    with hold_calls(node._driver, "act", moment) as held:
        asked = await cloud.ask(vm, action)
        await held.wait_for_arrival()
        await cloud.engine.cancel(cloud.ns, asked.op.id)
        held.release()
        assert (await cloud.ended(asked)).status == "succeeded"
    assert (await cloud.state(vm), await reboots(node, key)) == ("RUNNING", 1)


async def reboots(node: DriverNode, key: str) -> int:
    """Return how often a machine was booted again."""
    return int((await node._driver.observe([key])).machines[0].details.get("reboots", "0"))


@pytest.mark.parametrize("action", ["pause", "reset", "stop"])
async def test_what_a_node_shows_too_late_does_not_prove_that_a_cancelled_action_was_not_done(
    cloud: Cloud, action: str
) -> None:
    vm = await cloud.vm()
    node, key = await machine_key(cloud, vm)
    region = node._driver._region  # type: ignore[attr-defined]
    region.profile = replace(CALM, late=0.3)
    try:
        with hold_calls(node._driver, "act", "after") as held:
            begun = await cloud.ask(vm, action)
            await held.wait_for_arrival()
            await cloud.engine.cancel(cloud.ns, begun.op.id)
            held.release()
            assert (await cloud.ended(begun)).status == "succeeded"
    finally:
        region.profile = CALM
    assert (await cloud.state(vm), await node.get_power(key)) == AFTER[action]


AFTER = {"pause": ("PAUSED", Power.FROZEN), "reset": ("RUNNING", Power.ON), "stop": ("HALTED", Power.OFF)}


async def machine_key(cloud: Cloud, vm: str) -> tuple[DriverNode, str]:
    """Return the node and the machine of a VM."""
    seen = vm_seen(await cloud.get(vm))
    node = await cloud.plugin.nodes.get(cloud.ns, seen.node)
    assert isinstance(node, DriverNode)
    return node, seen.machine


async def test_a_deletion_that_is_cancelled_in_time_leaves_everything_as_it_was(cloud: Cloud) -> None:
    vm = await cloud.vm()
    disk = await cloud.attached(vm)
    cloud.gates.close("stop")
    deleting = await cloud.ask(vm, "delete")
    await cloud.gates.wait_for_arrival("stop")
    assert await cloud.states(vm, disk) == ["DELETING", "DELETING"]
    await cloud.engine.cancel(cloud.ns, deleting.op.id)
    assert (await cloud.ended(deleting)).status == "cancelled"
    assert await cloud.states(vm, disk, cloud.boot_disk(vm)) == ["RUNNING", "ASSIGNED", "ASSIGNED"]
    assert await cloud.engine.store.reader.timers(cloud.ns, 10) == []


@pytest.mark.parametrize("halted", [False, True])
async def test_a_destroy_that_is_cancelled_between_two_disks_is_half_done_and_not_taken_back(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, halted: bool
) -> None:
    vm = await cloud.vm()
    disks = [await cloud.attached(vm), cloud.boot_disk(vm)]
    if halted:
        await cloud.did(vm, "stop")
    files = {await cloud.file_name(disk) for disk in disks}
    one_is_gone = asyncio.Event()

    async def has(name: str) -> bool:
        return name in files

    async def remove(name: str) -> None:
        if len(files) < len(disks):
            one_is_gone.set()
            await asyncio.Event().wait()
        files.discard(name)

    monkeypatch.setattr(cloud.plugin.disk_store, "exists", has)
    monkeypatch.setattr(cloud.plugin.disk_store, "remove", remove)
    destroying = await cloud.ask(vm, "destroy")
    await asyncio.wait_for(one_is_gone.wait(), 60)
    await cloud.engine.cancel(cloud.ns, destroying.op.id)
    assert (await cloud.ended(destroying)).status == "failed"
    assert await cloud.state(vm) == "ERROR"
    monkeypatch.undo()
    await cloud.did(vm, "destroy")


async def test_the_destroy_of_an_image_that_is_cancelled_after_its_file_is_gone_has_succeeded(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = await cloud.made(cloud.service.create(cloud.ns, ImageSpec("old", cloud.account), ANN))
    files, is_gone = {await cloud.file_name(image)}, asyncio.Event()

    async def has(name: str) -> bool:
        return name in files

    async def remove(name: str) -> None:
        files.discard(name)
        is_gone.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(cloud.plugin.disk_store, "exists", has)
    monkeypatch.setattr(cloud.plugin.disk_store, "remove", remove)
    destroying = await cloud.ask(image, "destroy")
    await asyncio.wait_for(is_gone.wait(), 60)
    await cloud.engine.cancel(cloud.ns, destroying.op.id)
    assert (await cloud.ended(destroying)).status == "succeeded"
    assert await cloud.state(image) == "DESTROYED"
