"""What can be claimed, in which order, and what a claim changes."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.store import Store, Tx
from stateward.store.errors import WriteConflict
from stateward.store.records import Status, WorkItem
from tests.contract.samples import a_worker, accepted, an_object, an_operation, key, some_work
from tests.contract.store_calls import ask, claim_names, claim_work, until, write

HIDDEN_BY: dict[str, dict[str, Any]] = {
    "not ready": {"ready": False},
    "another party's": {"remote": True},
    "fenced": {"fenced": True},
    "waiting for children": {"children": 2},
    "owned": {"owner": "somebody"},
    "not due": {"not_before": 1e12},
}


async def one_work(store: Store, name: str) -> WorkItem:
    """Return the work of an operation."""
    found: WorkItem = (await ask(store, "work", [key(name)]))[key(name)]
    return found


async def test_work_is_claimed_first_come_first_served(store: Store) -> None:
    await write(store, accepted("c", "a"))
    await write(store, accepted("b"))
    assert await claim_names(store) == ["c", "a", "b"]


async def test_higher_priorities_go_first(store: Store) -> None:
    await write(store, accepted("low", priority=-5))
    await write(store, accepted("plain one", "plain two"))
    await write(store, accepted("high", priority=5))
    assert await claim_names(store) == ["high", "plain one", "plain two", "low"]


async def test_no_more_is_claimed_than_there_is_room_for(store: Store) -> None:
    await write(store, accepted("a", "b", "c"))
    claims = await ask(store, "claim", {"": 2}, "worker")
    assert [claim.work.op for claim in claims] == ["a", "b"]
    assert await claim_names(store) == ["c"]


async def test_nothing_is_claimed_where_there_is_no_room(store: Store) -> None:
    await write(store, accepted("a"))
    assert await ask(store, "claim", {"": 0}, "worker") == []
    assert await ask(store, "claim", {}, "worker") == []


async def test_each_lane_has_its_own_room(store: Store) -> None:
    await write(store, accepted("a", "b", "c", lane="x", grp="g"))
    await write(store, accepted("d", "e", lane="y", grp="g"))
    await write(store, accepted("f", lane="z", grp="g"))
    assert await claim_names(store, y=5, x=2) == ["a", "b", "d", "e"]


@pytest.mark.parametrize("why", HIDDEN_BY)
async def test_it_is_not_claimed_when_it_is(store: Store, why: str) -> None:
    await write(store, accepted("hidden", **HIDDEN_BY[why]))
    await write(store, accepted("open"))
    assert await claim_names(store) == ["open"]


@pytest.mark.parametrize("why", HIDDEN_BY)
async def test_it_is_claimed_once_it_is_no_longer(store: Store, why: str) -> None:
    await write(store, accepted("hidden", **HIDDEN_BY[why]))
    plain = some_work("hidden", "on-hidden", seq=(await one_work(store, "hidden")).seq)
    await write(store, work=[plain])
    assert await claim_names(store) == ["hidden"]


async def test_delayed_work_is_claimed_when_its_time_has_come(store: Store) -> None:
    due = await store.reader.time() + 0.02
    await write(store, accepted("later", not_before=due))
    await write(store, accepted("now"))
    await until(store, due)
    assert await claim_names(store) == ["later", "now"]


async def test_work_of_the_past_is_not_delayed(store: Store) -> None:
    await write(store, accepted("a", not_before=await store.reader.time() - 5))
    assert await claim_names(store) == ["a"]


async def test_a_claim_sets_the_owner_and_raises_epoch_and_attempts(store: Store) -> None:
    await write(store, accepted("a", epoch=4, attempts=2))
    (claim,) = await claim_work(store, "worker")
    assert (claim.work.owner, claim.work.epoch, claim.work.attempts) == ("worker", 5, 3)
    assert await one_work(store, "a") == claim.work


async def test_a_claim_brings_the_operation_and_the_object(store: Store) -> None:
    one = an_object("a", spec='{"n": 1}', queue="vm")
    operation = an_operation("op", "a", hidden=True, previous_spec="{}", parent="group", tree="t", args='{"x": 1}')
    await write(store, objects=[one], operations=[operation], new_work=[some_work("op", "a", queue="vm", observe=True)])
    (claim,) = await claim_work(store)
    assert (claim.object, claim.operation) == (one, operation)
    assert (claim.work.queue, claim.work.observe, claim.work.ready) == ("vm", True, True)
    assert claim.operation.status is Status.WAITING


async def test_the_deadline_begins_with_the_first_claim(store: Store) -> None:
    await write(store, accepted("a"))

    async def claim(tx: Tx) -> tuple[float, float | None]:
        (claim,) = await tx.claim({"": 1}, "worker")
        return tx.now, claim.work.deadline

    now, deadline = await store.transact(claim)
    assert deadline == pytest.approx(now + 60.0, abs=1e-6)


async def test_a_deadline_that_was_set_stays(store: Store) -> None:
    await write(store, accepted("a", deadline=12345.5))
    (claim,) = await claim_work(store)
    assert claim.work.deadline == 12345.5


async def test_claimed_work_is_not_claimed_again(store: Store) -> None:
    await write(store, accepted("a"))
    assert await claim_names(store) == ["a"]
    assert await claim_names(store) == []


async def test_work_given_back_is_claimed_again_with_the_next_epoch(store: Store) -> None:
    await write(store, accepted("a", "b"))
    first, _ = await claim_work(store, "dead")
    await write(store, work=[replace(first.work, owner=None, observe=True)])
    (again,) = await claim_work(store, "alive")
    assert (again.work.op, again.work.epoch, again.work.attempts, again.work.observe) == ("a", 2, 2, True)


async def test_work_that_is_gone_is_not_claimed(store: Store) -> None:
    await write(store, accepted("a", "b"))
    await write(store, work_gone=[key("a"), key("nobody")])
    assert await claim_names(store) == ["b"]


async def test_work_that_is_not_there_cannot_be_changed(store: Store) -> None:
    with pytest.raises(WriteConflict):
        await write(store, work=[some_work("nobody", seq=1)])


async def test_racing_claimers_never_get_the_same_work(store: Store, second: Store) -> None:
    await write(store, accepted(*(f"op{number:03}" for number in range(200))))

    async def claim_all(one: Store, owner: str) -> list[str]:
        found: list[str] = []
        while claims := await ask(one, "claim", {"": 7}, owner):
            found += [claim.work.op for claim in claims]
        return found

    crowd = [claim_all((store, second)[number % 2], f"worker {number}") for number in range(8)]
    found = await asyncio.gather(*crowd)
    everything = [op for ops in found for op in ops]
    assert sorted(everything) == [f"op{number:03}" for number in range(200)]


async def test_every_column_of_work_can_be_changed(store: Store) -> None:
    await write(store, accepted("a"))
    changed = WorkItem(
        ns="acme",
        op="a",
        object="other",
        queue="line",
        seq=77,
        lane="lane",
        grp="group",
        priority=-3,
        ready=False,
        remote=True,
        fenced=True,
        cancelled=True,
        children=4,
        not_before=1e12,
        deadline=99.5,
        owner="owner",
        epoch=8,
        attempts=9,
        observe=True,
    )
    await write(store, work=[changed])
    assert await one_work(store, "a") == changed
    assert await ask(store, "queues", [key("line"), key("on-a")]) == [changed]


async def test_the_queues_of_objects_are_returned_in_the_order_of_acceptance(store: Store) -> None:
    rows = [("1", "vm"), ("2", "disk"), ("3", "vm"), ("4", "other")]
    await write(store, new_work=[some_work(name, "x", queue=queue) for name, queue in rows])
    found = await ask(store, "queues", [key("vm"), key("disk"), key("nobody")])
    assert [one.op for one in found] == ["1", "2", "3"]
    assert [one.op for one in await store.reader.queue_of(key("vm"))] == ["1", "3"]


async def test_owned_work_is_found_by_its_owner(store: Store) -> None:
    await write(store, accepted("a", "b", "c"))
    await ask(store, "heartbeat", a_worker("mine"))
    await ask(store, "claim", {"": 2}, "mine")
    await ask(store, "claim", {"": 2}, "theirs")
    assert [one.op for one in await ask(store, "owned", "mine")] == ["a", "b"]
    assert await ask(store, "owned", "nobody") == []
