"""Updates of a lease: which fields may change when; a refused update changes nothing."""

import pytest

from stateward.domains.leases.errors import NotEnoughHosts, NotPlanned, ReservationNotChangeable
from stateward.domains.leases.lifecycle import EventState
from stateward.domains.leases.model import EventType, Lease
from stateward.engine import Refused
from stateward.engine.errors import Protected
from stateward.errors import BadInput
from tests.integration.domains.leases.conftest import ME, NS, LeaseHarness, at, hosts, thing
from tests.integration.domains.leases.scripted_resource import never
from tests.waiting import until


async def changed(site: LeaseHarness, lease: Lease, **given: object) -> Lease:
    return await site.plugin.leases.update(ME, lease.object.id, given)


async def test_a_pending_lease_can_be_moved_and_renamed(site: LeaseHarness) -> None:
    await site.hosts("h1")
    lease = await site.lease("tomorrow", start=3600, end=7200)
    moved = await changed(site, lease, name="the day after", start_date=at(7200), end_date=at(9000))
    assert (moved.object.state, moved.spec.name) == ("PENDING", "the day after")
    (booking,) = (await site.host("h1")).seen.bookings
    assert (booking.start, booking.end) == (moved.spec.start, moved.spec.end)


async def test_a_pending_lease_gets_other_hosts_if_its_own_are_taken_then(site: LeaseHarness) -> None:
    await site.hosts("h1", "h2")
    first = await site.lease("first", start=3600, end=7200)
    other = await site.lease("other", start=7300, end=9000)
    assert first.seen.booked == other.seen.booked == {"h1"}
    moved = await changed(site, first, end_date=at(8000))
    assert moved.seen.booked == {"h2"}
    assert [one.lease for one in (await site.host("h1")).seen.bookings] == [other.object.id]


async def test_hosts_in_use_are_not_exchanged_for_others(site: LeaseHarness) -> None:
    await site.hosts("h1", "h2")
    running = await site.lease("running", end=3600)
    await site.until(running, "ACTIVE")
    blocker = await site.lease("next", start=3700, end=9000)
    assert blocker.seen.booked == {"h1"}
    with pytest.raises(NotEnoughHosts) as caught:
        await changed(site, running, end_date=at(5000))
    assert caught.value.kept == 0
    assert (await site.now(running)).spec == running.spec


async def test_an_active_lease_can_be_extended_and_is_warned_again(site: LeaseHarness) -> None:
    await site.hosts("h1")
    lease = await site.lease("long", end=1800)  # less than an hour: the warning comes at the start
    await site.until(lease, "ACTIVE")
    await until(lambda: _warned(site, lease))
    extended = await changed(site, lease, end_date=at(7200), before_end_date=at(7000))
    assert extended.object.state == "ACTIVE"
    assert extended.seen.events[EventType.BEFORE_END] is EventState.UNDONE
    (booking,) = (await site.host("h1")).seen.bookings
    assert booking.end == extended.spec.end


async def _warned(site: LeaseHarness, lease: Lease) -> bool:
    return (await site.now(lease)).seen.events[EventType.BEFORE_END] is EventState.DONE


async def test_an_extended_lease_does_not_end_at_its_former_end(site: LeaseHarness) -> None:
    lease = await _extended(site)
    ended = await site.until(lease, "TERMINATED")
    (line,) = [one for one in await site.engine.history(NS, lease.object.id) if one.event == "end"]
    assert line.at >= ended.spec.end > lease.spec.end


async def _extended(site: LeaseHarness) -> Lease:
    """Return a lease as it was before it was extended, in time: how long that takes depends on the machine."""
    for span in (0.4, 4.0, 40.0):
        lease = await site.lease("stretch", thing("lamp"), end=span)
        await site.until(lease, "ACTIVE", "TERMINATED")
        try:
            await changed(site, lease, end_date=at(2 * span))
        except (BadInput, Refused):
            continue
        return lease
    pytest.fail("no lease could be extended in time")


async def test_an_active_lease_can_grow_but_not_shrink(site: LeaseHarness) -> None:
    await site.hosts("h1", "h2", "h3")
    lease = await site.lease("elastic", hosts(1))
    await site.until(lease, "ACTIVE")
    (id_,) = lease.seen.reservations
    grown = await changed(site, lease, reservations=[{"id": id_, "min": 3, "max": 3}])
    assert grown.seen.booked == {"h1", "h2", "h3"}
    assert [len((await site.host(name)).seen.held) for name in ("h1", "h2", "h3")] == [1, 1, 1]
    with pytest.raises(ReservationNotChangeable, match="can only grow"):
        await changed(site, lease, reservations=[{"id": id_, "min": 1, "max": 1}])
    assert (await site.now(lease)).spec == grown.spec
    assert [len((await site.host(name)).seen.held) for name in ("h1", "h2", "h3")] == [1, 1, 1]
    kept = await changed(site, lease, reservations=[{"id": id_, "min": 1, "max": 3}])
    assert kept.seen.booked == {"h1", "h2", "h3"}


async def test_a_pending_lease_can_shrink(site: LeaseHarness) -> None:
    await site.hosts("h1", "h2")
    lease = await site.lease("elastic", hosts(2), start=3600, end=7200)
    (id_,) = lease.seen.reservations
    shrunk = await changed(site, lease, reservations=[{"id": id_, "min": 1, "max": 1}])
    assert shrunk.seen.booked == {"h1"}
    assert (await site.host("h2")).seen.bookings == ()


