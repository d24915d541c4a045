"""Concurrency: races for the last host, many leases due in one second, and leases that are late after a downtime."""

import asyncio
import time

import pytest
from msgspec.structs import replace

from stateward.domains.leases import lease_parts
from stateward.domains.leases.errors import NotEnoughHosts
from stateward.domains.leases.lifecycle import LEASE
from stateward.domains.leases.model import (
    Booking,
    Lease,
    LeaseSpec,
    ReservationSeen,
    ReservationSpec,
    read_host,
    read_lease,
)
from stateward.engine.requests import Creation
from stateward.store.filters import JournalFilter, Page, Selector
from tests.integration.domains.leases.conftest import ME, NS, LeaseHarness, Opening, hosts
from tests.integration.domains.leases.scripted_resource import ScriptedResource
from tests.long_forms import in_long_form
from tests.waiting import until

SHARED = pytest.mark.parametrize("store_name", ["postgres"])
"""For tests with several processes: the embedded store is one process's own."""


async def test_of_many_who_want_the_last_hosts_as_many_win_as_there_are(site: LeaseHarness) -> None:
    await site.hosts("h1", "h2", "h3")
    attempts = (site.lease(f"rival {number}", start=60) for number in range(20))
    answers = await asyncio.gather(*attempts, return_exceptions=True)
    won = [one for one in answers if isinstance(one, Lease)]
    assert [len(won), sum(isinstance(one, NotEnoughHosts) for one in answers)] == [3, 17]
    assert {name for one in won for name in one.seen.booked} == {"h1", "h2", "h3"}


@SHARED
async def test_two_processes_race_for_the_last_host_and_one_wins(opening: Opening) -> None:
    async with opening() as one, opening() as other:
        await one.hosts("h1")
        await asyncio.gather(one.plugin.leases.list(NS), other.plugin.leases.list(NS))
        attempts = [site.lease("rival", start=60) for site in (one, other) for _ in range(5)]
        answers = await asyncio.gather(*attempts, return_exceptions=True)
        assert sum(isinstance(answer, Lease) for answer in answers) == 1
        assert sum(isinstance(answer, NotEnoughHosts) for answer in answers) == 9


@SHARED
async def test_processes_that_book_many_hosts_at_once_never_book_one_twice(opening: Opening) -> None:
    async with opening() as one, opening() as other:
        await one.hosts(*(f"h{number}" for number in range(12)))
        attempts = [site.lease("crowd", hosts(2), start=60) for site in (one, other) for _ in range(6)]
        answers = await asyncio.gather(*attempts, return_exceptions=True)
        won = [answer for answer in answers if isinstance(answer, Lease)]
        taken = [name for answer in won for name in answer.seen.booked]
        assert len(taken) == len(set(taken)) == 12


@pytest.mark.parametrize("number", in_long_form((200, 1000), short=(200,)))
async def test_many_leases_due_in_one_second_each_start_once_and_one_that_hangs_delays_none(
    opening: Opening, number: int
) -> None:
    things = ScriptedResource()
    things.hang.add("stuck")
    async with opening(things=things, lease_s=30.0) as site:  # a slow machine must not take its own work over
        due = time.time() + 600
        names = ["stuck", *(f"lamp {one}" for one in range(number - 1))]
        await asyncio.gather(*(_made(site, name, due) for name in names))
        await _due_now(site)
        await until(lambda: _are_out(things, number - 1))
        assert max(things.out.values()) == 1
        counts = await site.engine.store.reader.count_states(Selector(NS, kind=LEASE.kind))
        assert counts[LEASE.kind, "STARTING"] >= 1


async def _made(site: LeaseHarness, name: str, due: float) -> None:
    spec = LeaseSpec(name, due, due + 3600, None, (ReservationSpec("r", "test:thing", {"thing": name}),))
    await _submitted(site, name, spec, {})


