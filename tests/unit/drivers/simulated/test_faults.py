"""What goes wrong in a simulated region, one thing at a time, in virtual time."""

import asyncio

import pytest

from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    CallThrottled,
    CallUnanswered,
    MachineAction,
    MachineHandle,
    MachineState,
    ProviderRegion,
    RefusalReason,
    TransientFailure,
)
from stateward.drivers.simulated import STORMY, CallFate
from tests.unit.drivers.simulated.world import TOKYO, World, states


async def test_a_lost_answer_leaves_the_machine(world: World) -> None:
    world.script_next(CallFate.ANSWER_LOST)
    assert isinstance(await world.create("a"), CallUnanswered)
    assert await world.state("a") is MachineState.RUNNING


async def test_a_lost_request_leaves_nothing(world: World) -> None:
    world.script_next(CallFate.REQUEST_LOST)
    assert isinstance(await world.create("a"), CallUnanswered)
    assert await world.state("a") is None


async def test_an_answer_that_does_not_come_is_waited_for(world: World) -> None:
    world.behave(patience=30.0)
    world.script_next(CallFate.ANSWER_LOST)
    await world.create("a")
    assert asyncio.get_running_loop().time() == 30.0


@pytest.mark.parametrize(
    ("fate", "answer"), [(CallFate.TRANSIENT, TransientFailure), (CallFate.THROTTLED, CallThrottled)]
)
async def test_a_call_that_is_turned_back_does_nothing(world: World, fate: CallFate, answer: type) -> None:
    world.script_next(fate)
    assert isinstance(await world.create("a"), answer)
    assert await world.state("a") is None


async def test_a_create_that_is_delivered_twice_makes_one_machine(world: World) -> None:
    world.behave(duplicate_after=5.0)
    world.script_next(CallFate.DUPLICATED)
    await world.create("a")
    await asyncio.sleep(10.0)
    assert await world.states() == {"a": MachineState.RUNNING}


async def test_a_late_duplicate_is_known_by_its_token(world: World) -> None:
    await world.create("a")
    world.behave(duplicate_after=5.0)
    world.script_next(CallFate.DUPLICATED)
    await world.act(MachineAction.SUSPEND, "a", "one")
    await world.act(MachineAction.RESUME, "a", "two")
    await asyncio.sleep(10.0)
    assert await world.state("a") is MachineState.RUNNING


async def test_where_tokens_are_not_known_a_late_duplicate_is_done_again(world: World) -> None:
    await world.create("a")
    world.behave(duplicate_after=5.0, knows_tokens=False)
    world.script_next(CallFate.DUPLICATED)
    await world.act(MachineAction.SUSPEND, "a", "one")
    await world.act(MachineAction.RESUME, "a", "two")
    await asyncio.sleep(10.0)
    assert await world.state("a") is MachineState.SUSPENDED


async def test_a_region_without_room_refuses(world: World) -> None:
    world.behave(refused=1.0)
    outcome = await world.create("a")
    assert isinstance(outcome, CallRefused)
    assert outcome.why is RefusalReason.CAPACITY


async def test_a_machine_that_does_not_come_up_is_shown_as_failed_with_the_reason(world: World) -> None:
    world.behave(fails=1.0, pending=3.0)
    assert isinstance(await world.create("a"), CallAccepted)
    assert await world.state("a") is MachineState.PENDING
    await asyncio.sleep(3.0)
    (seen,) = (await world.driver.observe(["a"])).machines
    assert (seen.state, seen.details["trouble"]) == (MachineState.FAILED, "it did not come up")


async def test_a_deed_that_is_accepted_may_come_to_nothing(world: World) -> None:
    await world.create("a")
    world.behave(relapses=1.0, suspending=2.0)
    assert isinstance(await world.act(MachineAction.SUSPEND, "a"), CallAccepted)
    assert await world.state("a") is MachineState.SUSPENDING
    await asyncio.sleep(2.0)
    assert await world.state("a") is MachineState.RUNNING


async def test_a_termination_that_comes_to_nothing_leaves_a_pending_machine_to_come_up(world: World) -> None:
    world.behave(relapses=1.0, pending=5.0, terminating=2.0)
    await world.create("a")
    await world.act(MachineAction.TERMINATE, "a")
    await asyncio.sleep(2.0)
    assert await world.state("a") is MachineState.RUNNING


async def test_a_region_s_budget_throttles_and_says_how_long_to_wait(world: World) -> None:
    world.behave(calls_a_second=2.0, burst=3.0)
    outcomes = [await world.create(f"key-{number}") for number in range(4)]
    assert [type(outcome) for outcome in outcomes] == [CallAccepted, CallAccepted, CallAccepted, CallThrottled]
    assert isinstance(outcomes[3], CallThrottled)
    await asyncio.sleep(outcomes[3].retry_after_s)
    assert isinstance(await world.create("key-3"), CallAccepted)


