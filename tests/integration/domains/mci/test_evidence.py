"""Providers that lose, lie, throttle and die, in virtual time: no VM is falsely Terminated, stuck, or there twice."""

import asyncio
from collections import Counter
from contextlib import suppress
from itertools import cycle
from random import Random

import pytest
from msgspec.structs import replace

from stateward.domains.mci.lifecycle import MciState
from stateward.domains.mci.model import VmSpec, vm_of
from stateward.domains.mci.provider.evidence import APPEARS_WITHIN_S
from stateward.drivers import MachineState, ProviderRegion
from stateward.drivers.simulated.faults import STORMY, CallFate, FaultProfile
from stateward.engine import Denied
from stateward.errors import StatewardError
from stateward.store.records import Status
from tests.integration.domains.mci.conftest import ANN, NS, MciHarness, group, mci
from tests.integration.domains.mci.virtual_world import World, live
from tests.long_forms import in_long_form

SEOUL, TOKYO = ProviderRegion("aws", "ap-northeast-2"), ProviderRegion("aws", "ap-northeast-1")
FAIR = FaultProfile()
GROUPS = (group("a", 3), group("b", 3, "aws+ap-northeast-1+t3.nano"), group("c", 3, "gcp+asia-northeast3+e2-micro"))
LONGEST = 6 * 3600.0
"""By then every deadline has passed, one after the other."""

STORMS = {
    "stormy": STORMY,
    "lost answers": FaultProfile(answer_lost=0.4, duplicated=0.2),
    "lost requests": FaultProfile(request_lost=0.4),
    "late": FaultProfile(late=(0.0, 20.0), duplicated=0.2, duplicate_after=(0.0, 120.0)),
    "throttled": FaultProfile(throttled=0.5, calls_a_second=2.0, burst=3.0),
    "missing": FaultProfile(forgotten=0.0, answer_lost=0.3, late=(0.0, 5.0)),
    "cut short": FaultProfile(forgotten=0.0, cut_short=0.7, page=2, transient=0.2),
    "relapsing": FaultProfile(relapses=0.3, fails=0.2, refused=0.2),
    "late and lost": FaultProfile(late=(0.0, 20.0), request_lost=0.4, answer_lost=0.1),
    "half blind": FaultProfile(cut_short=0.5, page=2, request_lost=0.3, answer_lost=0.2, terminating=(5.0, 30.0)),
    "forgetful": replace(STORMY, knows_tokens=False, forgotten=0.0),
}


def under_way(world: World) -> int:
    """Return how many operations have not ended."""
    (number,) = world.store._writer.writer_connection.connection.execute("SELECT count(*) FROM work").fetchone()
    return int(number)


async def settled(world: World) -> None:
    """Wait until nothing is under way."""
    async with asyncio.timeout(LONGEST):
        while under_way(world):
            await asyncio.sleep(5.0)


def fair_everywhere(world: World) -> None:
    """Let all storms end."""
    for region in world.cloud._regions.values():
        region.profile = FAIR


async def states(harness: MciHarness, name: str = "m1") -> dict[str, str]:
    return {vm_of(one).name: one.state for one in await harness.service.vms(NS, name)}


# --- storms ----------------------------------------------------------------------------------------------------------


async def wish(harness: MciHarness, chance: Random) -> None:
    """Ask for something, as a user in a hurry does."""
    service, force = harness.service, chance.random() < 0.5
    action = chance.choice(("suspend", "resume", "reboot", "terminate", "terminate"))
    vms = await service.vms(NS, "m1")
    match chance.randrange(8):
        case 0:
            await service.control(NS, "m1", action, ANN, force=force)
        case 1:
            await service.scale(NS, "m1", chance.choice("abc"), chance.choice((-2, 2)), ANN)
        case 2:
            await service.refine(NS, "m1", ANN)
        case 3:
            await harness.plugin.reconciler.reconcile_all()
        case _ if vms:
            await service.control_vm(NS, "m1", vm_of(chance.choice(vms)).name, action, ANN, force=force)


async def trouble(world: World, chance: Random, *, kills: bool) -> None:
    """Ask for this and that while it storms, in the middle of whatever is under way."""
    await world.harness.service.create(NS, mci("m1", *GROUPS, policy=chance.choice(("continue", "refine"))), ANN)
    for _ in range(chance.randint(10, 25)):
        await asyncio.sleep(chance.choice((0.3, 3.0, 30.0)) * chance.random())
        if kills and chance.random() < 0.25:
            await world.kill()
        with suppress(StatewardError):
            await wish(world.harness, chance)
        for machine in [one for one in world.machines() if chance.random() < 0.03]:
            misfortune = chance.choice((world.cloud.stop, world.cloud.fail, world.cloud.terminate))
            misfortune(world.place_of(machine), machine.key)


