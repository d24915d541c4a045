"""Leases that have ended are removed after a time, if there is a setting."""

import asyncio

import pytest

from stateward.domains.leases.ended_leases import EndedLeases, forget_timer_id
from stateward.domains.leases.model import Lease
from stateward.domains.leases.settings import Settings
from stateward.store.records import Timer
from tests.integration.domains.leases.conftest import ME, NS, LeaseHarness, Opening, thing
from tests.integration.domains.leases.scripted_resource import ScriptedResource, never
from tests.waiting import until

SOON = Settings(replace_after=0.0, keep_ended=0.05)
LATE = Settings(replace_after=0.0, keep_ended=3600.0)


async def ended_lease(site: LeaseHarness, name: str = "one") -> Lease:
    lease = await site.until(await site.lease(name, thing(name)), "ACTIVE")
    await site.plugin.leases.update(ME, lease.object.id, {"end_date": "now"})
    return lease


async def forget_timer(site: LeaseHarness, lease: Lease) -> Timer | None:
    timers = await site.engine.store.reader.timers(NS, 100)
    return next((one for one in timers if one.id == forget_timer_id(lease.object.id)), None)


async def test_an_ended_lease_is_removed_and_its_resources_are_taken_back_once(opening: Opening) -> None:
    things = ScriptedResource()
    async with opening(SOON, things) as site:
        lease = await ended_lease(site)
        await site.gone(lease)
        assert things.back["one"] == 1
        assert [event for event, _ in await site.moves(lease)][-2:] == ["forget", "succeeded"]


async def test_an_ended_lease_is_kept_for_its_time_even_if_its_timer_is_early(opening: Opening) -> None:
    async with opening(LATE) as site:
        lease = await site.until(await ended_lease(site), "TERMINATED")
        due = lease.object.since + LATE.keep_ended
        timer = await forget_timer(site, lease)
        assert timer is not None
        assert timer.due == pytest.approx(due)
        early = await site.engine.store.reader.time()
        await site.engine.set_timer(Timer(NS, timer.id, early, timer.rank, timer.object, timer.event, "[]", "{}"))

        await until(lambda: forget_timer(site, lease), lambda timer: timer is not None and timer.due > early)
        assert (await site.now(lease)).object.state == "TERMINATED"


async def test_a_failed_lease_is_kept_until_its_time_is_over_and_removed_with_what_it_holds(opening: Opening) -> None:
    things = ScriptedResource()
    things.fail["bad"] = never()
    async with opening(LATE, things) as site:
        lease = await site.until(await site.lease("one", thing("good"), thing("bad")), "ERROR")
        timer = await forget_timer(site, lease)
        assert timer is not None
        assert timer.due == pytest.approx(lease.spec.end + LATE.keep_ended)
        await site.plugin.leases.await_delete(await site.plugin.leases.delete(ME, lease.object.id))
        assert await forget_timer(site, lease) is None


async def test_without_the_setting_leases_are_kept_and_with_it_older_ones_are_removed(opening: Opening) -> None:
    async with opening() as site:
        lease = await site.until(await ended_lease(site), "TERMINATED")
        assert await forget_timer(site, lease) is None
    async with opening(SOON) as site:
        setting = asyncio.create_task(EndedLeases(SOON.keep_ended).set_timers(site.engine))
        await site.gone(lease)
        setting.cancel()