async def test_a_throttled_listing_says_how_long_to_wait(world: World) -> None:
    await world.create("a")
    world.script_next(CallFate.THROTTLED)
    listing = await world.driver.observe()
    assert (listing.complete, listing.retry_after_s) == (False, 1.0)
    assert (await world.driver.observe()).retry_after_s == 0.0


async def test_a_throttled_region_leaves_the_others_alone(world: World) -> None:
    world.behave(throttled=1.0)
    (outcome,) = await world.driver_of(TOKYO).create([world.want("a")])
    assert isinstance(outcome, CallAccepted)


async def test_a_late_listing_shows_the_past(world: World) -> None:
    await asyncio.sleep(100.0)
    await world.create("old")
    await asyncio.sleep(20.0)
    world.behave(late=10.0)
    await world.create("young")
    await world.act(MachineAction.SUSPEND, "old")
    assert await world.states() == {"old": MachineState.RUNNING}
    await asyncio.sleep(10.0)
    assert await world.states() == {"old": MachineState.SUSPENDED, "young": MachineState.RUNNING}


async def test_a_listing_that_is_cut_short_says_so(world: World) -> None:
    world.behave(cut_short=1.0, page=2)
    for number in range(6):
        await world.create(f"key-{number}")
    listing = await world.driver.observe()
    assert not listing.complete
    assert listing.problem
    assert len(listing.machines) < 6


async def test_a_listing_that_gets_no_answer_is_waited_for(world: World) -> None:
    world.behave(patience=30.0)
    world.script_next(CallFate.REQUEST_LOST)
    assert not (await world.driver.observe()).complete
    assert asyncio.get_running_loop().time() == 30.0


async def test_a_terminated_machine_is_forgotten_and_its_key_stays_used_up(world: World) -> None:
    world.behave(forgotten=60.0)
    first = await world.create("a")
    await world.act(MachineAction.TERMINATE, "a")
    assert await world.state("a") is MachineState.TERMINATED
    await asyncio.sleep(60.0)
    assert await world.states() == {}
    again = await world.create("a")
    assert isinstance(first, CallAccepted)
    assert again == AlreadyDone("a", first.native_id)
    assert await world.states() == {}


async def test_what_happens_behind_our_back_is_seen(world: World) -> None:
    for key in ("stopped", "killed", "terminated"):
        await world.create(key)
    place = ProviderRegion("aws", "ap-northeast-2")
    world.cloud.stop(place, "stopped")
    world.cloud.fail(place, "killed")
    world.cloud.terminate(place, "terminated")
    world.cloud.create_orphan(place, world.want("orphan"))
    assert await world.states() == {
        "stopped": MachineState.SUSPENDED,
        "killed": MachineState.FAILED,
        "terminated": MachineState.TERMINATED,
        "orphan": MachineState.RUNNING,
    }


async def test_a_command_at_a_dead_region_times_out(world: World) -> None:
    await world.create("a")
    world.behave(dead=True)
    with pytest.raises(TimeoutError):
        await world.driver.run(MachineHandle("a"), "true", "root", 5.0)
    assert asyncio.get_running_loop().time() == 5.0


async def test_a_command_on_a_suspended_machine_is_refused(world: World) -> None:
    await world.create("a")
    await world.act(MachineAction.SUSPEND, "a")
    with pytest.raises(ConnectionRefusedError):
        await world.driver.run(MachineHandle("a"), "true", "root", 5.0)


@pytest.mark.parametrize("seed", range(20))
async def test_in_a_storm_each_key_makes_one_machine(seed: int) -> None:
    world = World(STORMY, seed=seed)
    wants = {want.key: want for want in (world.want() for _ in range(40))}
    left = dict(wants)
    for _ in range(200):
        outcomes = await world.driver.create(list(left.values()))
        left = {one.key: wants[one.key] for one in outcomes if not isinstance(one, (CallAccepted, AlreadyDone))}
        if not left:
            break
    assert not left
    await asyncio.sleep(60.0)
    world.behave(cut_short=0.0, transient=0.0, throttled=0.0, request_lost=0.0, answer_lost=0.0)
    listing = await world.driver.observe()
    assert set(states(listing)) == set(wants)
    assert len({one.native_id for one in listing.machines}) == len(wants)


async def test_one_seed_gives_one_run() -> None:
    runs = []
    for _ in range(2):
        world = World(STORMY, seed=5)
        runs.append([str(await world.create(f"key-{number}")) for number in range(50)])
    assert runs[0] == runs[1]
