"""Every reservation and event has its own history; timers that waited for the end of an operation fire then."""

from stateward.domains.leases.model import EventType, Lease, event_id
from stateward.engine import HistoryEntry
from tests.integration.domains.leases.conftest import ME, NS, LeaseHarness, thing
from tests.integration.domains.leases.scripted_resource import never
from tests.waiting import until


async def part_history(site: LeaseHarness, part: str) -> list[tuple[str, str, str | None]]:
    return [(line.event, line.actor, line.reason) for line in await lines(site, part)]


async def lines(site: LeaseHarness, part: str) -> list[HistoryEntry]:
    return await site.engine.history(NS, part)


def only(lease: Lease) -> str:
    (found,) = lease.seen.reservations
    return found


async def test_a_reservation_tells_of_its_whole_life_and_who_was_behind_it(site: LeaseHarness) -> None:
    await site.hosts("h1")
    lease = await site.lease("night")
    await site.until(lease, "ACTIVE")
    await site.plugin.leases.update(ME, lease.object.id, {"end_date": "now"})
    await site.until(lease, "TERMINATED")
    assert await part_history(site, only(lease)) == [
        ("reserve", "controller", "on h1"),
        ("start", "controller", "from pending to active"),
        ("release", "controller", "from active to deleted"),
    ]
    first = (await lines(site, only(lease)))[0]
    assert (first.kind, first.who, first.op is not None) == ("leases.reservation", "me", True)


async def test_an_event_tells_when_it_was_fired_and_what_became_of_it(site: LeaseHarness) -> None:
    site.things.fail["end of lamp"] = never()
    lease = await site.lease("night", thing("lamp"), end=0.3)
    await site.until(lease, "ERROR")
    fired, way = ("fire", "clock", "from UNDONE to IN_PROGRESS"), "from IN_PROGRESS to"
    expected = {
        EventType.START: [fired, ("done", "worker", f"{way} DONE")],
        EventType.BEFORE_END: [fired, ("done", "worker", f"{way} DONE")],
        EventType.END: [fired, ("failed", "worker", f"{way} ERROR")],
    }
    assert {one: await part_history(site, event_id(lease.object.id, one)) for one in EventType} == expected


async def test_a_reservation_that_fails_tells_why(site: LeaseHarness) -> None:
    site.things.fail["lamp"] = never()
    lease = await site.lease("dark", thing("lamp"))
    await site.until(lease, "ERROR")
    assert ("fail", "controller", "from pending to error: broken") in await part_history(site, only(lease))


async def test_a_lease_that_is_deleted_leaves_the_history_of_its_reservations(site: LeaseHarness) -> None:
    lease = await site.lease("short", thing("lamp"), start=3600, end=7200)
    await site.plugin.leases.delete(ME, lease.object.id)
    await site.gone(lease)
    assert (await part_history(site, only(lease)))[-1] == ("release", "controller", "from pending to deleted")


async def test_a_host_that_is_replaced_is_told_of_with_the_flags(site: LeaseHarness) -> None:
    await site.hosts("h1", "h2")
    lease = await site.lease("robust")
    await site.until(lease, "ACTIVE")
    await site.plugin.hosts.fail(ME, "h1")
    healed = ("heal", "controller", "without h1, with h2, resources_changed set")
    await until(lambda: _has(site, lease, healed))
    await site.plugin.hosts.recover(ME, "h1")
    await until(lambda: _has(site, lease, ("heal", "controller", "resources_changed reset")))


async def _has(site: LeaseHarness, lease: Lease, line: tuple[str, str, str]) -> bool:
    return line in await part_history(site, only(lease))


async def test_what_was_told_is_not_kept_with_the_lease(site: LeaseHarness) -> None:
    lease = await site.lease("tidy", thing("lamp"))
    assert (await site.until(lease, "ACTIVE")).seen.moves == ()
    assert '"moves"' not in (await site.engine.record(NS, lease.object.id)).seen


async def test_a_warning_that_had_to_wait_comes_before_the_end_however_near_that_is(site: LeaseHarness) -> None:
    site.things.hang.add("lamp")
    lease = await site.lease("slow", thing("lamp"), end=0.3)
    await until(lambda: _overdue(site, lease))
    site.things.hang.clear()
    site.things.release.set()
    await site.until(lease, "TERMINATED")
    events = [event for event, _ in await site.moves(lease)]
    assert events.index("before end") < events.index("end")


async def _overdue(site: LeaseHarness, lease: Lease) -> bool:
    """Tell whether start hangs, and the end has been due and put off."""
    timers = {one.event: one.due for one in await site.engine.store.reader.timers(NS, 10)}
    return bool(site.things.hanging) and timers.get("end", 0.0) > lease.spec.end
