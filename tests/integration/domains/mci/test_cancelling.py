"""Operations that are cancelled while their provider call is under way: record, journal and machine agree."""

import asyncio
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.domains.mci.model import SubGroup, vm_of
from stateward.drivers import (
    CallUnanswered,
    MachineAction,
    MachineHandle,
    MachineState,
    Observation,
    Outcome,
    ProviderRegion,
)
from stateward.drivers.process.driver import ProcessDriver
from stateward.drivers.process.machine_dir import MachinePhase, MachineRecord, MachineStatus
from stateward.drivers.simulated.faults import CallFate, FaultProfile
from stateward.engine.errors import AlreadyEnded
from stateward.errors import StatewardError
from stateward.store.records import Operation, Status, default_lane
from tests.integration.domains.mci.conftest import ANN, NS, MciHarness, group, mci
from tests.integration.domains.mci.test_evidence import LONGEST, STORMS, calm, end, made, states, trouble
from tests.integration.domains.mci.test_real import nothing_stays
from tests.integration.domains.mci.virtual_world import World, live
from tests.long_forms import in_long_form

SEOUL = ProviderRegion("aws", "ap-northeast-2")
FAIR = FaultProfile()


async def shown(harness: MciHarness, vm: str = "p-1") -> Observation:
    """Return a machine as the process driver shows it."""
    uid = vm_of(await harness.service.vm(NS, "m1", vm)).uid
    listing = await (await harness.plugin.clients.by_name("local")).list_now()
    return next(one for one in listing.machines if one.key == uid)


async def cancelled(harness: MciHarness, action: str, after: float = 0.0, vm: str = "p-1") -> Operation:
    """Begin an action on a VM, cancel it soon, and wait until it has ended."""
    begun = await harness.service.control_vm(NS, "m1", vm, action, ANN)
    await asyncio.sleep(after)
    with suppress(AlreadyEnded):
        await harness.engine.cancel(NS, begun.op.id, "ann")
    return await harness.ended(begun)


@pytest.mark.parametrize("times", in_long_form((15, 50), short=(15,)))
async def test_a_cancelled_reboot_is_told_as_what_the_boot_counter_says(
    harness: MciHarness, tmp_path: Path, times: int
) -> None:
    async with nothing_stays(tmp_path / "machines" / "process" / "here"):
        await harness.grant_host()
        await harness.created(mci("m1", SubGroup("p", 1, "local+here+tiny", "sh")))
        endings, boots = Counter[str](), 1
        for number in range(times):
            ended = await cancelled(harness, "reboot", 0.001 * (number % 10))
            now = await shown(harness)
            booted, boots = int(now.details["boots"]) - boots, int(now.details["boots"])
            endings[ended.status] += 1
            assert (ended.status, booted) in ((Status.SUCCEEDED, 1), (Status.CANCELLED, 0))
            assert (await harness.service.vm(NS, "m1", "p-1")).state == "Running"
            last = (await harness.engine.history(NS, "m1.p-1"))[-1]
            assert last.event == ("succeeded" if booted else "cancelled")
        assert endings[Status.SUCCEEDED] > 0
        await harness.ended((await harness.service.control(NS, "m1", "terminate", ANN)).whole)


