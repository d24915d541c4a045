"""Locks of systems: the examples of the seed, and the pitfalls of the specification, on durable locks."""

import pytest
from msgspec.structs import replace

from stateward.engine import Engine, Locked, LockRequest
from stateward.store.records import Status
from tests.integration.domains.systems.conftest import NS, SystemsHarness, service
from tests.integration.engine.pump_kinds import PUMP
from tests.waiting import until

ENDLESS = service("endless v1", deadline=600)


async def begun(harness: SystemsHarness, path: str) -> str:
    """Begin a deploy that does not end by itself; returns it."""
    harness.backend.fail(path)
    accepted = await harness.deploy(path, ENDLESS)
    await harness.becomes(accepted.object.id, "in progress")
    return accepted.object.id


async def refused(harness: SystemsHarness, path: str) -> Locked:
    with pytest.raises(Locked) as caught:
        await harness.deploy(path, service() if path != "/" else "services: {}")
    return caught.value


# --- "a teardown can be the only action being run on a system" -------------------------------------------------------


async def test_a_teardown_does_not_run_beside_a_deploy(harness: SystemsHarness) -> None:
    deploy = await begun(harness, "/a/b")
    with pytest.raises(Locked) as caught:
        await harness.actions.teardown("shop")
    assert [(one.path, one.mode, one.who) for one in caught.value.blockers] == [("/a/b", "X", "ann")]
    await harness.actions.cancel("shop", deploy)


async def test_while_a_teardown_is_active_all_attempts_to_deploy_or_teardown_fail(harness: SystemsHarness) -> None:
    blocker = await begun(harness, "/a")
    teardown = await harness.actions.teardown("shop", wait=600)
    assert await harness.locks() == [("/a", "X", False), ("/", "X", True)]
    await harness.actions.cancel("shop", blocker)
    held = await harness.ended(teardown)
    assert held.status is Status.SUCCEEDED
    harness.plant.hold()  # a teardown that stands still: another action that holds X on the root
    await harness.engine.create(NS, "pump", PUMP.kind, "build", tree="shop", locks=[LockRequest("/", "X")])
    for path in ("/", "/a", "/x/y/z"):
        assert [one.path for one in (await refused(harness, path)).blockers] == ["/"]
    with pytest.raises(Locked):
        await harness.actions.teardown("shop")


async def test_the_second_teardown_is_refused_and_the_next_one_finds_nothing_to_do(harness: SystemsHarness) -> None:
    blocker = await begun(harness, "/a")
    first = await harness.actions.teardown("shop", wait=600)
    with pytest.raises(Locked) as caught:
        await harness.actions.teardown("shop")
    assert [(one.path, one.waiting) for one in caught.value.blockers] == [("/a", False), ("/", True)]
    await harness.actions.cancel("shop", blocker)
    assert (await harness.ended(first)).status is Status.SUCCEEDED
    assert (await harness.ended(await harness.actions.teardown("shop"))).status is Status.SUCCEEDED


# --- "a deploy can run as long as ..." -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/a/b/c"])
async def test_a_deploy_is_refused_beside_one_above_at_or_below_its_path(harness: SystemsHarness, path: str) -> None:
    first = await begun(harness, "/a/b")
    error = await refused(harness, path)
    assert [(one.path, one.mode, one.action) for one in error.blockers] == [("/a/b", "X", "deploy")]
    await harness.actions.cancel("shop", first)


async def test_deploys_on_disjoint_paths_run_side_by_side_and_all_are_named_as_blockers(
    harness: SystemsHarness,
) -> None:
    paths = ["/a/b", "/a/c", "/ab", "/d"]
    deploys = [await begun(harness, path) for path in paths]
    assert {await harness.state(one) for one in deploys} == {"in progress"}
    with pytest.raises(Locked) as caught:
        await harness.actions.teardown("shop")
    assert [one.path for one in caught.value.blockers] == paths
    assert [one.path for one in (await refused(harness, "/a")).blockers] == ["/a/b", "/a/c"]
    for one in deploys:
        await harness.actions.cancel("shop", one)


async def test_a_and_ab_are_unrelated(harness: SystemsHarness) -> None:
    first = await begun(harness, "/a")
    assert (await harness.deployed("/ab", service())).status is Status.SUCCEEDED
    assert (await harness.deployed("/a-b", service())).status is Status.SUCCEEDED
    await harness.actions.cancel("shop", first)


# --- what each action holds ------------------------------------------------------------------------------------------


async def test_the_same_action_asked_for_twice_is_one_action_with_one_lock(harness: SystemsHarness) -> None:
    harness.backend.fail("/a")
    first = await harness.deploy("/a", ENDLESS, key="once")
    again = await harness.deploy("/a", ENDLESS, key="once")
    assert first.op.id == again.op.id
    assert await harness.locks() == [("/a", "X", False)]
    await harness.actions.cancel("shop", first.object.id)


