"""The seed's words about locking, and the traps of the spec page, on durable locks."""

import pytest

from stateward.engine import Locked, LockRequest
from stateward.store.records import Status
from tests.integration.domains.systems.conftest import NS, Stand, service
from tests.integration.engine.pump_kinds import PUMP

ENDLESS = service("endless v1", deadline=600)


async def begun(stand: Stand, path: str) -> str:
    """Begin a deploy that does not end by itself; returns it."""
    stand.backend.fail(path)
    accepted = await stand.deploy(path, ENDLESS)
    await stand.becomes(accepted.object.id, "in progress")
    return accepted.object.id


async def refused(stand: Stand, path: str) -> Locked:
    with pytest.raises(Locked) as caught:
        await stand.deploy(path, service() if path != "/" else "services: {}")
    return caught.value


# --- "a teardown can be the only action being run on a system" -------------------------------------------------------


async def test_a_teardown_does_not_run_beside_a_deploy(stand: Stand) -> None:
    deploy = await begun(stand, "/a/b")
    with pytest.raises(Locked) as caught:
        await stand.actions.teardown("shop")
    assert [(one.path, one.mode, one.who) for one in caught.value.blockers] == [("/a/b", "X", "ann")]
    await stand.actions.cancel("shop", deploy)


async def test_while_a_teardown_is_active_all_attempts_to_deploy_or_teardown_fail(stand: Stand) -> None:
    blocker = await begun(stand, "/a")
    teardown = await stand.actions.teardown("shop", wait=600)
    assert await stand.locks() == [("/a", "X", False), ("/", "X", True)]
    await stand.actions.cancel("shop", blocker)
    held = await stand.ended(teardown)
    assert held.status is Status.SUCCEEDED
    stand.plant.hold()  # a teardown that stands still: another action that holds X on the root
    await stand.engine.create(NS, "pump", PUMP.kind, "build", tree="shop", locks=[LockRequest("/", "X")])
    for path in ("/", "/a", "/x/y/z"):
        assert [one.path for one in (await refused(stand, path)).blockers] == ["/"]
    with pytest.raises(Locked):
        await stand.actions.teardown("shop")


async def test_the_second_teardown_is_refused_and_the_next_one_finds_nothing_to_do(stand: Stand) -> None:
    blocker = await begun(stand, "/a")
    first = await stand.actions.teardown("shop", wait=600)
    with pytest.raises(Locked) as caught:
        await stand.actions.teardown("shop")
    assert [(one.path, one.waiting) for one in caught.value.blockers] == [("/a", False), ("/", True)]
    await stand.actions.cancel("shop", blocker)
    assert (await stand.ended(first)).status is Status.SUCCEEDED
    assert (await stand.ended(await stand.actions.teardown("shop"))).status is Status.SUCCEEDED


# --- "a deploy can run as long as ..." -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/a/b/c"])
async def test_a_deploy_is_refused_beside_one_above_at_or_below_its_path(stand: Stand, path: str) -> None:
    first = await begun(stand, "/a/b")
    error = await refused(stand, path)
    assert [(one.path, one.mode, one.action) for one in error.blockers] == [("/a/b", "X", "deploy")]
    await stand.actions.cancel("shop", first)


async def test_deploys_on_disjoint_paths_run_side_by_side_and_all_are_named_as_blockers(stand: Stand) -> None:
    paths = ["/a/b", "/a/c", "/ab", "/d"]
    deploys = [await begun(stand, path) for path in paths]
    assert {await stand.state(one) for one in deploys} == {"in progress"}
    with pytest.raises(Locked) as caught:
        await stand.actions.teardown("shop")
    assert [one.path for one in caught.value.blockers] == paths
    assert [one.path for one in (await refused(stand, "/a")).blockers] == ["/a/b", "/a/c"]
    for one in deploys:
        await stand.actions.cancel("shop", one)


async def test_a_and_ab_are_unrelated(stand: Stand) -> None:
    first = await begun(stand, "/a")
    assert (await stand.deployed("/ab", service())).status is Status.SUCCEEDED
    assert (await stand.deployed("/a-b", service())).status is Status.SUCCEEDED
    await stand.actions.cancel("shop", first)


# --- what each action holds ------------------------------------------------------------------------------------------


async def test_the_same_action_asked_for_twice_is_one_action_with_one_lock(stand: Stand) -> None:
    stand.backend.fail("/a")
    first = await stand.deploy("/a", ENDLESS, key="once")
    again = await stand.deploy("/a", ENDLESS, key="once")
    assert first.op.id == again.op.id
    assert await stand.locks() == [("/a", "X", False)]
    await stand.actions.cancel("shop", first.object.id)