async def test_a_suspend_that_is_cancelled_while_its_call_is_in_its_thread_is_waited_for(
    harness: MciHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, go_on, do = threading.Event(), threading.Event(), ProcessDriver._do

    def slowly(self: ProcessDriver, deed: MachineAction, ref: MachineHandle, record: MachineRecord) -> Outcome:
        if deed is MachineAction.SUSPEND:
            inside.set()
            assert go_on.wait(60)
        return do(self, deed, ref, record)

    monkeypatch.setattr(ProcessDriver, "_do", slowly)
    async with nothing_stays(tmp_path / "machines" / "process" / "here"):
        await harness.grant_host()
        await harness.created(mci("m1", SubGroup("p", 1, "local+here+tiny", "sh")))
        begun = await harness.service.control_vm(NS, "m1", "p-1", "suspend", ANN)
        await asyncio.to_thread(inside.wait, 60)
        await harness.engine.cancel(NS, begun.op.id, "ann")
        with pytest.raises(TimeoutError):
            await harness.engine.wait_record(NS, begun.op.id, 0.2)
        go_on.set()
        ended = await harness.ended(begun)
        assert (ended.status, (await shown(harness)).state) == (Status.SUCCEEDED, MachineState.SUSPENDED)
        assert await states(harness) == {"p-1": "Suspended"}
        resumed = await harness.ended(await harness.service.control_vm(NS, "m1", "p-1", "resume", ANN))
        assert resumed.status is Status.SUCCEEDED
        await harness.ended((await harness.service.control(NS, "m1", "terminate", ANN)).whole)


async def test_a_reboot_that_was_left_half_way_and_is_cancelled_is_brought_to_its_end(
    harness: MciHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun_at_provider, reboot = threading.Event(), ProcessDriver._reboot

    def half_way(self: ProcessDriver, sight: MachineStatus, token: str) -> Outcome:
        if begun_at_provider.is_set():
            return reboot(self, sight, token)
        record = replace(sight.record, boot=sight.record.boot + 1, phase=MachinePhase.STARTING, token=token)
        self._supervisor.machine_dir.write_durably(record)
        self._supervisor.kill(record)
        begun_at_provider.set()
        return CallUnanswered(record.key, "whoever did it has vanished")

    monkeypatch.setattr(ProcessDriver, "_reboot", half_way)
    async with nothing_stays(tmp_path / "machines" / "process" / "here"):
        await harness.grant_host()
        await harness.created(mci("m1", SubGroup("p", 1, "local+here+tiny", "sh")))
        begun = await harness.service.control_vm(NS, "m1", "p-1", "reboot", ANN)
        await asyncio.to_thread(begun_at_provider.wait, 60)
        await harness.engine.cancel(NS, begun.op.id, "ann")
        assert (await harness.ended(begun)).status is Status.SUCCEEDED
        now = await shown(harness)
        assert (now.state, now.details["boots"]) == (MachineState.RUNNING, "2")
        await harness.ended((await harness.service.control(NS, "m1", "terminate", ANN)).whole)


# --- in virtual time -------------------------------------------------------------------------------------------------


def reboots(world: World, uid: str) -> int:
    return int(world.cloud.region(SEOUL).machines[uid].reboots)


async def cancelled_in(world: World, action: str, after: float) -> Operation:
    """Begin an action on a VM, and cancel it after some seconds."""
    begun = await world.harness.service.control_vm(NS, "m1", "a-1", action, ANN)
    await asyncio.sleep(after)
    await world.harness.engine.cancel(NS, begun.op.id, "ann")
    return await world.harness.engine.wait_record(NS, begun.op.id, LONGEST)


def course_of(profile: FaultProfile, course: Any, seed: int = 1) -> None:
    """Live a course with one VM, in a region with a profile from then on."""

    async def whole(world: World) -> None:
        await made(world, group("a", 1))
        world.cloud.set_profile(SEOUL, profile)
        await course(world, vm_of(await world.harness.service.vm(NS, "m1", "a-1")))

    live(seed, FAIR, whole)


def test_what_the_provider_has_taken_is_waited_for_when_it_is_cancelled() -> None:
    async def course(world: World, _: Any) -> None:
        ended = await cancelled_in(world, "suspend", 1.0)
        assert (ended.status, await states(world.harness)) == (Status.SUCCEEDED, {"a-1": "Suspended"})

    course_of(replace(FAIR, suspending=5.0), course)


def test_what_takes_too_long_to_be_waited_for_is_undefined_until_it_is_seen() -> None:
    async def course(world: World, vm: Any) -> None:
        ended = await cancelled_in(world, "suspend", 1.0)
        assert (ended.status, await states(world.harness)) == (Status.FAILED, {"a-1": "Undefined"})
        assert ended.error == "cancelled, and nobody can say whether it was done"
        await asyncio.sleep(120.0)
        assert (world.truth(vm), await states(world.harness)) == (MachineState.SUSPENDED, {"a-1": "Suspended"})

    course_of(replace(FAIR, suspending=60.0), course)


def test_a_request_that_was_lost_and_is_cancelled_has_not_been_done() -> None:
    async def course(world: World, vm: Any) -> None:
        world.cloud.region(SEOUL).fault_injector.script_next(CallFate.REQUEST_LOST)
        ended = await cancelled_in(world, "reboot", 1.0)
        assert (ended.status, reboots(world, vm.uid)) == (Status.CANCELLED, 0)
        assert await states(world.harness) == {"a-1": "Running"}

    course_of(FAIR, course)


@pytest.mark.parametrize("fate", [CallFate.REQUEST_LOST, CallFate.ANSWER_LOST])
def test_where_no_listing_shows_reboots_one_without_an_answer_is_unknown_and_never_not_done(fate: CallFate) -> None:
    async def course(world: World, vm: Any) -> None:
        world.cloud.region(SEOUL).fault_injector.script_next(fate)
        ended = await cancelled_in(world, "reboot", 1.0)
        assert (ended.status, await states(world.harness)) == (Status.FAILED, {"a-1": "Undefined"})
        assert reboots(world, vm.uid) == (fate is CallFate.ANSWER_LOST)
        await asyncio.sleep(60.0)
        assert await states(world.harness) == {"a-1": "Running"}

    course_of(replace(FAIR, knows_tokens=False), course)


def test_where_no_listing_shows_reboots_one_that_was_answered_is_done() -> None:
    async def course(world: World, vm: Any) -> None:
        ended = await cancelled_in(world, "reboot", 1.0)
        assert (ended.status, reboots(world, vm.uid)) == (Status.SUCCEEDED, 1)

    course_of(replace(FAIR, knows_tokens=False, rebooting=5.0), course)


def test_a_create_that_is_cancelled_leaves_no_machine_without_a_record() -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 1))
        world.cloud.set_profile(SEOUL, replace(FAIR, pending=60.0))
        grown = await world.harness.service.add_group(NS, "m1", group("b", 1), ANN)
        async with asyncio.timeout(60):
            while len(list(world.machines())) < 2:
                await asyncio.sleep(0.01)
        vm = await world.harness.service.vm(NS, "m1", "b-1")
        assert vm.op is not None
        await world.harness.engine.cancel(NS, vm.op, "ann")
        await world.harness.engine.wait_record(NS, grown.op.id, LONGEST)
        assert await states(world.harness) == {"a-1": "Running", "b-1": "Undefined"}
        await asyncio.sleep(120.0)
        assert await states(world.harness) == {"a-1": "Running", "b-1": "Running"}

    live(2, FAIR, course)


