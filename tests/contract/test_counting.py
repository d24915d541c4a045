"""Counts of objects and open operations: for quotas in a transaction, and for readers."""

import asyncio

from msgspec.structs import replace

from stateward.store import Changes, Store
from stateward.store.filters import JournalFilter
from stateward.store.port import LaneWork
from tests.contract.samples import NS, accepted, an_entry, an_object, some_work
from tests.contract.store_calls import ask, claim_work, write


async def test_the_objects_of_a_kind_are_counted_without_the_removed_ones(store: Store) -> None:
    others = [an_object("d", kind="disk"), an_object("e", ns="other"), an_object("f", removed=True)]
    await write(store, objects=[an_object("a"), an_object("b", state="Failed"), an_object("c"), *others])
    assert await ask(store, "count_objects", NS, "vm", 100) == 3
    assert await ask(store, "count_objects", NS, "disk", 100) == 1
    assert await ask(store, "count_objects", NS, "net", 100) == 0


async def test_counting_ends_where_it_is_of_no_use_any_more(store: Store) -> None:
    await write(store, objects=[an_object(f"vm-{number}") for number in range(10)])
    assert await ask(store, "count_objects", NS, "vm", 4) == 4
    assert await ask(store, "count_objects", NS, "vm", 0) == 0


async def test_operations_under_way_are_counted_running_or_not_but_no_ghosts(store: Store) -> None:
    await write(store, accepted("a", "b", "c"))
    await write(store, new_work=[some_work("d", ns="other")])
    claim, _ = await ask(store, "claim", {"": 2}, "worker")
    assert await ask(store, "count_open_operations", NS, 100) == 3
    assert await ask(store, "count_open_operations", NS, 2) == 2
    await write(store, work=[replace(claim.work, fenced=True)])
    assert await ask(store, "count_open_operations", NS, 100) == 2


async def test_the_work_of_each_lane_is_told_with_the_age_of_the_oldest(store: Store) -> None:
    await write(store, _joined(accepted("a", "b", lane="eu"), accepted("c", lane="us"), accepted("r", remote=True)))
    await claim_work(store, eu=1)
    told = await store.reader.work_by_lane()
    assert told == [LaneWork("", 1, 0, 100.5), LaneWork("eu", 1, 1, 100.5), LaneWork("us", 0, 1, 100.5)]


async def test_namespaces_are_told_in_order_whatever_they_hold(store: Store) -> None:
    assert await store.reader.namespaces() == []
    objects = [an_object(name, ns=ns) for ns in ("b", "c", "a") for name in ("one", "two")]
    await write(store, objects=[*objects, an_object("gone", ns="d", removed=True)])
    assert await store.reader.namespaces() == ["a", "b", "c", "d"]


async def test_a_census_counts_by_namespace_kind_and_state_without_the_removed_ones(store: Store) -> None:
    assert (await store.reader.count_by_namespace([NS])).counts == {}
    others = [an_object("d", kind="disk"), an_object("e", ns="other"), an_object("f", removed=True)]
    await write(store, objects=[an_object("a", state="Failed"), an_object("b", state="Failed"), *others])
    vms, disks = {(NS, "vm", "Failed"): 2}, {(NS, "disk", others[0].state): 1}
    assert (await store.reader.count_by_namespace([NS, "nowhere"])).counts == vms | disks
    assert (await store.reader.count_by_namespace([NS, "other"], "disk")).counts == disks
    assert (await store.reader.count_by_namespace(["other"])).counts == {("other", "vm", others[1].state): 1}
    assert (await store.reader.count_by_namespace([])).counts == {}


async def test_a_census_tells_after_which_line_it_was_taken_whoever_writes_meanwhile(
    store: Store, second: Store
) -> None:
    async def born() -> None:
        for number in range(60):
            await write(store, objects=[an_object(f"vm-{number}")], journal=[an_entry(f"vm-{number}")])

    writing, taken = asyncio.create_task(born()), []
    while not writing.done():
        taken.append(await second.reader.count_by_namespace([NS]))
        await asyncio.sleep(0)
    await writing
    numbers = [line.seq for line in await store.reader.journal(0, 1_000, JournalFilter())]
    for one in taken:
        assert sum(one.counts.values()) == sum(number <= one.seq for number in numbers)


def _joined(*changes: Changes) -> Changes:
    return Changes(
        objects=[one for each in changes for one in each.objects],
        operations=[one for each in changes for one in each.operations],
        new_work=[one for each in changes for one in each.new_work],
    )