async def calm(world: World) -> None:
    """Let the storms end, and look whether all has come to rest and is true."""
    fair_everywhere(world)
    await settled(world)
    for _ in range(3):
        await asyncio.sleep(10.0)
        await world.harness.plugin.reconciler.reconcile_all()
    assert await world.doubtful() == []


async def end(world: World) -> None:
    """Terminate what there is, and look whether anything is left."""
    try:
        verdict = await world.harness.service.control(NS, "m1", "terminate", ANN, force=True)
        await world.harness.engine.wait_record(NS, verdict.whole.op.id if verdict.whole else "", LONGEST)
    except Denied:
        pass  # there is no VM that could be terminated
    assert set((await states(world.harness)).values()) <= {"Terminated"}
    assert list(world.machines()) == []
    assert await world.doubtful() == []


@pytest.mark.parametrize("storm", STORMS)
@pytest.mark.parametrize("seed", in_long_form(range(4), short=range(1)))
def test_after_a_storm_all_is_at_rest_and_true_and_can_be_ended(storm: str, seed: int) -> None:
    async def course(world: World) -> None:
        await trouble(world, Random(f"{storm}/{seed}"), kills=False)
        await calm(world)
        await end(world)

    live(seed, STORMS[storm], course)


@pytest.mark.parametrize("seed", in_long_form(range(20), short=range(3)))
def test_after_a_storm_in_which_processes_are_killed_all_is_at_rest_and_true(seed: int) -> None:
    chance = Random(f"kills/{seed}")
    storm = chance.choice(list(STORMS))

    async def course(world: World) -> None:
        await trouble(world, chance, kills=True)
        await calm(world)
        await end(world)

    live(seed, STORMS[storm], course)


SILENT = ("lost answers", "lost requests", "late", "throttled", "missing", "cut short", "late and lost", "half blind")
"""The storms in which nothing is refused, breaks, or relapses."""
SHORT = ("throttled", "late and lost", "half blind")
"""Those with all that the others do."""


async def answered(harness: MciHarness) -> None:
    """Wait until every VM has been shown again: chance may leave a whole region without an answer for minutes."""
    async with asyncio.timeout(LONGEST):
        while "Undefined" in (await states(harness)).values():
            await asyncio.sleep(5.0)


@pytest.mark.parametrize("storm", in_long_form(SILENT, short=SHORT))
@pytest.mark.parametrize("seed", in_long_form(range(2), short=range(1)))
def test_a_provider_that_only_loses_lies_late_or_throttles_fails_no_vm(storm: str, seed: int) -> None:
    async def course(world: World) -> None:
        harness = world.harness
        created = await harness.service.create(NS, mci("m1", *GROUPS), ANN)
        assert (await harness.engine.wait_record(NS, created.op.id, LONGEST)).status is Status.SUCCEEDED
        for action in ("suspend", "resume", "reboot", "suspend", "terminate"):
            await answered(harness)
            verdict = await harness.service.control(NS, "m1", action, ANN)
            assert len(verdict.begun) == 9
            ended = await harness.engine.wait_record(NS, verdict.whole.op.id if verdict.whole else "", LONGEST)
            assert ended.status is Status.SUCCEEDED
        assert set((await states(harness)).values()) == {"Terminated"}
        lines = [line for vm in await harness.service.vms(NS, "m1") for line in await harness.engine.history(NS, vm.id)]
        assert not [line for line in lines if line.target == "Failed"]
        assert {line.event for line in lines if line.target == "Undefined"} <= {"cannot say"}

    live(seed, STORMS[storm], course)


# --- a death at every step -------------------------------------------------------------------------------------------

BRISK = FaultProfile(latency=0.02, pending=0.1, suspending=0.1, resuming=0.1, terminating=0.1)
LAST_STEP, STRIDE = 120, 12


