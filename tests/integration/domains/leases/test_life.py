"""The lifecycle of a lease: created, started, warned of its end, ended, deleted."""

import asyncio

import pytest
from msgspec.structs import replace

from stateward.domains.leases import lease_parts
from stateward.domains.leases.errors import LeaseActionFailed, NotEnoughHosts, NotRecoverable
from stateward.domains.leases.lifecycle import EventState, ReservationState
from stateward.domains.leases.model import EventType, HostSeen, Lease, describe_reservation_errors
from stateward.domains.leases.settings import Settings
from stateward.engine import NotFound, Refused
from stateward.engine.errors import NotCancelled
from stateward.store.changes import Changes
from stateward.store.port import Tx
from stateward.store.records import Key, to_json
from tests.integration.domains.leases.conftest import ME, NS, LeaseHarness, Opening, at, hosts, thing
from tests.integration.domains.leases.scripted_resource import later, never
from tests.waiting import until

LIFE = [
    ("create", "CREATING"),
    ("succeeded", "PENDING"),
    ("start", "STARTING"),
    ("succeeded", "ACTIVE"),
    ("before end", "ACTIVE"),
    ("end", "TERMINATING"),
    ("succeeded", "TERMINATED"),
]


async def test_a_lease_has_its_host_from_its_start_to_its_end(site: LeaseHarness) -> None:
    await site.hosts("h1")
    lease = await site.lease("night")
    active = await site.until(lease, "ACTIVE")
    assert active.seen.booked == {"h1"}
    assert [one.lease for one in (await site.host("h1")).seen.held] == [lease.object.id]
    assert {one.status for one in active.seen.reservations.values()} == {ReservationState.ACTIVE}
    await site.plugin.leases.update(ME, lease.object.id, {"end_date": "now"})
    ended = await site.until(lease, "TERMINATED")
    assert (await site.host("h1")).seen == HostSeen()
    assert {one.status for one in ended.seen.reservations.values()} == {ReservationState.DELETED}
    assert set(ended.seen.events.values()) == {EventState.DONE}


async def test_a_lease_starts_warns_and_ends_at_its_times(site: LeaseHarness) -> None:
    await site.hosts("h1")
    lease = await site.lease("short", start=0.2, end=0.6)
    ended = await site.until(lease, "TERMINATED")
    assert await site.moves(lease) == LIFE
    times = {line.event: line.at for line in await site.engine.history(NS, lease.object.id) if line.actor == "clock"}
    assert times["start"] >= ended.spec.start
    assert times["end"] >= ended.spec.end


async def test_a_lease_whose_end_is_its_start_still_does_everything_once(site: LeaseHarness) -> None:
    await site.hosts("h1")
    lease = await site.lease("blink", start=0.3, end=0.3)
    await site.until(lease, "TERMINATED")
    assert await site.moves(lease) == LIFE


async def test_back_to_back_leases_on_one_host_hand_it_on(site: LeaseHarness) -> None:
    await site.hosts("h1")
    early = await site.lease("early", start=0.2, end=61.0)
    late = await site.lease("late", start=61.0, end=200.0)
    assert early.seen.booked == late.seen.booked == {"h1"}
    await site.until(early, "ACTIVE")
    await site.plugin.leases.update(ME, early.object.id, {"end_date": "now"})
    await site.until(early, "TERMINATED")
    await site.plugin.leases.update(ME, late.object.id, {"start_date": "now"})
    await site.until(late, "ACTIVE")
    assert [one.lease for one in (await site.host("h1")).seen.held] == [late.object.id]


async def test_what_is_free_before_and_after_a_lease_can_be_reserved_but_not_what_overlaps_it(
    site: LeaseHarness,
) -> None:
    await site.hosts("h1")
    await site.lease("middle", start=3600, end=7200)
    await site.lease("before", start=60, end=3600 - 300)
    await site.lease("after", start=7200 + 1, end=9000)
    with pytest.raises(NotEnoughHosts):
        await site.lease("across", start=3000, end=8000)


async def test_a_lease_in_one_hour_leaves_the_rest_of_that_hour_to_others(site: LeaseHarness) -> None:
    await site.hosts("h1")
    for number in range(10):
        await site.lease(f"slot {number}", start=7200 + number * 300, end=7200 + number * 300 + 290)
    assert len((await site.host("h1")).seen.bookings) == 10


async def test_cleaning_time_lies_between_two_leases(site: LeaseHarness) -> None:
    await site.hosts("h1", cleaning_time="10")
    await site.lease("first", start=3600, end=7200)
    with pytest.raises(NotEnoughHosts):
        await site.lease("too soon", start=7200 + 300, end=9000)
    with pytest.raises(NotEnoughHosts):
        await site.lease("too late", start=60, end=3600 - 300)
    await site.lease("second", start=7200 + 601, end=9000)