async def test_one_action_may_hold_two_paths_and_gives_both_back(harness: SystemsHarness) -> None:
    harness.plant.hold()
    two = [LockRequest("/a", "X"), LockRequest("/b/c", "X"), LockRequest("/a", "X")]
    accepted = await harness.engine.create(NS, "pump", PUMP.kind, "build", tree="shop", locks=two)
    assert await harness.locks() == [("/a", "X", False), ("/b/c", "X", False)]
    assert [one.path for one in (await refused(harness, "/b")).blockers] == ["/b/c"]
    harness.plant.release()
    await harness.ended(accepted)
    assert await harness.locks() == []


async def test_who_cannot_have_one_of_its_locks_has_none_and_leaves_the_others_as_they_were(
    harness: SystemsHarness,
) -> None:
    first = await begun(harness, "/b")
    before = await harness.locks()
    wishes = [LockRequest("/a", "X"), LockRequest("/b", "X"), LockRequest("/c", "X")]
    with pytest.raises(Locked) as caught:
        await harness.engine.create(NS, "pump", PUMP.kind, "build", tree="shop", locks=wishes)
    assert [one.path for one in caught.value.blockers] == ["/b"]
    assert await harness.locks() == before
    await harness.actions.cancel("shop", first)


async def test_status_and_locks_change_in_one_transaction(harness: SystemsHarness) -> None:
    accepted = await harness.deploy("/a", service())
    await harness.ended(accepted)
    assert (await harness.state(accepted.object.id), await harness.locks()) == ("succeeded", [])


# --- waiting ---------------------------------------------------------------------------------------------------------


async def test_a_teardown_that_waits_is_not_starved_by_deploys_that_come_later(harness: SystemsHarness) -> None:
    first = await begun(harness, "/a")
    teardown = await harness.actions.teardown("shop", wait=600)
    for number in range(5):
        error = await refused(harness, f"/s{number}")
        assert [(one.action, one.waiting) for one in error.blockers] == [("teardown", True)]
    late = await harness.deploy("/late", service(), wait=600)
    await harness.actions.cancel("shop", first)
    assert (await harness.ended(teardown)).status is Status.SUCCEEDED
    assert (await harness.ended(late)).status is Status.SUCCEEDED
    assert await harness.states() == {"late": "stable"}  # it came after the teardown, and not before


async def test_those_who_wait_come_in_the_order_of_asking(harness: SystemsHarness) -> None:
    first = await begun(harness, "/a")
    waiting = [await harness.deploy("/a", service(f"run v{number}"), wait=600) for number in range(4)]
    assert [await harness.state(one.object.id) for one in waiting] == ["pending"] * 4
    harness.backend.mend_all()
    await harness.actions.cancel("shop", first)
    ended = [await harness.ended(one) for one in waiting]
    assert [one.status for one in ended] == [Status.SUCCEEDED] * 4
    times = [one.ended or 0.0 for one in ended]
    assert times == sorted(times)
    assert await harness.commands() == {"a": "run v3"}


async def test_who_waits_too_long_fails_and_is_out_of_the_way(harness: SystemsHarness) -> None:
    first = await begun(harness, "/a")
    waiting = await harness.deploy("/a/b", service(), wait=0.05)
    ended, change = await harness.ended(waiting), await harness.engine.record(NS, waiting.object.id)
    assert (ended.status, change.state) == (Status.FAILED, "failed")
    assert ended.error == change.error == "it did not get the lock on /a/b of shop within 0.05 s"
    assert await harness.locks() == [("/a", "X", False)]
    await harness.actions.cancel("shop", first)


async def test_one_that_has_begun_is_not_ended_by_its_patience(harness: SystemsHarness) -> None:
    accepted = await harness.deploy("/a", service(), wait=600)
    assert (await harness.ended(accepted)).status is Status.SUCCEEDED
    assert await harness.engine.store.reader.timers(NS, 10) == []


async def test_one_that_has_its_lock_when_its_time_to_wait_for_it_ends_goes_on(
    harness: SystemsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer fires after a worker has claimed the deploy, and before the worker removes the timer."""
    unset_timer = Engine.unset_timer

    async def fire_first(engine: Engine, ns: str, timer: str) -> None:
        (found,) = await engine.store.reader.timers(NS, 10)
        await engine.set_timer(replace(found, due=0.0))

        await until(lambda: engine.store.reader.timers(NS, 10), lambda timers: not timers)
        await unset_timer(engine, ns, timer)

    monkeypatch.setattr(Engine, "unset_timer", fire_first)
    ended = await harness.ended(await harness.deploy("/a", service(), wait=600))
    assert (ended.status, ended.error) == (Status.SUCCEEDED, None)


async def test_one_that_waits_can_be_cancelled_and_has_done_nothing(harness: SystemsHarness) -> None:
    first = await begun(harness, "/a")
    waiting = await harness.deploy("/a/b", service(), wait=600)
    await harness.actions.cancel("shop", waiting.object.id)
    assert await harness.state(waiting.object.id) == "cancelled"
    ended = await harness.ended(waiting)
    assert (ended.status, str(ended.error).partition(" (after ")[0]) == (Status.CANCELLED, "cancelled by ann")
    assert await harness.engine.store.reader.timers(NS, 10) == []
    assert await harness.locks() == [("/a", "X", False)]
    await harness.actions.cancel("shop", first)