async def whole_life(world: World) -> None:
    """Make an MCI that holds, let it go on, suspend and terminate it, delete it."""
    replacing = asyncio.create_task(world.replace_the_dead())
    harness = world.harness
    await harness.service.create(NS, mci("m1", group("a", 2), group("b", 1, GROUPS[1].spec), hold=True), ANN)
    await come_to(harness, MciState.PREPARED)
    await harness.service.continue_or_withdraw(NS, "m1", "continue", ANN)
    await come_to(harness, MciState.RUNNING)
    for action, state in (("suspend", MciState.SUSPENDED), ("terminate", MciState.TERMINATED)):
        await harness.service.control(NS, "m1", action, ANN)
        await come_to(harness, state)
    assert await world.doubtful() == []
    places = [world.cloud.region(place) for place in (SEOUL, TOKYO)]
    assert [len(place.machines) for place in places] == [2, 1]
    assert [len(place.resources._resources) for place in places] == [
        4,
        4,
    ]  # a network, its subnet, a security group, a key
    assert [len(await harness.engine.history(NS, f"m1.{vm}")) >= 6 for vm in ("a-1", "a-2", "b-1")] == [True] * 3
    await harness.service.delete(NS, "m1", "", ANN)
    assert await harness.service.vms(NS, "m1") == []
    replacing.cancel()


async def come_to(harness: MciHarness, state: MciState) -> None:
    async with asyncio.timeout(120.0):
        while await harness.state() != state:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("first", in_long_form(range(STRIDE), short=range(1)))
def test_whenever_a_process_is_killed_the_next_one_goes_on(first: int) -> None:
    for step in range(1 + first, LAST_STEP, STRIDE):
        live(step, BRISK, whole_life, victim=step)


def test_the_steps_at_which_processes_are_killed_are_all_that_there_are() -> None:
    assert live(0, BRISK, whole_life).killer.passed <= LAST_STEP


# --- one trouble at a time -------------------------------------------------------------------------------------------


async def made(world: World, *groups: object) -> None:
    created = await world.harness.service.create(NS, mci("m1", *(groups or GROUPS)), ANN)  # type: ignore[arg-type]
    await world.harness.engine.wait_record(NS, created.op.id, LONGEST)


def test_a_create_whose_answer_is_lost_is_found_again_and_not_repeated() -> None:
    async def course(world: World) -> None:
        world.cloud.set_profile(SEOUL, FAIR)
        await made(world, group("g0", 1))
        world.cloud.region(SEOUL).fault_injector.script_next(CallFate.ANSWER_LOST)
        grown = await world.harness.service.add_group(NS, "m1", group("g1", 3), ANN)
        assert (await world.harness.engine.wait_record(NS, grown.op.id, LONGEST)).status is Status.SUCCEEDED
        assert len(list(world.machines())) == 4
        assert set((await states(world.harness)).values()) == {"Running"}

    live(1, FAIR, course)


def test_a_throttled_region_is_left_alone_for_a_while_and_no_other_is() -> None:
    async def course(world: World) -> None:
        await made(world)
        world.cloud.region(SEOUL).fault_injector.script_next(*[CallFate.THROTTLED] * 6)
        begun = world.clock()
        verdict = await world.harness.service.control(NS, "m1", "suspend", ANN)
        ended = [await world.harness.engine.wait_record(NS, one.op.id, LONGEST) for one in verdict.begun]
        took = {one.object: (one.ended or 0.0) - begun for one in ended}
        assert {one.status for one in ended} == {Status.SUCCEEDED}
        quick = [seconds for name, seconds in took.items() if not name.startswith("m1.a-")]
        slow = [seconds for name, seconds in took.items() if name.startswith("m1.a-")]
        assert max(quick) < 10.0 < min(slow)
        _, loads = await world.store.reader.lanes()
        throttled = {load.lane.lane for load in loads if load.lane.throttled}
        assert throttled == {"aws/ap-northeast-2"}
        assert set((await states(world.harness)).values()) == {"Suspended"}

    live(2, FAIR, course)


def test_a_region_whose_listing_is_throttled_is_not_asked_again_before_it_likes() -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 1))
        cloud = await world.harness.plugin.clients.by_name("aws-ap-northeast-2")
        world.cloud.region(SEOUL).fault_injector.script_next(CallFate.THROTTLED)
        first = await cloud.list_now()
        again = await cloud.list_now()
        assert (first.complete, first.retry_after_s, again.complete) == (False, 1.0, True)
        assert again.requested_at - first.requested_at >= first.retry_after_s

    live(13, FAIR, course)


def test_one_throttled_call_counts_once_however_many_vms_it_was_for() -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 30))
        world.cloud.region(SEOUL).fault_injector.script_next(CallFate.THROTTLED)
        verdict = await world.harness.service.control(NS, "m1", "suspend", ANN)
        begun = world.clock()
        ended = await world.harness.engine.wait_record(NS, verdict.whole.op.id if verdict.whole else "", LONGEST)
        assert (ended.status, (ended.ended or 0.0) - begun < 10.0) == (Status.SUCCEEDED, True)

    live(11, FAIR, course)