async def test_without_a_warning_before_the_end_there_is_none(opening: Opening) -> None:
    async with opening(Settings(before_end=0.0)) as site:
        lease = await site.lease("quiet", thing("lamp"), end=0.3)
        assert lease.spec.before_end is None
        await site.until(lease, "TERMINATED")
        assert ("before end", "ACTIVE") not in await site.moves(lease)


async def test_a_failed_start_is_tried_again_and_succeeds(site: LeaseHarness) -> None:
    site.things.fail["lamp"] = later(3)
    lease = await site.lease("patient", thing("lamp"))
    await site.until(lease, "ACTIVE")
    assert site.things.out["lamp"] == 1


async def test_an_error_of_io_counts_as_temporary_and_its_text_is_kept(site: LeaseHarness) -> None:
    site.things.fail["lamp"] = [ConnectionError("no route to host")]
    lease = await site.lease("patient", thing("lamp"))
    await site.until(lease, "ACTIVE")
    (start,) = [one for one in await site.engine.history(NS, lease.object.id) if one.event == "start"]
    operation = await site.engine.store.reader.operation(Key(NS, str(start.op)))
    assert operation is not None
    assert "no route to host" in operation.steps


async def test_if_one_of_three_reservations_fails_the_others_go_on(site: LeaseHarness) -> None:
    await site.hosts("h1")
    site.things.fail["lamp"] = never()
    lease = await site.lease("three", thing("lamp"), thing("uow"), hosts())
    failed = await site.until(lease, "ERROR")
    statuses = [seen.status for _, seen in failed.reservations()]
    assert statuses == [ReservationState.ERROR, ReservationState.ACTIVE, ReservationState.ACTIVE]
    assert failed.seen.events[EventType.START] is EventState.ERROR
    assert "broken" in str(failed.object.error)
    assert "broken" in describe_reservation_errors(failed.object)
    await site.plugin.leases.update(ME, lease.object.id, {"end_date": "now"})
    await until(lambda: _ended(site, failed.object.id))
    ended = await site.now(lease)
    assert ended.object.state == "ERROR"  # its start had failed: it never was what it was to be
    assert {seen.status for _, seen in ended.reservations()} == {ReservationState.DELETED}
    assert (await site.host("h1")).seen.held == ()
    assert site.things.back == {"lamp": 1, "uow": 1}


async def _ended(site: LeaseHarness, id_: str) -> bool:
    return (await site.plugin.leases.get(NS, id_)).seen.events[EventType.END] is EventState.DONE


async def test_an_error_whose_parts_speak_for_no_status_is_not_left(site: LeaseHarness) -> None:
    site.things.fail["end of lamp"] = never()
    lease = await site.lease("stubborn", thing("lamp"), end=0.3)
    failed = await site.until(lease, "ERROR")
    assert failed.seen.events[EventType.END] is EventState.ERROR
    with pytest.raises(NotRecoverable):
        await site.plugin.leases.recover(ME, lease.object.id)
    with pytest.raises(NotRecoverable):
        await site.engine.act(NS, lease.object.id, "recover", facts=["derived=PENDING"])


async def test_a_start_that_ran_out_of_time_is_recovered_and_done_again(site: LeaseHarness) -> None:
    await site.hosts("h1")
    lease = await site.lease("late", start=3600, end=7200)
    await site.plugin.leases.update(ME, lease.object.id, {"start_date": "now"})
    await site.until(lease, "ACTIVE")
    await _left_behind(site, lease)
    recovered = await site.plugin.leases.recover(ME, lease.object.id)
    assert recovered.object.state == "PENDING"
    await site.until(lease, "ACTIVE")


async def _left_behind(site: LeaseHarness, lease: Lease) -> None:
    """Leave a lease as the healer does whose start has outlived its deadline."""
    seen = lease_parts.fire_event(
        lease_parts.new_parts(
            {k: replace(v, status=ReservationState.PENDING) for k, v in lease.seen.reservations.items()}
        ),
        EventType.START,
    )

    async def program(tx: Tx) -> None:
        found = (await tx.objects([lease.object.key]))[lease.object.key]
        await tx.apply(Changes(objects=[replace(found, state="ERROR", seen=to_json(seen), version=found.version + 1)]))

    await site.engine.store.transact(program)


async def test_delete_wins_over_a_start_that_hangs(site: LeaseHarness) -> None:
    site.things.hang.add("lamp")
    lease = await site.lease("hung", thing("lamp"))
    await until(lambda: _true("lamp" in site.things.hanging))
    await site.until(lease, "STARTING")
    await site.plugin.leases.delete(ME, lease.object.id)
    await site.gone(lease)
    assert site.things.out["lamp"] == 0
    assert site.things.back["lamp"] == 1


