"""A forced terminate during a creation leaves nothing behind, at any moment."""

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from stateward.domains.mci.lifecycle import VM, MciState
from stateward.domains.mci.provider import provider_client
from stateward.drivers.simulated import SimulatedCloud
from stateward.drivers.simulated.faults import CALM, FaultProfile
from stateward.engine.errors import NoneAllowed
from stateward.lifecycle import FORCE
from stateward.store.filters import Selector
from stateward.store.postgres import PostgresStore
from stateward.store.postgres.tx import PostgresTx
from stateward.store.records import Object, Status
from tests.integration.domains.mci.conftest import ANN, NS, PATIENT, MciHarness, group, mci, open_harness
from tests.integration.domains.mci.request_races import SEOUL, alive, control, go_on, operation_id, quiet, race, states
from tests.integration.domains.mci.virtual_world import World, live
from tests.long_forms import in_long_form
from tests.servers import PostgresServer


@pytest.fixture(autouse=True)
def _absent_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_client, "ABSENT_AFTER_S", 0.02)


@pytest.mark.parametrize("hold", [False, True], ids=["under way", "held"])
async def test_a_create_that_has_no_vms_yet_is_given_up_by_force(harnesses: list[MciHarness], hold: bool) -> None:
    harness = harnesses[0]
    harness.cloud.set_profile(SEOUL, CALM if hold else replace(CALM, latency=0.0, patience=0.01, dead=True))
    created = await harness.service.create(NS, mci(hold=hold), ANN)
    await harness.until(lambda state: state == (MciState.PREPARED if hold else MciState.PREPARING))
    won, lost = await race(harnesses, *[control("terminate", force=True)] * 2)
    assert won
    assert {type(one) for one in lost} <= {NoneAllowed}  # whoever comes when it is given up finds nothing to do
    assert {(await harness.ended(operation_id(one))).status for one in won} <= {Status.SUCCEEDED, Status.CANCELLED}
    assert (await harness.ended(created)).status is Status.CANCELLED
    assert (await harness.state(), await states(harness), alive(harness)) == (MciState.EMPTY, {}, [])
    go_on(harness)
    await harness.service.delete(NS, "m1", "", ANN)
    assert (await harness.created(mci())).status is Status.SUCCEEDED


STEPS = 70
"""After how many steps of the store an MCI of four VMs has been created and is Running."""


async def terminate_amid_create(world: World, step: int) -> None:
    """Terminate an MCI by force at a step of its creation."""
    harness = world.harness
    await harness.service.create(NS, mci("m1", group(size=4)), ANN)
    while world.killer.passed < step and await harness.state() != MciState.RUNNING:
        await asyncio.sleep(0.001)
    verdict = await harness.service.control(NS, "m1", "terminate", ANN, force=True)
    await harness.ended(verdict.whole)
    await asyncio.sleep(120.0)  # a creation that was under way has long arrived
    assert await harness.state() in (MciState.EMPTY, MciState.TERMINATED)
    assert set((await states(harness)).values()) <= {"Terminated"}
    assert list(world.machines()) == []


@pytest.mark.parametrize("first", in_long_form(range(10), short=range(1)))
def test_a_create_that_is_forced_away_at_any_moment_leaves_no_machine(first: int) -> None:
    for step in range(first, STEPS, 10):
        live(step, FaultProfile(latency=0.02, pending=0.1), partial(terminate_amid_create, step=step))


@pytest.mark.parametrize("action", ["suspend", "resume", "reboot"])
async def test_force_does_nothing_to_vms_that_are_not_there(harnesses: list[MciHarness], action: str) -> None:
    harness = harnesses[0]
    await harness.service.create(NS, mci(hold=True), ANN)
    await harness.until(lambda state: state == MciState.PREPARED)
    with pytest.raises(NoneAllowed, match="no members"):
        await harness.service.control(NS, "m1", action, ANN, force=True)
    assert await harness.state() == MciState.PREPARED


async def test_a_forced_terminate_includes_vms_that_a_scale_out_adds_at_the_same_time(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn, cloud = postgres_server.new_migrated_database(), SimulatedCloud(profile=CALM, chance=Random(1))
    selected, opened, select = asyncio.Event(), asyncio.Event(), PostgresTx.select

    async def held(tx: PostgresTx, selector: Selector) -> list[Object]:
        found = await select(tx, selector)
        if selector.kind == VM.kind and not selected.is_set():
            selected.set()
            await opened.wait()
        return found

    async with (
        asyncio.timeout(PATIENT),
        open_harness(PostgresStore(dsn), tmp_path, cloud=cloud) as one,
        open_harness(PostgresStore(dsn), tmp_path, cloud=cloud) as other,
    ):
        await one.created(mci())
        monkeypatch.setattr(PostgresTx, "select", held)
        terminating = asyncio.create_task(one.service.control(NS, "m1", "terminate", ANN, force=True))
        await selected.wait()
        cloud.set_profile(SEOUL, replace(CALM, pending=3600.0))
        await other.service.scale(NS, "m1", "g1", 3, ANN)
        while len(alive(other)) < 5:  # a machine that was never requested would first have to count as absent
            await asyncio.sleep(0.01)
        opened.set()
        await one.ended((await terminating).whole)
        await quiet([one, other])
        assert Counter((await states(one)).values()) == {"Terminated": 5}
        assert alive(one) == []
    postgres_server.drop_later(dsn)


async def test_a_forced_terminate_ends_vms_that_have_no_operation_of_it(harness: MciHarness) -> None:
    await harness.created(mci("m1", group(size=3)))
    whole = harness.engine.request(NS, "m1", "terminate", actor=ANN.actor, facts={FORCE})
    each = harness.engine.request(NS, "", "terminate", actor=ANN.actor, facts={FORCE})
    verdict = await harness.engine.group(whole, Selector(NS, VM.kind, "m1", ids=("m1.g1-1",)), each)
    await harness.ended(verdict.whole)
    assert Counter((await states(harness)).values()) == {"Terminated": 3}
    assert alive(harness) == []