# --- whole MCIs ------------------------------------------------------------------------------------------------------


def course_of_three(profile: FaultProfile, course: Any, seed: int = 1) -> None:
    """Live a course with an MCI of three VMs, in a region with a profile from then on."""

    async def whole(world: World) -> None:
        await made(world, group("a", 3))
        world.cloud.set_profile(SEOUL, profile)
        await course(world)

    live(seed, FAIR, whole)


async def begun_on_all(world: World, action: str) -> str:
    """Begin an action on all VMs; returns the MCI's operation."""
    verdict = await world.harness.service.control(NS, "m1", action, ANN)
    assert verdict.whole is not None
    return verdict.whole.op.id


async def events(world: World) -> list[str]:
    return [line.event for line in await world.harness.engine.history(NS, "m1")]


async def mci_state(world: World) -> str:
    return (await world.harness.service.mci(NS, "m1")).state


@pytest.mark.parametrize(
    ("action", "state"), [("suspend", "Suspended"), ("reboot", "Running"), ("terminate", "Terminated")]
)
def test_an_mci_keeps_its_state_until_what_was_cancelled_is_done_and_then_has_succeeded(
    action: str, state: str
) -> None:
    async def course(world: World) -> None:
        op = await begun_on_all(world, action)
        await asyncio.sleep(1.0)
        on_its_way = await mci_state(world)
        await world.harness.engine.cancel(NS, op, "ann")
        await asyncio.sleep(1.0)
        assert await mci_state(world) == on_its_way
        with pytest.raises(StatewardError):
            await world.harness.service.add_group(NS, "m1", group("b", 1), ANN)
        ended = await world.harness.engine.wait_record(NS, op, LONGEST)
        assert (ended.status, ended.error) == (Status.SUCCEEDED, None)
        assert await mci_state(world) == state
        assert set((await states(world.harness)).values()) == {state}
        assert "all failed" not in await events(world)

    course_of_three(replace(FAIR, suspending=5.0, rebooting=5.0, terminating=5.0), course)