async def _true(value: bool) -> bool:
    return value


async def test_a_delete_that_fails_half_way_can_be_repeated_and_finishes(site: LeaseHarness) -> None:
    await site.hosts("h1")
    site.things.fail["end of lamp"] = never()
    lease = await site.lease("half", thing("lamp"), hosts(), thing("uow"))
    await site.until(lease, "ACTIVE")
    await site.plugin.leases.delete(ME, lease.object.id)
    await site.until(lease, "ERROR")
    assert site.things.back == {"uow": 1}
    assert (await site.host("h1")).seen.bookings == ()
    site.things.fail.clear()
    await site.plugin.leases.delete(ME, lease.object.id)
    await site.gone(lease)
    assert site.things.back == {"uow": 1, "lamp": 1}


async def test_a_delete_during_a_delete_joins_it(site: LeaseHarness) -> None:
    site.things.hang.add("end of lamp")
    lease = await site.lease("twice", thing("lamp"))
    await site.until(lease, "ACTIVE")
    first = await site.plugin.leases.delete(ME, lease.object.id)
    await until(lambda: _true(bool(site.things.hanging)))
    others = await asyncio.gather(*(site.plugin.leases.delete(ME, lease.object.id) for _ in range(15)))
    assert {one.object.op for one in others} == {first.object.op}
    site.things.release.set()
    await asyncio.gather(*(site.plugin.leases.await_delete(one) for one in others))
    await site.gone(lease)
    assert site.things.back["lamp"] == 1
    assert [event for event, _ in await site.moves(lease)].count("delete") == 1


async def test_deletes_at_the_same_time_are_one(site: LeaseHarness) -> None:
    site.things.hang.add("end of lamp")
    lease = await site.lease("all at once", thing("lamp"), start=3600)
    begun = await asyncio.gather(*(site.plugin.leases.delete(ME, lease.object.id) for _ in range(15)))
    assert len({one.object.op for one in begun}) == 1
    site.things.release.set()
    await asyncio.gather(*(site.plugin.leases.await_delete(one) for one in begun))
    assert site.things.back["lamp"] == 1


async def test_a_delete_that_fails_is_told_to_who_waits_for_it(site: LeaseHarness) -> None:
    site.things.fail["end of lamp"] = never()
    lease = await site.lease("stuck", thing("lamp"), start=3600)
    with pytest.raises(LeaseActionFailed, match="broken"):
        await site.plugin.leases.await_delete(await site.plugin.leases.delete(ME, lease.object.id))


async def test_a_lease_that_is_ending_refuses_an_update_whatever_is_asked(site: LeaseHarness) -> None:
    site.things.hang.add("end of lamp")
    lease = await site.lease("ending", thing("lamp"), end=0.5)
    await site.until(lease, "TERMINATING")
    for given in ({"name": "new"}, {"end_date": at(7200)}, {"start_date": "now"}, {}):
        with pytest.raises(Refused) as caught:
            await site.plugin.leases.update(ME, lease.object.id, given)
        assert caught.value.refusal.state == "TERMINATING"
        assert caught.value.blocker is not None
        assert caught.value.blocker.action == "end"


async def test_work_on_a_lease_is_not_cancelled(site: LeaseHarness) -> None:
    site.things.hang.add("lamp")
    lease = await site.lease("firm", thing("lamp"))
    starting = await site.until(lease, "STARTING")
    with pytest.raises(NotCancelled):
        await site.engine.cancel(NS, str(starting.object.op))


async def test_a_deleted_lease_is_not_found(site: LeaseHarness) -> None:
    lease = await site.lease("short", thing("lamp"), start=3600)
    await site.plugin.leases.delete(ME, lease.object.id)
    await site.gone(lease)
    with pytest.raises(NotFound):
        await site.plugin.leases.delete(ME, lease.object.id)


async def test_a_lease_in_transition_refuses_an_update_and_names_what_is_in_the_way(site: LeaseHarness) -> None:
    site.things.hang.add("lamp")
    lease = await site.lease("busy", thing("lamp"))
    await site.until(lease, "STARTING")
    with pytest.raises(Refused) as caught:
        await site.plugin.leases.update(ME, lease.object.id, {"name": "other"})
    assert caught.value.blocker is not None
    assert caught.value.blocker.action == "start"


async def test_a_lease_without_reservations_lives_all_the_same(site: LeaseHarness) -> None:
    given = {"name": "empty", "end_date": at(3600), "reservations": []}
    lease = await site.plugin.leases.create(ME, given)
    await site.until(lease, "ACTIVE")
    await site.plugin.leases.update(ME, lease.object.id, {"end_date": "now"})
    await site.until(lease, "TERMINATED")
