"""Hosts that fail, recover or get taken while a lease is healed or updated: a lease has the hosts booked for it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.domains.leases import runtime
from stateward.domains.leases import update as lease_update
from stateward.domains.leases.bookings import BookHost, add_booking
from stateward.domains.leases.context import LeaseContext
from stateward.domains.leases.errors import HostsTaken, LeaseActionFailed, NotEnoughHosts
from stateward.domains.leases.model import Booking, EventType, Holding, HostSeen, Lease, ReservationSeen
from stateward.domains.leases.pool_cache import PoolCache
from stateward.domains.leases.settings import Settings
from stateward.engine import Job, Permanent, Temporary
from stateward.lifecycle import CLOCK
from stateward.store.changes import Changes
from stateward.store.port import Tx
from stateward.store.records import Object, Timer, to_json
from tests.integration.domains.leases.checked_store import check_bookings
from tests.integration.domains.leases.conftest import ME, NS, LeaseHarness, Opening, at, hosts
from tests.waiting import until

INSTANCES = {"resource_type": "virtual:instance", "vcpus": 2, "memory_mb": 512, "disk_gb": 1, "amount": 2}


def only(lease: Lease) -> ReservationSeen:
    (found,) = lease.seen.reservations.values()
    return found


async def at_rest(site: LeaseHarness, lease: Lease, *on: str) -> Lease:
    """Wait until a lease is at rest with these hosts; then hosts, bookings and holdings agree."""
    await until(
        lambda: site.now(lease),
        lambda now: now.object.state in ("ACTIVE", "PENDING") and set(only(now).hosts) == set(on),
    )
    await require_agreement(site)
    return await site.now(lease)


async def require_agreement(site: LeaseHarness) -> None:
    leases = [one.object for one in await site.plugin.leases.list(NS)]
    check_bookings([*leases, *(one.object for one in await site.plugin.hosts.list(NS))])


async def rewrite(site: LeaseHarness, found: Object, **fields: Any) -> None:
    """Store an object with other fields, as another version or another process may have left it."""

    async def program(tx: Tx) -> None:
        stored = (await tx.objects([found.key]))[found.key]
        await tx.apply(Changes(objects=[replace(stored, version=stored.version + 1, **fields)]))

    await site.engine.store.transact(program)


async def heal_timers(site: LeaseHarness) -> dict[str, Timer]:
    """Return the timers of `heal` by the host that they are set for."""
    return {
        one.id.rpartition("/")[2]: one for one in await site.engine.store.reader.timers(NS, 100) if "/heal/" in one.id
    }


Deed = Callable[[], Awaitable[object]]


def at_first_write(
    site: LeaseHarness, monkeypatch: pytest.MonkeyPatch, *, before: Deed | None = None, after: Deed | None = None
) -> None:
    """Do something right before or right after the next commit of the booking writer."""
    batcher = site.plugin._ctx.booking_writer._batch
    commit, left = batcher._process, [before or after]

    async def gated(entries: Sequence[Any]) -> Any:
        deed = left.pop() if left else None
        if deed is not None and deed is before:
            await deed()
        answers = await commit(entries)
        if deed is not None and deed is after:
            await deed()
        return answers

    monkeypatch.setattr(batcher, "_process", gated)


# --- hosts that flap -------------------------------------------------------------------------------------------------


async def test_a_host_that_recovers_before_the_commit_of_heal_is_kept(
    site: LeaseHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.hosts("h1", "h2")
    lease = await site.lease("steady")
    await site.until(lease, "ACTIVE")
    at_first_write(site, monkeypatch, before=lambda: site.plugin.hosts.recover(ME, "h1"))
    await site.plugin.hosts.fail(ME, "h1")
    await until(lambda: _was_healed(site, lease))
    assert not (await at_rest(site, lease, "h1")).seen.degraded
    assert (await site.host("h2")).seen == HostSeen()


async def _was_healed(site: LeaseHarness, lease: Lease) -> bool:
    return ("heal", "UPDATING") in await site.moves(lease)


@pytest.mark.parametrize("resource", [hosts(), INSTANCES])
async def test_a_host_that_recovers_after_the_commit_of_heal_is_free_for_the_next_lease(
    site: LeaseHarness, monkeypatch: pytest.MonkeyPatch, resource: dict[str, Any]
) -> None:
    await site.hosts("h1", "h2")
    lease = await site.lease("moved", resource)
    await site.until(lease, "ACTIVE")

    async def recovered() -> None:
        if (await site.host("h1")).seen.bookings:  # nothing was decided yet: wait for the next commit
            at_first_write(site, monkeypatch, after=recovered)
            return
        await site.plugin.hosts.recover(ME, "h1")
        await site.plugin._ctx.pools.get(NS)  # a search of this process sees it

    at_first_write(site, monkeypatch, after=recovered)
    await site.plugin.hosts.fail(ME, "h1")
    await at_rest(site, lease, "h2")
    other = await site.lease("other", hosts())
    assert only(other).hosts == {"h1": 1}
    await site.until(other, "ACTIVE")
    await at_rest(site, lease, "h2")


async def test_heal_waits_until_a_host_has_failed_for_long_enough(opening: Opening) -> None:
    async with opening(Settings(replace_after=3600.0)) as site:
        await site.hosts("h1", "h2")
        lease = await site.lease("patient")
        await site.until(lease, "ACTIVE")
        failed = await site.plugin.hosts.fail(ME, "h1")
        due = failed.object.since + 3600.0
        assert (await heal_timers(site))["h1"].due == due
        await site.engine.run(NS, lease.object.id, "heal", actor=CLOCK)  # as for another host
        assert not (await at_rest(site, lease, "h1")).seen.degraded
        changed = await site.plugin.hosts.update(ME, "h1", {"rack": "7"})
        await site.engine.run(NS, lease.object.id, "heal", actor=CLOCK)
        timers = await heal_timers(site)
        assert timers["h1"].due == changed.object.since + 3600.0
        await site.plugin.hosts.recover(ME, "h1")
        await site.engine.run(NS, lease.object.id, "heal", actor=CLOCK)
        assert not (await at_rest(site, lease, "h1")).seen.degraded
        assert await heal_timers(site) == timers


async def test_a_lease_is_shortened_but_not_extended_on_a_host_that_has_failed(opening: Opening) -> None:
    async with opening(Settings(replace_after=3600.0)) as site:
        await site.hosts("h1")
        lease = await site.lease("loyal", end=5400)
        await site.until(lease, "ACTIVE")
        failed = await site.plugin.hosts.fail(ME, "h1")
        (booking,) = failed.seen.bookings
        with pytest.raises(NotEnoughHosts):
            await site.plugin.leases.update(ME, lease.object.id, {"end_date": at(7200)})
        with pytest.raises(HostsTaken):  # as in a process whose pool has not seen the failure
            BookHost(replace(booking, end=booking.end + 60)).apply_to(failed)
        assert (await site.host("h1")).seen.bookings == (booking,)
        await site.plugin.leases.update(ME, lease.object.id, {"end_date": at(3600)})
        assert (await site.host("h1")).seen.bookings[0].end < booking.end


async def test_a_lease_does_not_recover_onto_a_host_that_another_lease_has_booked_meanwhile(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    update_fails(monkeypatch)
    async with opening() as site:
        await site.hosts("h1")
        lease = await site.lease("late", start=3600, end=7200)
        with pytest.raises(LeaseActionFailed):
            await site.plugin.leases.update(ME, lease.object.id, {"name": "in error"})
        host = await site.host("h1")
        (booking,) = host.seen.bookings
        rival = HostSeen((replace(booking, lease="rival", reservation="r"),))
        await rewrite(site, host.object, seen=to_json(rival))
        with pytest.raises(HostsTaken):
            await site.plugin.leases.recover(ME, lease.object.id)
        assert (await site.now(lease)).object.state == "ERROR"
        assert (await site.host("h1")).seen == rival


# --- what heal sees --------------------------------------------------------------------------------------------------


async def test_a_failed_host_is_replaced_although_the_pool_of_the_process_has_not_seen_the_failure(
    site: LeaseHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.hosts("h1", "h2")
    lease = await site.lease("served")
    await site.until(lease, "ACTIVE")

    async def catch_up(_cache: PoolCache) -> None:
        return

    monkeypatch.setattr(PoolCache, "_catch_up", catch_up)
    await site.plugin.hosts.fail(ME, "h1")
    assert only(await at_rest(site, lease, "h2")).lost == ("h1",)


async def test_heal_takes_another_host_if_the_first_it_finds_is_held_by_a_lease_that_failed(site: LeaseHarness) -> None:
    await site.hosts("h2")
    lease = await site.lease("replaced")
    await site.until(lease, "ACTIVE")
    for name in ("h1", "h3"):
        await site.hosts(name)
        await site.plugin._ctx.pools.get(NS)  # hosts are found in the order in which the pool got to know them
    held = HostSeen(held=(Holding("failed", "r", whole=True),))
    await rewrite(site, (await site.host("h1")).object, seen=to_json(held))
    await site.plugin.hosts.fail(ME, "h2")
    await until(lambda: _has_hosts(site, lease, "h3"))
    assert (await site.host("h1")).seen == held


async def _has_hosts(site: LeaseHarness, lease: Lease, *names: str) -> bool:
    return set(only(await site.now(lease)).hosts) == set(names)


@pytest.mark.parametrize("resource", [hosts(), INSTANCES])
async def test_a_second_attempt_of_heal_releases_what_the_first_has_booked_in_vain(
    site: LeaseHarness, monkeypatch: pytest.MonkeyPatch, resource: dict[str, Any]
) -> None:
    await site.hosts("h1", "h2", "h3")
    lease = await site.lease("unlucky", resource)
    await site.until(lease, "ACTIVE")

    async def lose() -> None:
        if not (await site.host("h2")).seen.bookings:  # nothing was booked yet: wait for the next commit
            at_first_write(site, monkeypatch, after=lose)
            return
        await site.plugin.hosts.fail(ME, "h2")
        raise Temporary("the attempt ends here", after=0.01)

    at_first_write(site, monkeypatch, after=lose)
    await site.plugin.hosts.fail(ME, "h1")
    await at_rest(site, lease, "h3")
    assert (await site.host("h2")).seen.bookings == ()


# --- updates that fail, and recover ----------------------------------------------------------------------------------


def update_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next update fail when its guard has booked its hosts; later ones succeed."""
    work, errors = runtime.WORK["update"], [Permanent("broken")]

    async def failing(ctx: LeaseContext, job: Job) -> object:
        if errors:
            raise errors.pop()
        return await work(ctx, job)

    monkeypatch.setitem(runtime.WORK, "update", failing)