def test_a_dead_region_makes_its_vms_undefined_and_no_others_and_they_come_back() -> None:
    async def course(world: World) -> None:
        await made(world)
        world.cloud.set_profile(SEOUL, replace(FAIR, dead=True))
        verdict = await world.harness.service.control(NS, "m1", "suspend", ANN)
        await world.harness.engine.wait_record(NS, verdict.whole.op.id if verdict.whole else "", LONGEST)
        assert Counter((await states(world.harness)).values()) == {"Suspended": 6, "Undefined": 3}
        assert await world.harness.state() == MciState.PARTIAL
        world.cloud.set_profile(SEOUL, FAIR)
        await world.harness.plugin.reconciler.reconcile_all()
        assert Counter((await states(world.harness)).values()) == {"Suspended": 6, "Running": 3}

    live(3, FAIR, course)


def test_in_a_dead_region_nothing_is_called_terminated() -> None:
    async def course(world: World) -> None:
        await made(world)
        world.cloud.set_profile(SEOUL, replace(FAIR, dead=True))
        verdict = await world.harness.service.control(NS, "m1", "terminate", ANN)
        await world.harness.engine.wait_record(NS, verdict.whole.op.id if verdict.whole else "", LONGEST)
        assert Counter((await states(world.harness)).values()) == {"Terminated": 6, "Undefined": 3}
        for _ in range(5):
            await asyncio.sleep(60.0)
            await world.harness.plugin.reconciler.reconcile_all()
        assert Counter((await states(world.harness)).values()) == {"Terminated": 6, "Undefined": 3}
        world.cloud.set_profile(SEOUL, FAIR)
        await end(world)

    live(4, FAIR, course)


def test_a_terminated_machine_that_is_shown_no_longer_is_terminated() -> None:
    async def course(world: World) -> None:
        await made(world)
        verdict = await world.harness.service.control(NS, "m1", "terminate", ANN)
        assert (
            await world.harness.engine.wait_record(NS, verdict.whole.op.id if verdict.whole else "", LONGEST)
        ).error is None
        assert set((await states(world.harness)).values()) == {"Terminated"}

    live(5, replace(FAIR, forgotten=0.0, terminating=0.0), course)


def test_a_machine_that_disappears_without_a_word_is_undefined_and_not_terminated() -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 2))
        gone = vm_of(await world.harness.service.vm(NS, "m1", "a-1"))
        world.cloud.terminate(SEOUL, gone.uid)
        for _ in range(3):
            await asyncio.sleep(5.0)
            await world.harness.plugin.reconciler.reconcile_all()
        assert await states(world.harness) == {"a-1": "Undefined", "a-2": "Running"}
        await end(world)

    live(6, replace(FAIR, forgotten=0.0), course)


def test_a_listing_that_is_cut_short_proves_nothing() -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 4))
        world.cloud.set_profile(SEOUL, replace(FAIR, cut_short=1.0, page=1))
        for _ in range(10):
            await asyncio.sleep(5.0)
            await world.harness.plugin.reconciler.reconcile_all()
        assert set((await states(world.harness)).values()) == {"Running"}
        world.cloud.set_profile(SEOUL, replace(FAIR, cut_short=1.0, page=1, forgotten=0.0))
        verdict = await world.harness.service.control(NS, "m1", "terminate", ANN)
        await asyncio.sleep(600.0)
        shown = set((await states(world.harness)).values())
        assert shown <= {"Terminating", "Terminated"}
        world.cloud.set_profile(SEOUL, FAIR)
        await world.harness.engine.wait_record(NS, verdict.whole.op.id if verdict.whole else "", LONGEST)
        assert set((await states(world.harness)).values()) == {"Terminated"}

    live(7, FAIR, course)


def test_what_any_incomplete_listing_of_a_round_shows_counts() -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 2))
        world.cloud.set_profile(SEOUL, replace(FAIR, cut_short=1.0, page=1))  # shows a-1, or nothing
        numbers = cycle((1, 0, 0))  # the page that is lost, in the three listings of a round

        class Draws(Random):
            def randrange(self, *limits: int) -> int:  # type: ignore[override]
                return next(numbers) if limits == (2,) else super().randrange(*limits)

        world.cloud.chance = Draws(7)
        for _ in range(30):
            await world.harness.plugin.reconciler.reconcile_all()
            await asyncio.sleep(30.0)
        assert (await states(world.harness))["a-1"] == "Running"

    live(7, FAIR, course)


