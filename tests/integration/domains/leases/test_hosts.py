"""Hosts that fail and come back; hosts that are shared; hosts that are chosen by their properties."""

import pytest

from stateward.domains.leases.errors import HostStillBooked, NotEnoughHosts
from stateward.domains.leases.lifecycle import HOST
from stateward.domains.leases.model import HostSeen, Lease, ReservationSeen, host_key
from stateward.engine import AlreadyExists, NotFound, Request
from stateward.errors import BadInput
from stateward.lifecycle import USER
from stateward.plugin.runtime import ExpectedChange
from tests.integration.domains.leases.conftest import ME, NS, LeaseHarness, hosts
from tests.waiting import until


def only(lease: Lease) -> ReservationSeen:
    (found,) = lease.seen.reservations.values()
    return found


async def healed(site: LeaseHarness, lease: Lease, *on: str) -> Lease:
    """Wait until a lease is at rest, with these hosts."""
    await until(
        lambda: site.now(lease),
        lambda now: now.object.state in ("ACTIVE", "PENDING") and set(only(now).hosts) == set(on),
    )
    return await site.now(lease)


async def test_a_host_that_fails_under_a_lease_is_replaced_for_the_rest_of_its_time(site: LeaseHarness) -> None:
    await site.hosts("h1", "h2")
    lease = await site.lease("robust")
    await site.until(lease, "ACTIVE")
    await site.plugin.hosts.fail(ME, "h1")
    after = await healed(site, lease, "h2")
    assert (only(after).resources_changed, only(after).missing_resources, after.seen.degraded) == (True, False, True)
    assert (await site.host("h1")).seen == HostSeen(missed=(lease.object.id,))
    assert [one.lease for one in (await site.host("h2")).seen.held] == [lease.object.id]


async def test_all_flags_are_reset_when_the_failed_host_is_well_again(site: LeaseHarness) -> None:
    await site.hosts("h1", "h2")
    lease = await site.lease("robust")
    await site.until(lease, "ACTIVE")
    await site.plugin.hosts.fail(ME, "h1")
    await healed(site, lease, "h2")
    await site.plugin.hosts.recover(ME, "h1")
    await until(lambda: _whole(site, lease))
    assert set(only(await site.now(lease)).hosts) == {"h2"}


async def _whole(site: LeaseHarness, lease: Lease) -> bool:
    found = await site.now(lease)
    return found.object.state == "ACTIVE" and not found.seen.degraded


async def test_where_no_other_is_free_the_lease_goes_on_without_and_says_so(site: LeaseHarness) -> None:
    await site.hosts("h1")
    lease = await site.lease("alone")
    await site.until(lease, "ACTIVE")
    await site.plugin.hosts.fail(ME, "h1")
    after = await healed(site, lease)
    assert (only(after).missing_resources, after.seen.degraded, only(after).lost) == (True, True, ("h1",))
    await site.plugin.hosts.recover(ME, "h1")
    again = await healed(site, lease, "h1")
    assert not again.seen.degraded
    assert [one.lease for one in (await site.host("h1")).seen.held] == [lease.object.id]


async def test_a_lease_that_lacks_hosts_can_be_ended_all_the_same(site: LeaseHarness) -> None:
    await site.hosts("h1")
    lease = await site.lease("alone")
    await site.until(lease, "ACTIVE")
    await site.plugin.hosts.fail(ME, "h1")
    await healed(site, lease)
    await site.plugin.leases.update(ME, lease.object.id, {"end_date": "now"})
    await site.until(lease, "TERMINATED")


async def test_a_lease_that_has_not_begun_just_gets_another_host(site: LeaseHarness) -> None:
    await site.hosts("h1", "h2")
    lease = await site.lease("later", start=3600, end=7200)
    await site.plugin.hosts.fail(ME, "h1")
    assert not (await healed(site, lease, "h2")).seen.degraded