async def _submitted(site: LeaseHarness, id_: str, spec: LeaseSpec, on: dict[str, int]) -> None:
    """Make a lease as it was made long ago."""
    seen = lease_parts.new_parts(
        {one.id: ReservationSeen(hosts=on if "min" in one.details else {}) for one in spec.reservations}
    )
    request = site.engine.request(NS, id_, "create", spec=spec, seen=seen, creates=Creation(LEASE.kind))
    await site.engine.submit(request)


async def _due_now(site: LeaseHarness) -> None:
    """Let all leases be due at once: their timers ring, and their start has come."""
    reader = site.engine.store.reader
    await until(lambda: _none_creating(site))
    found, after = [], None
    while page := await reader.list_objects(Selector(NS, kind=LEASE.kind), Page(after, 500)):
        found += [read_lease(one) for one in page]
        after = page[-1].id
    now = await reader.time()
    await asyncio.gather(
        *(site.plugin.leases.update(ME, one.object.id, {"start_date": "now"}) for one in found if one.spec.start > now)
    )


async def _none_creating(site: LeaseHarness) -> bool:
    counts = await site.engine.store.reader.count_states(Selector(NS, kind=LEASE.kind))
    return (LEASE.kind, "CREATING") not in counts


async def _are_out(things: ScriptedResource, number: int) -> bool:
    return len(things.out) == number


async def test_after_an_hours_downtime_all_is_done_in_the_right_order(opening: Opening) -> None:
    now = time.time()
    async with opening(works=False) as site:
        await site.hosts("h1")
        wish = (ReservationSpec("first-r", "physical:host", {"min": 1, "max": 1}),)
        first = LeaseSpec("first", now - 3600, now - 1800, now - 2000, wish)
        second = LeaseSpec("second", now - 1800, now - 600, None, (replace(wish[0], id="second-r"),))
        third = LeaseSpec("third", now - 600, now + 3600, None, (replace(wish[0], id="third-r"),))
        for spec in (third, first, second):
            await _submitted(site, spec.name, spec, {"h1": 1})
    async with opening() as site:
        third_lease = await site.plugin.leases.get(NS, "third")
        await site.until(third_lease, "ACTIVE")
        lines = await site.engine.store.reader.journal(0, 1000, JournalFilter(ns=NS, kind=LEASE.kind))
        happened = [(line.object, line.event) for line in lines if line.actor == "clock" and line.target is not None]
        assert happened == [
            ("first", "start"),
            ("first", "before end"),
            ("first", "end"),
            ("second", "start"),
            ("second", "end"),
            ("third", "start"),
        ]
        held = read_host(await site.engine.record(NS, "host-h1")).seen
        assert held.bookings == (Booking("third", "third-r", third.start, third.end),)


async def test_a_lease_waits_for_whoever_is_before_it_on_its_host_however_long_that_hangs(opening: Opening) -> None:
    now, things = time.time(), ScriptedResource()
    things.hang.add("end of lamp")
    wish = {"min": 1, "max": 1}
    async with opening(things=things) as site:
        await site.hosts("h1")
        lamp = ReservationSpec("lamp-r", "test:thing", {"thing": "lamp"})
        first = LeaseSpec("first", now - 120, now - 30, None, (ReservationSpec("first-r", "physical:host", wish), lamp))
        second = LeaseSpec("second", now - 30, now + 3600, None, (ReservationSpec("second-r", "physical:host", wish),))
        await _submitted(site, "first", first, {"h1": 1})
        await _submitted(site, "second", second, {"h1": 1})
        await until(lambda: _hanging(things))
        waiting = await site.plugin.leases.get(NS, "second")
        assert waiting.object.state == "PENDING"
        things.hang.clear()
        things.release.set()
        await site.until(waiting, "ACTIVE")
        assert (await site.plugin.leases.get(NS, "first")).object.state == "TERMINATED"


async def _hanging(things: ScriptedResource) -> bool:
    return "end of lamp" in things.hanging
