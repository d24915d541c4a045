"""Leases of MCIs: created from a template when the lease starts, terminated when it ends, by the mci domain itself."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from stateward.domains.leases.house import LeasesWing
from stateward.domains.leases.lifecycle import ReservationState
from stateward.domains.mci.house import MciWing
from stateward.domains.wing import Site
from stateward.drivers.simulated import SimulatedCloud
from stateward.drivers.simulated.temper import CALM
from stateward.engine import Engine
from stateward.store.port import Store
from stateward.store.records import Key
from tests.integration.domains.leases.conftest import ME, NS, Leasing
from tests.integration.domains.leases.things import Things
from tests.integration.domains.mci.conftest import mci


@pytest.fixture
async def both(new_store: Callable[[], Store], tmp_path: Path) -> AsyncIterator[Leasing]:
    """Both domains beside one engine; neither knows the other."""
    site = Site(tmp_path, chance=Random(1))
    clouds = MciWing(site, cloud=SimulatedCloud(temper=CALM, chance=Random(1)), tick=0.01, every=3600.0)
    leases = LeasesWing(site)
    engine = Engine(new_store(), [*clouds.kinds, *leases.kinds], lease=3.0)
    for wing in (clouds, leases):
        wing.attach(engine)
    async with engine, clouds.live(engine, works=True):
        yield Leasing(engine, leases, Things())


def wish(name: str, **more: Any) -> dict[str, Any]:
    return {"resource_type": "mci", "mci": name, "template": {**msgspec.to_builtins(mci(name)), **more}}


async def test_an_mci_lives_as_long_as_its_lease(both: Leasing) -> None:
    lease = await both.lease("fleet", wish("m1"))
    await both.until(lease, "ACTIVE")
    assert (await both.engine.get(NS, "m1")).state == "Running"
    await both.wing.leases.update(ME, lease.object.id, {"end_date": "now"})
    ended = await both.until(lease, "TERMINATED")
    await _gone(both, "m1")
    assert {one.status for one in ended.seen.reservations.values()} == {ReservationState.DELETED}


async def test_a_lease_that_is_deleted_takes_its_mci_with_it(both: Leasing) -> None:
    lease = await both.lease("fleet", wish("m2"))
    await both.until(lease, "ACTIVE")
    await both.wing.leases.delete(ME, lease.object.id)
    await both.gone(lease)
    await _gone(both, "m2")


async def test_delete_of_a_lease_whose_mci_is_still_being_made_leaves_nothing_behind(both: Leasing) -> None:
    lease = await both.lease("fleet", wish("m4", hold=True))
    await both.eventually(lambda: _is(both, "m4", "Prepared"))
    await both.wing.leases.delete(ME, lease.object.id)
    await both.gone(lease)
    await _gone(both, "m4")


async def _is(site: Leasing, name: str, state: str) -> bool:
    found = await site.engine.store.reader.object(Key(NS, name))
    return found is not None and found.state == state


async def _gone(site: Leasing, name: str) -> None:
    found = await site.engine.store.reader.object(Key(NS, name))
    assert found is not None
    assert found.removed or found.state in ("Terminated", "Empty")


async def test_an_mci_that_cannot_be_made_is_an_error_of_its_reservation_only(both: Leasing) -> None:
    await both.hosts("h1")
    broken = wish("m3", groups=[{"name": "g", "size": 1, "spec": "nowhere+none+x", "image": "none"}])
    lease = await both.lease("mixed", broken, {"resource_type": "physical:host", "min": 1, "max": 1})
    failed = await both.until(lease, "ERROR", "ACTIVE")
    statuses = [seen.status for _, seen in failed.reservations()]
    assert statuses == [ReservationState.ERROR, ReservationState.ACTIVE]