@pytest.mark.parametrize("action", ["suspend", "terminate"])
def test_a_deed_that_is_accepted_and_not_done_does_not_hold_its_vm_up_for_long(action: str) -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 1))
        world.cloud.set_profile(SEOUL, replace(FAIR, relapses=1.0))
        begun = world.clock()
        accepted = await world.harness.service.control_vm(NS, "m1", "a-1", action, ANN)
        ended = await world.harness.engine.wait_record(NS, accepted.op.id, LONGEST)
        assert ended.status is Status.FAILED
        assert (ended.ended or 0.0) - begun < 300.0
        assert await states(world.harness) == {"a-1": "Failed"}
        world.cloud.set_profile(SEOUL, FAIR)
        reconciled = await world.harness.service.reconcile(NS, "m1", ANN)
        await world.harness.engine.wait_record(NS, reconciled.op.id, LONGEST)
        assert await states(world.harness) == {"a-1": "Running"}

    live(8, FAIR, course)


def test_a_resume_that_was_lost_is_not_taken_for_done_by_a_listing_from_before_the_suspend() -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 1))
        service, vm = world.harness.service, vm_of(await world.harness.service.vm(NS, "m1", "a-1"))
        suspended = await service.control_vm(NS, "m1", "a-1", "suspend", ANN)
        assert (await world.harness.engine.wait_record(NS, suspended.op.id, LONGEST)).status is Status.SUCCEEDED
        world.cloud.set_profile(SEOUL, replace(FAIR, late=20.0))
        assert (await seen_of(world, vm)) == MachineState.RUNNING  # as it was 20 s ago
        world.cloud.region(SEOUL).fault_injector.script_next(CallFate.REQUEST_LOST)
        resumed = await service.control_vm(NS, "m1", "a-1", "resume", ANN)
        ended = await world.harness.engine.wait_record(NS, resumed.op.id, LONGEST)
        assert (ended.status, world.truth(vm)) == (Status.SUCCEEDED, MachineState.RUNNING)

    live(12, FAIR, course)


def test_a_machine_that_was_made_at_last_and_is_not_shown_yet_is_not_taken_for_terminated() -> None:
    async def course(world: World) -> None:
        gate = world.cloud.region(SEOUL).fault_injector
        await world.harness.service.create(NS, mci("m1", group("a", 1)), ANN)
        while "a-1" not in await states(world.harness):
            await asyncio.sleep(0.1)
        vm = vm_of(await world.harness.service.vm(NS, "m1", "a-1"))
        world.cloud.set_profile(SEOUL, replace(FAIR, late=20.0, request_lost=1.0))
        await asyncio.sleep(2 * APPEARS_WITHIN_S)  # its create is lost again and again
        world.cloud.set_profile(SEOUL, replace(FAIR, late=20.0))
        while world.truth(vm) is None:
            await asyncio.sleep(0.01)
        gate.script_next(CallFate.REQUEST_LOST, CallFate.REQUEST_LOST)
        accepted = await world.harness.service.control_vm(NS, "m1", "a-1", "terminate", ANN, force=True)
        await world.harness.engine.wait_record(NS, accepted.op.id, LONGEST)
        assert (await states(world.harness), world.truth(vm)) == ({"a-1": "Terminated"}, MachineState.TERMINATED)

    live(13, FAIR, course)


async def seen_of(world: World, vm: VmSpec) -> MachineState | None:
    """Return what a listing shows of a VM now."""
    cloud = await world.harness.plugin.clients.by_name(vm.connection)
    return next((one.state for one in (await cloud.list_now()).machines if one.key == vm.uid), None)


def test_a_connection_that_is_changed_under_way_holds_nobody_up() -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 1))
        world.cloud.set_profile(SEOUL, replace(FAIR, suspending=30.0))
        accepted = await world.harness.service.control_vm(NS, "m1", "a-1", "suspend", ANN)
        await asyncio.sleep(5.0)
        service = world.harness.service
        await service.add_connection(replace(await service.catalogue.connection("aws-ap-northeast-2"), zone="a"), ANN)
        await world.harness.plugin.reconciler.reconcile_all()
        ended = await world.harness.engine.wait_record(NS, accepted.op.id, 120.0)
        assert ended.status is Status.SUCCEEDED

    live(9, FAIR, course)


def test_machines_that_are_just_being_made_are_no_orphans() -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 1))
        harness = world.harness
        for _ in range(20):
            growing = asyncio.create_task(harness.service.scale(NS, "m1", "a", 1, ANN))
            while not growing.done() or under_way(world):
                assert await harness.plugin.reconciler.reconcile_all() == []
            await growing

    live(10, replace(FAIR, pending=0.0), course)