async def test_one_action_may_hold_two_paths_and_gives_both_back(stand: Stand) -> None:
    stand.plant.hold()
    two = [LockRequest("/a", "X"), LockRequest("/b/c", "X"), LockRequest("/a", "X")]
    accepted = await stand.engine.create(NS, "pump", PUMP.kind, "build", tree="shop", locks=two)
    assert await stand.locks() == [("/a", "X", False), ("/b/c", "X", False)]
    assert [one.path for one in (await refused(stand, "/b")).blockers] == ["/b/c"]
    stand.plant.release()
    await stand.ended(accepted)
    assert await stand.locks() == []


async def test_who_cannot_have_one_of_its_locks_has_none_and_leaves_the_others_as_they_were(stand: Stand) -> None:
    first = await begun(stand, "/b")
    before = await stand.locks()
    wishes = [LockRequest("/a", "X"), LockRequest("/b", "X"), LockRequest("/c", "X")]
    with pytest.raises(Locked) as caught:
        await stand.engine.create(NS, "pump", PUMP.kind, "build", tree="shop", locks=wishes)
    assert [one.path for one in caught.value.blockers] == ["/b"]
    assert await stand.locks() == before
    await stand.actions.cancel("shop", first)


async def test_status_and_locks_change_in_one_transaction(stand: Stand) -> None:
    accepted = await stand.deploy("/a", service())
    await stand.ended(accepted)
    assert (await stand.state(accepted.object.id), await stand.locks()) == ("succeeded", [])


# --- waiting ---------------------------------------------------------------------------------------------------------


async def test_a_teardown_that_waits_is_not_starved_by_deploys_that_come_later(stand: Stand) -> None:
    first = await begun(stand, "/a")
    teardown = await stand.actions.teardown("shop", wait=600)
    for number in range(5):
        error = await refused(stand, f"/s{number}")
        assert [(one.action, one.waiting) for one in error.blockers] == [("teardown", True)]
    late = await stand.deploy("/late", service(), wait=600)
    await stand.actions.cancel("shop", first)
    assert (await stand.ended(teardown)).status is Status.SUCCEEDED
    assert (await stand.ended(late)).status is Status.SUCCEEDED
    assert await stand.states() == {"late": "stable"}  # it came after the teardown, and not before


async def test_those_who_wait_come_in_the_order_of_asking(stand: Stand) -> None:
    first = await begun(stand, "/a")
    waiting = [await stand.deploy("/a", service(f"run v{number}"), wait=600) for number in range(4)]
    assert [await stand.state(one.object.id) for one in waiting] == ["pending"] * 4
    stand.backend.mend_all()
    await stand.actions.cancel("shop", first)
    ended = [await stand.ended(one) for one in waiting]
    assert [one.status for one in ended] == [Status.SUCCEEDED] * 4
    times = [one.ended or 0.0 for one in ended]
    assert times == sorted(times)
    assert await stand.commands() == {"a": "run v3"}


async def test_who_waits_too_long_fails_and_is_out_of_the_way(stand: Stand) -> None:
    first = await begun(stand, "/a")
    waiting = await stand.deploy("/a/b", service(), wait=0.05)
    assert (await stand.ended(waiting)).status is Status.FAILED
    assert await stand.state(waiting.object.id) == "failed"
    assert await stand.locks() == [("/a", "X", False)]
    await stand.actions.cancel("shop", first)


async def test_one_that_has_begun_is_not_ended_by_its_patience(stand: Stand) -> None:
    accepted = await stand.deploy("/a", service(), wait=600)
    assert (await stand.ended(accepted)).status is Status.SUCCEEDED
    assert await stand.engine.store.reader.timers(NS, 10) == []


async def test_one_that_waits_can_be_cancelled_and_has_done_nothing(stand: Stand) -> None:
    first = await begun(stand, "/a")
    waiting = await stand.deploy("/a/b", service(), wait=600)
    await stand.actions.cancel("shop", waiting.object.id)
    assert await stand.state(waiting.object.id) == "cancelled"
    assert (await stand.ended(waiting)).status is Status.CANCELLED
    assert await stand.engine.store.reader.timers(NS, 10) == []
    assert await stand.locks() == [("/a", "X", False)]
    await stand.actions.cancel("shop", first)