async def test_of_active_instances_only_the_amount_can_change_and_only_grow(site: LeaseHarness) -> None:
    await site.hosts("h1", "h2", rack="7")
    room = {"vcpus": 2, "memory_mb": 512, "disk_gb": 1, "amount": 2}
    lease = await site.lease("room", {"resource_type": "virtual:instance", **room})
    await site.until(lease, "ACTIVE")
    (id_,) = lease.seen.reservations
    others: tuple[dict[str, object], ...] = (
        {"amount": 1},
        {"vcpus": 1},
        {"vcpus": 4},
        {"memory_mb": 256},
        {"affinity": "false"},
        {"resource_properties": '["=", "$rack", "7"]'},
    )
    for wish in others:
        with pytest.raises(ReservationNotChangeable):
            await changed(site, lease, reservations=[{"id": id_, **wish}])
    assert (await site.now(lease)).spec == lease.spec
    grown = await changed(site, lease, reservations=[{"id": id_, "amount": 3}])
    assert sum(grown.seen.reservations[id_].hosts.values()) == 3


async def test_a_reservation_that_has_failed_cannot_be_changed(site: LeaseHarness) -> None:
    await site.hosts("h1")
    site.things.fail["lamp"] = never()
    lease = await site.lease("broken", thing("lamp"), hosts())
    await site.until(lease, "ERROR")
    failed = lease.spec.reservations[0].id
    with pytest.raises(ReservationNotChangeable, match="is error"):
        await changed(site, lease, reservations=[{"id": failed, "thing": "uow"}])


async def test_end_date_now_ends_a_lease_at_once(site: LeaseHarness) -> None:
    await site.hosts("h1")
    lease = await site.lease("enough")
    await site.until(lease, "ACTIVE")
    await changed(site, lease, end_date="now")
    await site.until(lease, "TERMINATED")
    assert (await site.host("h1")).seen.bookings == ()


async def test_start_cannot_change_after_the_start(site: LeaseHarness) -> None:
    lease = await site.lease("begun", thing("lamp"))
    await site.until(lease, "ACTIVE")
    with pytest.raises(BadInput) as caught:
        await changed(site, lease, start_date=at(100))
    assert caught.value.field == "start_date"


async def test_after_the_end_only_the_name_can_change(site: LeaseHarness) -> None:
    lease = await site.lease("over", thing("lamp"), end=0.2)
    await site.until(lease, "TERMINATED")
    with pytest.raises(BadInput):
        await changed(site, lease, end_date=at(3600))
    renamed = await changed(site, lease, name="was over")
    assert (renamed.object.state, renamed.spec.name) == ("TERMINATED", "was over")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"end_date": "tomorrow"}, "end_date"),
        ({"start_date": "2001-01-01 00:00"}, "start_date"),
        ({"name": ""}, "name"),
        ({"reservations": [{"id": "nobody's", "min": 1}]}, "reservations"),
        ({"reservations": "all"}, "reservations"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_wrong_input_leaves_everything_as_it_was(
    site: LeaseHarness, given: dict[str, object], field: str
) -> None:
    await site.hosts("h1")
    lease = await site.lease("steady", start=3600, end=7200)
    host, before = await site.host("h1"), await site.now(lease)
    with pytest.raises(BadInput) as caught:
        await changed(site, lease, **given)
    assert caught.value.field == field
    assert (await site.now(lease), await site.host("h1")) == (before, host)


async def test_an_update_that_finds_too_few_hosts_leaves_everything_as_it_was(site: LeaseHarness) -> None:
    await site.hosts("h1", "h2")
    lease = await site.lease("modest", start=3600, end=7200)
    (id_,) = lease.seen.reservations
    host, before = await site.host("h1"), await site.now(lease)
    with pytest.raises(NotEnoughHosts):
        await changed(site, lease, reservations=[{"id": id_, "min": 3, "max": 3}])
    assert (await site.now(lease), await site.host("h1")) == (before, host)


async def test_an_update_that_changes_nothing_does_nothing(site: LeaseHarness) -> None:
    lease = await site.lease("same", thing("lamp"), start=3600, end=7200)
    assert (await changed(site, lease, name="same")).object.version == lease.object.version


async def test_a_lease_cannot_be_made_or_changed_by_a_bare_request(site: LeaseHarness) -> None:
    lease = await site.lease("planned", thing("lamp"), start=3600, end=7200)
    with pytest.raises(NotPlanned):
        await site.engine.create(NS, "bare", "leases.lease", spec={"name": "bare"})
    with pytest.raises(NotPlanned):
        await site.engine.act(NS, lease.object.id, "update", spec={"name": "bare"})


async def test_nobody_brings_the_end_of_a_protected_lease_forward(site: LeaseHarness) -> None:
    await site.hosts("h1")
    lease = await site.lease("long", end=3600)
    active = await site.until(lease, "ACTIVE")
    await site.engine.protect(NS, lease.object.id, "audit")
    for end in ("now", at(1800)):
        with pytest.raises(Protected, match="audit"):
            await changed(site, active, end_date=end)
    await changed(site, active, name="longer", end_date=at(7200))
    await site.engine.protect(NS, lease.object.id, None)
    await changed(site, active, end_date="now")
    await site.until(lease, "TERMINATED")


async def test_a_protected_lease_ends_by_its_own_time(site: LeaseHarness) -> None:
    await site.hosts("h1")
    lease = await site.lease("short", end=1)
    await site.engine.protect(NS, lease.object.id)
    await site.until(lease, "TERMINATED")
