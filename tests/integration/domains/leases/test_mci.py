"""Leases of MCIs: created from a template when the lease starts, terminated when it ends, by the mci domain itself."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stateward.domains.leases.lifecycle import ReservationState
from stateward.domains.leases.model import Lease
from stateward.domains.leases.resources import ReservationTask
from stateward.domains.leases.runtime import LeasesRuntime
from stateward.domains.mci.runtime import MciRuntime
from stateward.drivers import ProviderRegion
from stateward.drivers.simulated import SimulatedCloud
from stateward.drivers.simulated.faults import CALM
from stateward.engine import Engine, Permanent, Request
from stateward.engine.errors import Protected
from stateward.errors import BadInput
from stateward.lifecycle import USER
from stateward.plugin.runtime import ProcessContext
from stateward.store.changes import Changes
from stateward.store.filters import Page, Selector
from stateward.store.port import Store
from stateward.store.records import Key
from tests.integration.domains.leases.conftest import ME, NS, LeaseHarness, Opening, thing
from tests.integration.domains.leases.scripted_resource import ScriptedResource
from tests.integration.domains.mci.conftest import mci
from tests.waiting import until

SEOUL = ProviderRegion("aws", "ap-northeast-2")
SLOW = replace(CALM, latency=0.01, pending=0.2, terminating=0.05)
"""Machines come up so slowly that a lease can be deleted meanwhile."""


@pytest.fixture
def simulated() -> SimulatedCloud:
    """The clouds that MCIs are made at."""
    return SimulatedCloud(profile=CALM, chance=Random(1))


@pytest.fixture
async def both(
    new_store: Callable[[], Store], tmp_path: Path, simulated: SimulatedCloud
) -> AsyncIterator[LeaseHarness]:
    """Both domains beside one engine; neither knows the other."""
    site = ProcessContext(tmp_path, random=Random(1))
    clouds = MciRuntime(site, cloud=simulated, tick=0.01, every=3600.0)
    leases = LeasesRuntime(site)
    engine = Engine(new_store(), [*clouds.kinds, *leases.kinds])
    for plugin in (clouds, leases):
        plugin.bind_engine(engine)
    async with engine, clouds.running(engine, works=True):
        yield LeaseHarness(engine, leases, ScriptedResource())


def mci_reservation(name: str, **more: Any) -> dict[str, Any]:
    return {"resource_type": "mci", "mci": name, "template": {**msgspec.to_builtins(mci(name)), **more}}


async def test_an_mci_lives_as_long_as_its_lease(both: LeaseHarness) -> None:
    lease = await both.lease("fleet", mci_reservation("m1"))
    await both.until(lease, "ACTIVE")
    assert (await both.engine.record(NS, "m1")).state == "Running"
    await both.plugin.leases.update(ME, lease.object.id, {"end_date": "now"})
    ended = await both.until(lease, "TERMINATED")
    await _gone(both, "m1")
    assert {one.status for one in ended.seen.reservations.values()} == {ReservationState.DELETED}


async def test_a_lease_that_is_deleted_takes_its_mci_with_it(both: LeaseHarness) -> None:
    lease = await both.lease("fleet", mci_reservation("m2"))
    await both.until(lease, "ACTIVE")
    await both.plugin.leases.delete(ME, lease.object.id)
    await both.gone(lease)
    await _gone(both, "m2")


@pytest.mark.parametrize("protected", ["mine", "{vm}"])
async def test_nobody_ends_a_lease_whose_mci_is_protected_or_has_a_protected_vm(
    both: LeaseHarness, protected: str
) -> None:
    lease = await both.until(await both.lease("one", mci_reservation("mine")), "ACTIVE")
    vms = await both.engine.store.reader.list_objects(Selector(NS, "mci.vm", "mine"), Page(None, 10))
    await both.engine.protect(NS, protected.format(vm=vms[0].id), "keep")
    with pytest.raises(Protected, match="keep"):
        await both.plugin.leases.delete(ME, lease.object.id)
    with pytest.raises(Protected, match="keep"):
        await both.plugin.leases.update(ME, lease.object.id, {"end_date": "now"})
    assert (await both.until(lease, "ACTIVE")).object.op is None


async def test_delete_of_a_lease_whose_mci_is_still_being_made_leaves_nothing_behind(both: LeaseHarness) -> None:
    lease = await both.lease("fleet", mci_reservation("m4", hold=True))
    await until(lambda: _is(both, "m4", "Prepared"))
    await both.plugin.leases.delete(ME, lease.object.id)
    await both.gone(lease)
    await _gone(both, "m4")


async def test_a_lease_that_is_deleted_while_it_starts_leaves_room_for_the_next_of_its_template(
    both: LeaseHarness, simulated: SimulatedCloud
) -> None:
    simulated.set_profile(SEOUL, SLOW)
    reader = both.engine.store.reader
    for changes in (0, 5, 10, 15, 20, 25):
        enough = await reader.last_journal_seq() + changes
        lease = await both.lease(f"after {changes}", {"resource_type": "mci", "template": FLEET})
        while (
            await reader.last_journal_seq() < enough and (await both.engine.get(NS, lease.object.id)).state != "ACTIVE"
        ):
            await asyncio.sleep(0)
        await both.plugin.leases.delete(ME, lease.object.id)
        await both.gone(lease)
        if await both.engine.store.reader.object(Key(NS, "globe")) is not None:
            await _gone(both, "globe")
    last = await both.lease("last", {"resource_type": "mci", "template": FLEET})
    await both.until(last, "ACTIVE")


async def test_a_lease_whose_start_has_failed_half_way_takes_its_mci_with_it(
    both: LeaseHarness, simulated: SimulatedCloud
) -> None:
    simulated.set_profile(SEOUL, replace(SLOW, fails=0.5))
    many = {**FLEET, "policy": "continue", "groups": [{**GROUP, "size": 8}]}
    lease = await both.lease("half", {"resource_type": "mci", "template": many})
    await both.until(lease, "ERROR")
    simulated.set_profile(SEOUL, SLOW)
    await both.plugin.leases.delete(ME, lease.object.id)
    await both.gone(lease)
    await _gone(both, "globe")
    again = await both.lease("again", {"resource_type": "mci", "template": FLEET})
    await both.until(again, "ACTIVE")


@pytest.mark.parametrize("action", ["terminate", "suspend"])
async def test_an_mci_that_somebody_has_changed_meanwhile_goes_with_its_lease(both: LeaseHarness, action: str) -> None:
    lease = await both.lease("changed", {"resource_type": "mci", "template": FLEET})
    await both.until(lease, "ACTIVE")
    await both.engine.act(NS, "globe", action, actor=USER, who="ann")
    await both.plugin.leases.delete(ME, lease.object.id)
    await both.gone(lease)
    await _gone(both, "globe")


async def _is(site: LeaseHarness, name: str, state: str) -> bool:
    found = await site.engine.store.reader.object(Key(NS, name))
    return found is not None and found.state == state


async def _gone(site: LeaseHarness, name: str) -> None:
    found = await site.engine.store.reader.object(Key(NS, name))
    assert found is not None
    assert found.removed, found.state
    vms = await site.engine.store.reader.list_objects(Selector(NS, "mci.vm", name), Page(None, 10))
    assert vms == []


FLEET = {
    "name": "globe",
    "policy": "refine",
    "label": {"team": "shop"},
    "groups": [{"name": "web", "size": 2, "spec": "aws+ap-northeast-2+t3.micro", "image": "ubuntu22.04", "disk": 20}],
    "postCommand": {"command": ["uptime"], "minutes": 5},
}
"""A fleet as the documentation has it."""


@pytest.mark.parametrize("as_text", [False, True])
async def test_a_fleet_as_its_file_has_it_is_a_template(both: LeaseHarness, as_text: bool) -> None:
    template = msgspec.json.encode(FLEET).decode() if as_text else FLEET
    lease = await both.lease("fleet", {"resource_type": "mci", "template": template})
    await both.until(lease, "ACTIVE")
    made = await both.engine.record(NS, "globe")
    assert made.state == "Running"
    (reservation,) = lease.seen.reservations
    labels = {"team": "shop", "lease": lease.object.id, "reservation": reservation}
    assert msgspec.json.decode(made.labels) == labels
    spec = msgspec.json.decode(made.spec)
    assert [(one["name"], one["size"], one["disk_gib"]) for one in spec["groups"]] == [("web", 2, 20)]
    assert (spec["policy"], spec["post_command"]["commands"]) == ("refine", ["uptime"])
    await both.plugin.leases.update(ME, lease.object.id, {"end_date": "now"})
    await both.until(lease, "TERMINATED")
    await _gone(both, "globe")


async def test_two_leases_of_one_template_have_an_mci_each(both: LeaseHarness) -> None:
    leases = [await both.lease(name, {"resource_type": "mci", "mci": name, "template": FLEET}) for name in ("a1", "a2")]
    for lease in leases:
        await both.until(lease, "ACTIVE")
    uids = {msgspec.json.decode((await both.engine.record(NS, name)).spec)["uid"] for name in ("a1", "a2")}
    assert len(uids) == 2


GROUP = FLEET["groups"][0]  # type: ignore[index]


@pytest.mark.parametrize(
    ("template", "field"),
    [
        ({}, "template.groups"),
        ({"foo": 1}, "template.foo"),
        ({**FLEET, "groups": []}, "template.groups"),
        ({**FLEET, "groups": "web"}, "template.groups"),
        ({**FLEET, "groups": ["web"]}, "template.groups[0]"),
        ({**FLEET, "groups": [{**GROUP, "size": -2}]}, "template.groups[0].size"),
        ({**FLEET, "groups": [GROUP, {**GROUP, "name": "db", "size": 0}]}, "template.groups[1].size"),
        ({**FLEET, "groups": [{**GROUP, "size": "0"}]}, "template.groups[0].size"),
        ({"subGroups": [{**GROUP, "size": 0}]}, "template.subGroups[0].size"),
        ({**FLEET, "groups": [{**GROUP, "disk": "big"}]}, "template.groups[0].disk"),
        ({**FLEET, "groups": [{**GROUP, "label": {"a": []}}]}, "template.groups[0].label.a"),
        ({**FLEET, "postCommand": {"command": ["uptime"], "minutes": -1}}, "template.postCommand.minutes"),
        ({**FLEET, "groups": [{**GROUP, "colour": "red"}]}, "template.groups[0].colour"),
        ({**FLEET, "groups": [{**GROUP, "spec": "nowhere+none+x"}]}, "template.groups[0]"),
        ({**FLEET, "groups": [{**GROUP, "image": "none"}]}, "template.groups[0]"),
        ({**FLEET, "groups": [{**GROUP, "connection": "none"}]}, "template.groups[0]"),
        ({**FLEET, "name": "no/name"}, "template.name"),
        ({**FLEET, "policy": "pray"}, "template.policy"),
        ({"uid": 7}, "template."),
        ({"uid": "u", "name": "m", "groups": [{"name": "g"}]}, "template.groups[0]"),
        ("no JSON", "template"),
        ([], "template"),
        (None, "template"),
    ],
)
async def test_a_template_of_which_no_mci_could_be_made_is_refused_at_once(
    both: LeaseHarness, template: object, field: str
) -> None:
    with pytest.raises(BadInput) as caught:
        await both.lease("nonsense", {"resource_type": "mci", "template": template})
    assert caught.value.field.startswith(field)
    assert await both.plugin.leases.list(NS) == []


async def test_the_range_of_a_size_in_a_template_begins_with_one(both: LeaseHarness) -> None:
    template = {**FLEET, "groups": [{**GROUP, "size": 0}]}
    with pytest.raises(BadInput, match=r"a whole number from 1 to 10000") as caught:
        await both.lease("none", {"resource_type": "mci", "template": template})
    assert (caught.value.field, caught.value.value) == ("template.groups[0].size", 0)


async def test_an_mci_of_somebody_else_is_neither_used_nor_terminated(both: LeaseHarness) -> None:
    theirs = await both.lease("theirs", {"resource_type": "mci", "template": FLEET})
    await both.until(theirs, "ACTIVE")
    mine = await both.lease("mine", {"resource_type": "mci", "template": FLEET})
    failed = await both.until(mine, "ERROR")
    assert "was not made for this reservation" in str(failed.object.error)
    await both.plugin.leases.await_delete(await both.plugin.leases.delete(ME, mine.object.id))
    assert (await both.engine.record(NS, "globe")).state == "Running"


async def test_what_keeps_an_mci_from_being_made_is_told_with_the_lease(both: LeaseHarness) -> None:
    lease = await both.lease("late", {"resource_type": "mci", "template": FLEET}, start=3600, end=7200)
    spec = msgspec.json.decode(lease.object.spec)
    spec["reservations"][0]["details"]["template"]["groups"] = [{**GROUP, "name": "no/name"}]
    await _rewrite(both, lease, spec)
    await both.plugin.leases.update(ME, lease.object.id, {"start_date": "now"})
    failed = await both.until(lease, "ERROR")
    assert "name" in str(failed.object.error)


async def test_two_reservations_do_not_share_an_mci(both: LeaseHarness) -> None:
    same = {"resource_type": "mci", "template": FLEET}
    lease = await both.lease("twins", same, same)
    failed = await both.until(lease, "ERROR")
    first, second = (seen for _, seen in failed.reservations())
    assert first.status is ReservationState.ACTIVE
    assert "was not made for this reservation" in str(second.error)


class Askers(ScriptedResource):
    """Things that ask an object for something that it will not do."""

    async def start_requests(self, task: ReservationTask) -> Sequence[Request]:
        return [Request(task.job.ns, "nobody", "recover", op="", actor=USER)]

    async def start(self, task: ReservationTask) -> None:
        raise Permanent("it is not there")


async def test_what_was_denied_to_another_object_is_the_cause_that_is_told(opening: Opening) -> None:
    async with opening(things=Askers()) as site:
        lease = await site.lease("asking", thing("lamp"))
        failed = await site.until(lease, "ERROR")
        (mine,) = failed.seen.reservations.values()
        assert mine.error == "it is not there: there is no object 'nobody' in namespace 'ns'"


async def _rewrite(site: LeaseHarness, lease: Lease, spec: dict[str, Any]) -> None:
    """Change what is stored of a lease, as an earlier version could have stored it."""
    found = await site.engine.record(NS, lease.object.id)
    changed = replace(found, spec=msgspec.json.encode(spec).decode(), version=found.version + 1)
    await site.engine.store.transact(lambda tx: tx.apply(Changes(objects=[changed])))


async def test_an_mci_that_cannot_be_made_is_an_error_of_its_reservation_only(both: LeaseHarness) -> None:
    await both.hosts("h1")
    theirs = await both.lease("theirs", mci_reservation("m3"))
    await both.until(theirs, "ACTIVE")
    lease = await both.lease("mixed", mci_reservation("m3"), {"resource_type": "physical:host", "min": 1, "max": 1})
    failed = await both.until(lease, "ERROR", "ACTIVE")
    statuses = [seen.status for _, seen in failed.reservations()]
    assert statuses == [ReservationState.ERROR, ReservationState.ACTIVE]