async def test_a_preview_of_a_failure_counts_the_leases_of_the_host_and_other_previews_do_not(
    site: LeaseHarness,
) -> None:
    await site.hosts("h1")
    await site.lease("tenant", start=3600, end=7200)
    host = (await site.host("h1")).object

    async def effects(action: str) -> list[str]:
        request = Request(NS, host.id, action, "op")
        return list(await site.plugin.describe_effects(request, [ExpectedChange(host, host.state)]))

    assert await effects("fail") == ["1 lease gets another host, if one is free"]
    assert await effects("remove") == []


async def test_a_failed_host_is_not_chosen(site: LeaseHarness) -> None:
    await site.hosts("h1")
    await site.plugin.hosts.fail(ME, "h1")
    with pytest.raises(NotEnoughHosts):
        await site.lease("unlucky")


async def test_a_host_that_is_promised_cannot_be_removed_and_then_can(site: LeaseHarness) -> None:
    await site.hosts("h1")
    lease = await site.lease("tenant", start=3600, end=7200)
    with pytest.raises(HostStillBooked) as caught:
        await site.plugin.hosts.remove(ME, "h1")
    assert caught.value.leases == (lease.object.id,)
    await site.plugin.leases.delete(ME, lease.object.id)
    await site.gone(lease)
    await site.plugin.hosts.remove(ME, "h1")
    with pytest.raises(NotFound):
        await site.host("h1")


async def test_a_removed_host_can_be_registered_again(site: LeaseHarness) -> None:
    await site.hosts("h1")
    with pytest.raises(AlreadyExists):
        await site.hosts("h1")
    await site.plugin.hosts.remove(ME, "h1")
    await site.hosts("h1")
    assert (await site.lease("again", start=60)).seen.booked == {"h1"}


async def test_hosts_are_chosen_by_their_properties(site: LeaseHarness) -> None:
    await site.hosts("plain")
    await site.hosts("fast", gpu="a100", vcpus=64)
    wish = hosts(resource_properties='["and", ["=", "$gpu", "a100"], [">=", "$vcpus", "32"]]')
    assert (await site.lease("picky", wish, start=60)).seen.booked == {"fast"}
    with pytest.raises(NotEnoughHosts):
        await site.lease("pickier", hosts(hypervisor_properties='[">", "$vcpus", "64"]'), start=60)
    with pytest.raises(BadInput):
        await site.lease("muddled", hosts(hypervisor_properties="vcpus > 64"), start=60)


async def test_a_property_that_changes_is_heeded_by_the_next_search(site: LeaseHarness) -> None:
    await site.hosts("h1")
    wish = hosts(resource_properties='["=", "$rack", "7"]')
    with pytest.raises(NotEnoughHosts):
        await site.lease("first", wish, start=60)
    await site.plugin.hosts.update(ME, "h1", {"rack": "7"})
    assert (await site.lease("second", wish, start=60)).seen.booked == {"h1"}
    await site.plugin.hosts.update(ME, "h1", {"rack": None})
    assert "rack" not in (await site.host("h1")).spec.properties


def instances(amount: int, vcpus: int = 2, **more: object) -> dict[str, object]:
    return {
        "resource_type": "virtual:instance",
        "vcpus": vcpus,
        "memory_mb": 512,
        "disk_gb": 1,
        "amount": amount,
        **more,
    }


async def test_instances_of_several_leases_share_a_host_up_to_its_size(site: LeaseHarness) -> None:
    await site.hosts("h1", "h2")
    first = await site.lease("first", instances(3), start=60)
    second = await site.lease("second", instances(2), start=60)
    assert only(first).hosts == {"h1": 3}
    assert only(second).hosts == {"h1": 1, "h2": 1}
    with pytest.raises(NotEnoughHosts):
        await site.lease("third", instances(4), start=60)
    assert only(await site.lease("fourth", instances(3), start=60)).hosts == {"h2": 3}


async def test_instances_and_whole_hosts_keep_out_of_each_others_way(site: LeaseHarness) -> None:
    await site.hosts("h1")
    await site.lease("guests", instances(1), start=60)
    with pytest.raises(NotEnoughHosts):
        await site.lease("owner", start=60)