def test_an_action_on_an_mci_that_was_not_done_to_any_vm_is_cancelled() -> None:
    async def course(world: World) -> None:
        _, lanes = await world.harness.engine.store.reader.lanes()
        await world.harness.engine.set_limits(lanes=[replace(one.lane, capacity=0) for one in lanes if one.lane.lane])
        op = await begun_on_all(world, "suspend")
        await world.harness.engine.cancel(NS, op, "ann")
        ended = await world.harness.engine.wait_record(NS, op, LONGEST)
        assert (ended.status, await mci_state(world)) == (Status.CANCELLED, "Running")
        assert str(ended.error).startswith("cancelled (after ")
        assert await states(world.harness) == {"a-1": "Running", "a-2": "Running", "a-3": "Running"}
        assert (await events(world))[-1] == "all running"

    course_of_three(FAIR, course)


def test_an_action_on_an_mci_that_was_done_to_some_vms_has_failed_and_says_how_many() -> None:
    async def course(world: World) -> None:
        _, lanes = await world.harness.engine.store.reader.lanes()
        await world.harness.engine.set_limits(lanes=[replace(one.lane, capacity=1) for one in lanes if one.lane.lane])
        op = await begun_on_all(world, "suspend")
        await asyncio.sleep(1.0)
        await world.harness.engine.cancel(NS, op, "ann")
        ended = await world.harness.engine.wait_record(NS, op, LONGEST)
        assert ended.status is Status.FAILED
        assert ended.error == "cancelled: 1 of 3 operations on VMs were done, 2 were not, 0 failed"
        assert Counter((await states(world.harness)).values()) == {"Suspended": 1, "Running": 2}
        assert (await mci_state(world), (await events(world))[-1]) == ("Partial", "mixed")

    course_of_three(replace(FAIR, suspending=5.0), course)


def test_an_mci_whose_vms_have_all_ended_before_it_was_cancelled_is_what_they_are() -> None:
    async def course(world: World) -> None:
        of_mcis = default_lane("", "")
        await world.harness.engine.set_limits(lanes=[replace(of_mcis, capacity=0)])
        op = await begun_on_all(world, "suspend")
        await asyncio.sleep(10.0)
        assert (await mci_state(world), set((await states(world.harness)).values())) == ("Suspending", {"Suspended"})
        await world.harness.engine.cancel(NS, op, "ann")
        await world.harness.engine.set_limits(lanes=[of_mcis])
        assert (await world.harness.engine.wait_record(NS, op, LONGEST)).status is Status.SUCCEEDED
        assert await mci_state(world) == "Suspended"

    course_of_three(FAIR, course)


@pytest.mark.parametrize("seed", in_long_form(range(12), short=range(4)))
def test_an_mci_whose_process_is_killed_while_it_is_cancelled_ends_as_what_is_true(seed: int) -> None:
    async def course(world: World) -> None:
        op = await begun_on_all(world, "suspend")
        await asyncio.sleep(0.1 * (seed % 4))
        cancelling = asyncio.create_task(world.harness.engine.cancel(NS, op, "ann"))
        await asyncio.sleep(0.05 * seed)
        await world.kill()
        cancelling.cancel()
        ended = await world.harness.engine.wait_record(NS, op, LONGEST)
        await asyncio.sleep(120.0)
        suspended = Counter((await states(world.harness)).values())["Suspended"]
        assert ended.status is {3: Status.SUCCEEDED, 0: Status.CANCELLED}.get(suspended, Status.FAILED)
        assert await mci_state(world) == {3: "Suspended", 0: "Running"}.get(suspended, "Partial")
        assert "all failed" not in await events(world)

    course_of_three(replace(FAIR, suspending=2.0), course, seed)