async def test_an_update_that_failed_leaves_no_hosts_to_the_next_one(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    update_fails(monkeypatch)
    async with opening() as site:
        await site.hosts("h1", "h2", "h3")
        lease = await site.lease("modest")
        await site.until(lease, "ACTIVE")
        (id_,) = lease.seen.reservations
        with pytest.raises(LeaseActionFailed, match="broken"):
            await site.plugin.leases.update(ME, lease.object.id, {"reservations": [{"id": id_, "min": 1, "max": 3}]})
        assert [(await site.host(name)).seen for name in ("h2", "h3")] == [HostSeen()] * 2
        await site.plugin.leases.recover(ME, lease.object.id)
        await site.plugin.leases.update(ME, lease.object.id, {"name": "renamed"})
        await at_rest(site, lease, "h1")


@pytest.mark.parametrize("way_out", ["recover", "update"])
async def test_hosts_that_an_earlier_release_left_booked_for_a_failed_update_are_released(
    opening: Opening, monkeypatch: pytest.MonkeyPatch, way_out: str
) -> None:
    update_fails(monkeypatch)
    async with opening() as site:
        await site.hosts("h1", "h2")
        lease = await site.lease("modest", start=3600, end=7200)
        with pytest.raises(LeaseActionFailed):
            await site.plugin.leases.update(ME, lease.object.id, {"name": "in error"})
        (id_,) = lease.seen.reservations
        left = replace(lease.seen, reservations={id_: replace(only(lease), proposed={"h1": 1, "h2": 1})})
        await rewrite(site, lease.object, seen=to_json(left))
        booking = Booking(lease.object.id, id_, lease.spec.start, lease.spec.end)
        await rewrite(site, (await site.host("h2")).object, seen=to_json(add_booking(HostSeen(), booking)))
        if way_out == "update":
            await site.plugin.leases.update(ME, lease.object.id, {"name": "renamed"})
        await site.plugin.leases.recover(ME, lease.object.id)
        await at_rest(site, lease, "h1")
        assert (await site.host("h2")).seen == HostSeen()


async def test_an_update_that_cannot_be_rolled_back_completely_gives_its_new_hosts_back(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = runtime.WORK["update"]

    async def overtaken(ctx: LeaseContext, job: Job) -> object:
        if await site.plugin.leases.list(NS) == [await site.plugin.leases.get(NS, job.object)]:
            assert only(await site.lease("rival", hosts(), start=4000, end=7000)).hosts == {"h1": 1}
        return await work(ctx, job)

    monkeypatch.setitem(runtime.WORK, "update", overtaken)
    monkeypatch.setattr(lease_update, "MAX_ATTEMPTS", 1)
    async with opening() as site:
        await site.hosts("h1", "h2")
        lease = await site.lease("greedy", end=7200)
        await site.until(lease, "ACTIVE")
        held = HostSeen(held=(Holding("failed", "r", whole=True),))
        await rewrite(site, (await site.host("h2")).object, seen=to_json(held))
        (id_,) = lease.seen.reservations
        with pytest.raises(LeaseActionFailed, match="still held"):
            await site.plugin.leases.update(
                ME, lease.object.id, {"end_date": at(3600), "reservations": [{"id": id_, "min": 2, "max": 2}]}
            )
        assert (await site.host("h2")).seen == held
        with pytest.raises(HostsTaken):
            await site.plugin.leases.recover(ME, lease.object.id)


async def test_a_recovered_lease_replaces_a_host_that_failed_while_it_was_in_error(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    update_fails(monkeypatch)
    async with opening() as site:
        await site.hosts("h1", "h2")
        lease = await site.lease("late")
        await site.until(lease, "ACTIVE")
        with pytest.raises(LeaseActionFailed):
            await site.plugin.leases.update(ME, lease.object.id, {"name": "in error"})
        await site.plugin.hosts.fail(ME, "h1")
        await until(lambda: _no_heal_timer(site))
        await site.plugin.leases.recover(ME, lease.object.id)
        assert (await at_rest(site, lease, "h2")).seen.degraded


async def _no_heal_timer(site: LeaseHarness) -> bool:
    return not await heal_timers(site)


async def test_a_lease_that_fails_before_its_start_still_ends(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    update_fails(monkeypatch)
    async with opening() as site:
        await site.hosts("h1")
        lease = await site.lease("stillborn", start=3600, end=7200)
        with pytest.raises(LeaseActionFailed):
            await site.plugin.leases.update(ME, lease.object.id, {"name": "in error", "end_date": at(9000)})
        due = {one.id: one.due for one in await site.engine.store.reader.timers(NS, 100)}
        assert due[f"{lease.object.id}/{EventType.END}"] == lease.spec.end


# --- shares and properties -------------------------------------------------------------------------------------------


async def test_an_update_that_keeps_its_shares_does_not_count_them_twice(site: LeaseHarness) -> None:
    await site.hosts("h1", rack="7")
    lease = await site.lease("first", INSTANCES, start=3600, end=7200)
    (id_,) = lease.seen.reservations
    wish = {"reservations": [{"id": id_, "resource_properties": '["=", "$rack", "7"]'}]}
    await site.plugin.leases.update(ME, lease.object.id, wish)
    assert only(await site.lease("second", INSTANCES, start=3600, end=7200)).hosts == {"h1": 2}


async def test_two_updates_of_a_host_at_the_same_time_both_take_effect(
    site: LeaseHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.hosts("h1")
    service = site.plugin.hosts
    read, others = service.get, [{"gpu": "a100"}]

    async def overtaken(ns: str, name: str) -> Any:
        found = await read(ns, name)
        if others:
            await site.plugin.hosts.update(ME, name, others.pop())
        return found

    monkeypatch.setattr(service, "get", overtaken)
    await service.update(ME, "h1", {"rack": "7"})
    properties = (await site.host("h1")).spec.properties
    assert (properties["rack"], properties["gpu"]) == ("7", "a100")
