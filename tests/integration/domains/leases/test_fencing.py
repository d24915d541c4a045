"""The bookings of hosts are written only by the worker that owns the work: a worker that lost it changes nothing."""

import pytest
from msgspec.structs import replace

from stateward.domains.leases.booking_writer import FencedChange, HostDecision, write_fenced_changes
from stateward.domains.leases.bookings import BookHost, HandOverHost, HostChange, ReleaseHost, TakeBackHost
from stateward.domains.leases.model import Booking, Holding, Lease
from stateward.engine.work_errors import Fenced
from stateward.errors import StatewardError
from stateward.store.port import Tx
from stateward.store.records import Key, WorkItem
from tests.integration.domains.leases.conftest import ME, NS, LeaseHarness, hosts, thing
from tests.waiting import until


async def hung(site: LeaseHarness) -> Lease:
    """Return a lease that has a host, and whose start hangs: a worker is at it."""
    await site.hosts("h1", "h2")
    site.things.hang.add("lamp")
    lease = await site.lease("hung", hosts(), thing("lamp"))
    await until(lambda: _is_hanging(site))
    await until(lambda: _holds(site, lease))
    return await site.now(lease)


async def _is_hanging(site: LeaseHarness) -> bool:
    return bool(site.things.hanging)


async def _holds(site: LeaseHarness, lease: Lease) -> bool:
    return [one.lease for one in (await site.host("h1")).seen.held] == [lease.object.id]


async def claimed(site: LeaseHarness, lease: Lease) -> WorkItem:
    """Return the claim on a lease, as its worker has it."""

    async def program(tx: Tx) -> list[WorkItem]:
        return list(await tx.queues([lease.object.key]))

    (work,) = await site.engine.store.transact(program)
    return work


def entry(lease: Lease, work: WorkItem) -> FencedChange:
    """Return all that the books can be asked for, on behalf of a claim."""
    mine = next(iter(lease.seen.reservations))
    booking = Booking(lease.object.id, mine, lease.spec.start, lease.spec.end)
    taken: list[tuple[str, HostChange]] = [
        ("h2", BookHost(booking)),
        ("h2", HandOverHost(Holding(lease.object.id, mine, whole=True))),
    ]
    left: list[tuple[str, HostChange]] = [("h1", TakeBackHost(mine)), ("h1", ReleaseHost(mine))]
    return FencedChange(lease.object.key, work.key, work.epoch, (*taken, *left))


async def said(site: LeaseHarness, one: FencedChange) -> StatewardError | HostDecision | None:
    (answer,) = await site.engine.store.transact(lambda tx: write_fenced_changes(tx, [one]))
    return answer


async def test_the_worker_whose_claim_it_is_may_write(site: LeaseHarness) -> None:
    lease = await hung(site)
    assert await said(site, entry(lease, await claimed(site, lease))) is None
    assert len((await site.host("h2")).seen.bookings) == 1
    assert (await site.host("h1")).seen.bookings == ()


@pytest.mark.parametrize("epochs", [-1, 1])
async def test_another_epoch_than_the_claims_own_changes_nothing(site: LeaseHarness, epochs: int) -> None:
    lease = await hung(site)
    work = await claimed(site, lease)
    before = [await site.host(name) for name in ("h1", "h2")]
    answer = await said(site, entry(lease, replace(work, epoch=work.epoch + epochs)))
    assert isinstance(answer, Fenced)
    assert [await site.host(name) for name in ("h1", "h2")] == before


async def test_a_worker_whose_lease_was_deleted_under_it_changes_nothing_any_more(site: LeaseHarness) -> None:
    lease = await hung(site)
    stale = entry(lease, await claimed(site, lease))
    await site.plugin.leases.delete(ME, lease.object.id)
    assert isinstance(await said(site, stale), Fenced)
    await site.gone(lease)
    assert isinstance(await said(site, stale), Fenced)
    assert [(await site.host(name)).seen.bookings for name in ("h1", "h2")] == [(), ()]


async def test_one_that_was_fenced_does_not_keep_the_others_of_its_batch_from_writing(site: LeaseHarness) -> None:
    lease = await hung(site)
    good = entry(lease, await claimed(site, lease))
    stale = replace(good, op=Key(NS, "long ago"))
    answers = await site.engine.store.transact(lambda tx: write_fenced_changes(tx, [stale, good]))
    assert [type(one) for one in answers] == [Fenced, type(None)]
    assert len((await site.host("h2")).seen.bookings) == 1