@pytest.mark.parametrize("hold", [False, True])
def test_a_create_that_is_cancelled_while_it_is_prepared_is_cancelled_and_its_mci_failed(hold: bool) -> None:
    async def course(world: World) -> None:
        created = await world.harness.service.create(NS, replace(mci("m1", group("a", 1)), hold=hold), ANN)
        await asyncio.sleep(10.0 if hold else 0.0)
        assert await mci_state(world) == ("Prepared" if hold else "Preparing")
        await world.harness.engine.cancel(NS, created.op.id, "ann")
        ended = await world.harness.engine.wait_record(NS, created.op.id, LONGEST)
        assert ended.status is Status.CANCELLED
        assert (await world.harness.service.mci(NS, "m1")).error == "cancelled"
        assert str(ended.error).startswith("cancelled (after ")
        assert await mci_state(world) == "Failed"

    live(1, FAIR, course)


def test_a_scale_out_that_is_cancelled_before_it_has_begun_leaves_the_mci_as_it_was() -> None:
    async def course(world: World) -> None:
        before = await world.harness.service.mci(NS, "m1")
        grown = await world.harness.service.add_group(NS, "m1", group("b", 1), ANN)
        await world.harness.engine.cancel(NS, grown.op.id, "ann")
        ended = await world.harness.engine.wait_record(NS, grown.op.id, LONGEST)
        now = await world.harness.service.mci(NS, "m1")
        assert (ended.status, now.state, now.spec) == (Status.CANCELLED, "Running", before.spec)

    course_of_three(FAIR, course)


@pytest.mark.parametrize("seed", in_long_form(range(12), short=range(4)))
def test_a_reboot_whose_worker_was_killed_and_that_is_then_cancelled_is_told_as_it_was(seed: int) -> None:
    async def course(world: World, vm: Any) -> None:
        begun = await world.harness.service.control_vm(NS, "m1", "a-1", "reboot", ANN)
        await asyncio.sleep(0.02 * seed)
        await world.kill()
        with suppress(AlreadyEnded):
            await world.harness.engine.cancel(NS, begun.op.id, "ann")
        ended = await world.harness.engine.wait_record(NS, begun.op.id, LONGEST)
        assert (ended.status is Status.SUCCEEDED) == (reboots(world, vm.uid) == 1)
        assert await states(world.harness) == {"a-1": "Running"}

    course_of(FAIR, course, seed)


@pytest.mark.parametrize("storm", ["stormy", "lost answers", "late", "forgetful"])
@pytest.mark.parametrize("seed", in_long_form(range(3), short=range(1)))
def test_after_a_storm_in_which_users_cancel_all_is_at_rest_and_true(storm: str, seed: int) -> None:
    async def impatient(world: World, chance: Random) -> None:
        while True:
            await asyncio.sleep(2.0 * chance.random())
            for vm in await world.harness.service.vms(NS, "m1"):
                if vm.op is not None and chance.random() < 0.3:
                    try:
                        await world.harness.engine.cancel(NS, vm.op, "ann")
                    except StatewardError:
                        continue

    async def course(world: World) -> None:
        chance = Random(f"cancel/{storm}/{seed}")
        cancelling = asyncio.create_task(impatient(world, chance))
        await trouble(world, Random(f"{storm}/{seed}"), kills=seed == 2)
        cancelling.cancel()
        await calm(world)
        assert await world.harness.plugin.reconciler.reconcile_all() == []  # no machine without a record
        await end(world)

    live(seed, STORMS[storm], course)