async def test_instances_can_be_kept_apart_or_together(site: LeaseHarness) -> None:
    await site.hosts("h1", "h2")
    apart = await site.lease("apart", instances(2, affinity=False), start=60)
    assert only(apart).hosts == {"h1": 1, "h2": 1}
    with pytest.raises(NotEnoughHosts):
        await site.lease("together", instances(4, affinity=True), start=60)
    assert len(only(await site.lease("pair", instances(2, affinity=True), start=60)).hosts) == 1


async def test_instances_start_and_end_side_by_side(site: LeaseHarness) -> None:
    await site.hosts("h1")
    first = await site.lease("first", instances(1))
    second = await site.lease("second", instances(1), end=1.0)
    await site.until(first, "ACTIVE")
    await site.until(second, "ACTIVE", "TERMINATED")
    await site.until(second, "TERMINATED")
    assert [one.lease for one in (await site.host("h1")).seen.held] == [first.object.id]


async def test_a_failed_host_of_instances_is_replaced_too(site: LeaseHarness) -> None:
    await site.hosts("h1", "h2")
    lease = await site.lease("guests", instances(2))
    await site.until(lease, "ACTIVE")
    await site.plugin.hosts.fail(ME, "h1")
    assert only(await healed(site, lease, "h2")).hosts == {"h2": 2}


async def test_a_host_cannot_shrink_below_what_it_has_promised(site: LeaseHarness) -> None:
    await site.hosts("h1")
    await site.lease("guests", instances(4), start=60)
    with pytest.raises(HostStillBooked):
        await site.plugin.hosts.update(ME, "h1", {"vcpus": 4})
    assert (await site.plugin.hosts.get(NS, "h1")).spec.size.vcpus == 8


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"cleaning": -600.0}, "spec.cleaning"),
        ({"cleaning": 1e300}, "spec.cleaning"),
        ({"size": [-5, 0, 0]}, "spec.size.vcpus"),
        ({"size": [0, 0, -1]}, "spec.size.disk_gb"),
        ({"size": "large"}, "spec.size"),
        ({"name": "other"}, "spec.name"),
    ],
)
async def test_a_host_is_checked_whichever_way_it_is_described(
    site: LeaseHarness, wrong: dict[str, object], field: str
) -> None:
    await site.hosts("h1")
    key = host_key(NS, "h1")
    before = await site.host("h1")
    with pytest.raises(BadInput) as changed:
        await site.engine.act(*key, "update", spec={"name": "h1", **wrong}, actor=USER)
    with pytest.raises(BadInput) as made:
        await site.engine.create(*host_key(NS, "h2"), HOST.kind, "register", spec={"name": "h2", **wrong}, actor=USER)
    assert (changed.value.field, made.value.field) == (field, field)
    assert await site.host("h1") == before


async def test_a_negative_cleaning_time_does_not_book_a_host_twice(site: LeaseHarness) -> None:
    with pytest.raises(BadInput):
        await site.hosts("h1", cleaning_time=-600)
    await site.hosts("h1")
    with pytest.raises(BadInput):
        await site.plugin.hosts.update(ME, "h1", {"cleaning_time": "-600"})
    await site.lease("first", start=3600, end=7200)
    with pytest.raises(NotEnoughHosts):
        await site.lease("second", start=3600, end=7200)


async def test_a_host_is_booked_once_after_2089_too(site: LeaseHarness) -> None:
    await site.hosts("h1")
    far = {"start_date": "2120-01-01 00:00", "end_date": "2120-01-02 00:00", "reservations": [hosts()]}
    await site.plugin.leases.create(ME, {"name": "far", **far})
    with pytest.raises(NotEnoughHosts):
        await site.plugin.leases.create(ME, {"name": "rival", **far})
    later = {**far, "start_date": "2120-01-02 00:00", "end_date": "9998-01-01 00:00"}
    assert (await site.plugin.leases.create(ME, {"name": "after", **later})).seen.booked == {"h1"}
    with pytest.raises(NotEnoughHosts):
        await site.plugin.leases.create(ME, {"name": "whole", **far, "end_date": "9000-01-01 00:00"})
