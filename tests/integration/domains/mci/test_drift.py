"""Drift: changes at the provider are found, journaled with the provider as actor, and applied; other VMs stay."""

import asyncio
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.domains.mci.control.drift import apply_vm_drift
from stateward.domains.mci.lifecycle import VM, MciState
from stateward.domains.mci.model import vm_of, vm_seen
from stateward.domains.mci.provider import provider_client
from stateward.domains.mci.provider.provider_client import ProviderClient
from stateward.drivers import Driver, MachineListing, MachineSpec, MachineState, ProviderRegion
from stateward.drivers.simulated import SimulatedCloud
from stateward.drivers.simulated.faults import CALM
from stateward.drivers.simulated.machine import state_at
from stateward.engine import HistoryEntry
from stateward.engine.external_reports import Sighting
from stateward.errors import BadInput
from stateward.lifecycle import PROVIDER
from stateward.store.filters import JournalFilter, Page, Selector
from stateward.store.port import Store
from stateward.store.records import Object, Status
from tests.integration.domains.mci.conftest import ANN, NS, MciHarness, group, mci, open_harness
from tests.waiting import until

SEOUL = ProviderRegion("aws", "ap-northeast-2")
NewStore = Callable[[], Store]


@pytest.fixture(autouse=True)
def _absent_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_client, "ABSENT_AFTER_S", 0.0)


async def states(harness: MciHarness, name: str = "m1") -> dict[str, str]:
    return {vm_of(one).name: one.state for one in await harness.service.vms(NS, name)}


async def uid(harness: MciHarness, vm: str, name: str = "m1") -> str:
    return vm_of(await harness.service.vm(NS, name, vm)).uid


async def last_line(harness: MciHarness, vm: str) -> HistoryEntry:
    return (await harness.engine.history(NS, f"m1.{vm}"))[-1]


def truth(harness: MciHarness) -> dict[str, MachineState | None]:
    now = harness.cloud.clock()
    return {key: state_at(one, now) for key, one in harness.cloud.region(SEOUL).machines.items()}


MISHAPS = {
    "stopped": (SimulatedCloud.stop, "Suspended", "shows suspended"),
    "terminated": (SimulatedCloud.terminate, "Terminated", "shows terminated"),
    "killed": (SimulatedCloud.fail, "Failed", "shows failed"),
}


@pytest.mark.parametrize("mishap", MISHAPS)
async def test_a_vm_that_changed_behind_our_back_is_found_and_its_mci_follows(harness: MciHarness, mishap: str) -> None:
    happen, state, event = MISHAPS[mishap]
    await harness.created(mci())
    happen(harness.cloud, SEOUL, await uid(harness, "g1-1"))
    assert await harness.plugin.reconciler.reconcile_all() == []
    assert await states(harness) == {"g1-1": state, "g1-2": "Running"}
    line = await last_line(harness, "g1-1")
    assert (line.actor, line.event, line.source, line.target) == (PROVIDER, event, "Running", state)
    await harness.until(lambda now: now == MciState.PARTIAL)
    assert (await harness.status()).status_count.count_running == 1


async def test_when_all_vms_are_stopped_behind_our_back_the_mci_is_suspended_and_can_be_resumed(
    harness: MciHarness,
) -> None:
    await harness.created(mci())
    for vm in ("g1-1", "g1-2"):
        harness.cloud.stop(SEOUL, await uid(harness, vm))
    await harness.plugin.reconciler.reconcile_all()
    await harness.until(lambda now: now == MciState.SUSPENDED)
    verdict = await harness.service.control(NS, "m1", "resume", ANN)
    assert (await harness.ended(verdict.whole)).status is Status.SUCCEEDED
    assert set((await states(harness)).values()) == {"Running"}


async def test_a_vm_that_is_shown_no_longer_is_undefined(harness: MciHarness) -> None:
    await harness.created(mci())
    del harness.cloud.region(SEOUL).machines[await uid(harness, "g1-1")]
    await harness.plugin.reconciler.reconcile_all()
    await harness.plugin.reconciler.reconcile_all()
    assert await states(harness) == {"g1-1": "Undefined", "g1-2": "Running"}
    assert (await last_line(harness, "g1-1")).actor == PROVIDER


async def test_a_look_around_where_nothing_changed_writes_nothing(harness: MciHarness) -> None:
    await harness.created(mci())
    before = await harness.engine.store.reader.last_journal_seq()
    for _ in range(3):
        assert await harness.plugin.reconciler.reconcile_all() == []
    assert await harness.engine.store.reader.last_journal_seq() == before


async def test_what_is_terminated_or_failed_is_not_looked_at(harness: MciHarness) -> None:
    await harness.created(mci())
    await harness.ended(await harness.service.control_vm(NS, "m1", "g1-1", "terminate", ANN))
    await harness.plugin.reconciler.reconcile_all()
    assert await states(harness) == {"g1-1": "Terminated", "g1-2": "Running"}


# --- what counts -----------------------------------------------------------------------------------------------------


def shows(event: str, at: float, vm: str = "g1-1", reason: str | None = None) -> Sighting:
    return Sighting(NS, f"m1.{vm}", event, at, reason=reason)


async def test_an_observation_that_is_older_than_an_action_does_not_count(harness: MciHarness) -> None:
    await harness.created(mci())
    before = await harness.engine.store.reader.time()
    for action in ("suspend", "resume"):
        await harness.ended(await harness.service.control_vm(NS, "m1", "g1-1", action, ANN))
    lines = await harness.engine.store.reader.last_journal_seq()
    assert await harness.engine.observe([shows("shows suspended", before)]) == [False]
    assert (await states(harness), await harness.engine.store.reader.last_journal_seq()) == (
        {"g1-1": "Running", "g1-2": "Running"},
        lines,
    )
    now = await harness.engine.store.reader.time()
    assert await harness.engine.observe([shows("shows suspended", now)]) == [True]
    assert await states(harness) == {"g1-1": "Suspended", "g1-2": "Running"}


async def test_a_listing_that_is_older_than_an_action_does_not_count(harness: MciHarness) -> None:
    await harness.created(mci())
    await harness.ended(await harness.service.control_vm(NS, "m1", "g1-1", "suspend", ANN))
    cloud = await harness.plugin.clients.by_name("aws-ap-northeast-2")
    old = await cloud.list_now()
    await harness.ended(await harness.service.control_vm(NS, "m1", "g1-1", "resume", ANN))
    await apply_vm_drift(harness.engine, cloud, old, await harness.service.vms(NS, "m1"))
    assert await states(harness) == {"g1-1": "Running", "g1-2": "Running"}


async def test_an_observation_does_not_count_while_an_operation_is_at_work(harness: MciHarness) -> None:
    await harness.created(mci())
    harness.cloud.set_profile(SEOUL, replace(CALM, suspending=3600.0))
    begun = await harness.service.control_vm(NS, "m1", "g1-1", "suspend", ANN)
    now = await harness.engine.store.reader.time()
    assert await harness.engine.observe([shows("shows failed", now + 1), shows("cannot say", now + 1)]) == [
        False,
        False,
    ]
    assert (await states(harness))["g1-1"] == "Suspending"
    harness.cloud.stop(SEOUL, await uid(harness, "g1-1"))
    assert (await harness.ended(begun)).status is Status.SUCCEEDED


async def test_what_a_listing_shows_of_many_is_one_transaction_and_keeps_the_reason(harness: MciHarness) -> None:
    await harness.created(mci("m1", group("g1", 30)))
    now, last = await harness.engine.store.reader.time(), await harness.engine.store.reader.last_journal_seq()
    told = [shows("cannot say", now, f"g1-{number}", "no answer") for number in range(1, 31)]
    assert await harness.engine.observe(told) == [True] * 30
    assert await harness.engine.observe(told) == [False] * 30
    lines = await harness.engine.store.reader.journal(last, 100, JournalFilter(actor=PROVIDER))
    assert {(one.target, one.reason) for one in lines} == {("Undefined", "no answer")}
    assert (len(lines), len({one.at for one in lines})) == (30, 1)
    assert {one.error for one in await harness.service.vms(NS, "m1")} == {"no answer"}


# --- orphans ---------------------------------------------------------------------------------------------------------


async def test_a_machine_that_no_record_knows_is_reported_and_left_alone(harness: MciHarness) -> None:
    await harness.created(mci())
    harness.cloud.create_orphan(SEOUL, MachineSpec("stray", "stray", "t3.nano", "ubuntu22.04"))
    (found,) = await harness.plugin.reconciler.reconcile_all()
    assert (found.connection, found.key, found.name) == ("aws-ap-northeast-2", "stray", "stray")
    assert truth(harness)["stray"] is MachineState.RUNNING


async def test_a_round_that_sees_an_orphan_holds_no_vm_twice(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.created(mci())
    harness.cloud.create_orphan(SEOUL, MachineSpec("stray", "stray", "t3.nano", "ubuntu22.04"))
    reader, ours = harness.engine.store.reader, asyncio.current_task()
    list_objects, held = reader.list_objects, list[list[int]]()
    read: list[Object] = []

    async def noted(chosen: Selector, page: Page) -> list[Object]:
        if asyncio.current_task() is not ours or chosen.kind != VM.kind:
            return await list_objects(chosen, page)
        gc.collect()
        held.append([sys.getrefcount(one) for one in read])
        read.extend(found := await list_objects(chosen, page))
        return found

    monkeypatch.setattr(reader, "list_objects", noted)
    assert [one.key for one in await harness.plugin.reconciler.reconcile_all()] == ["stray"]
    free = [sys.getrefcount(one) for one in [object()]]
    assert held[-1]
    assert set(held[-1]) == set(free)


async def test_a_machine_that_is_made_while_the_provider_is_asked_is_no_orphan(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.created(mci())
    list_now = ProviderClient.list_now

    async def meanwhile(cloud: ProviderClient) -> MachineListing:
        monkeypatch.undo()
        await harness.ended(await harness.service.scale(NS, "m1", "g1", 2, ANN))
        return await list_now(cloud)

    monkeypatch.setattr(ProviderClient, "list_now", meanwhile)
    assert await harness.plugin.reconciler.reconcile_all() == []


async def test_machines_that_can_be_seen_over_two_connections_are_no_orphans(harness: MciHarness) -> None:
    known = await harness.service.catalogue.connection("aws-ap-northeast-2")
    await harness.service.add_connection(replace(known, name="side-door"), ANN)
    await harness.created(mci("m1", group(size=1), group("g2", 1, connection="side-door")))
    assert await harness.plugin.reconciler.reconcile_all() == []


# --- restarts --------------------------------------------------------------------------------------------------------


async def test_one_vm_of_an_mci_is_terminated_and_after_a_restart_the_others_are_untouched(
    new_store: NewStore, tmp_path: Path
) -> None:
    cloud = SimulatedCloud(profile=CALM, chance=Random(1))
    async with open_harness(new_store(), tmp_path, cloud=cloud) as harness:
        await harness.created(mci("m1", group(size=3)))
        await harness.ended(await harness.service.control_vm(NS, "m1", "g1-2", "terminate", ANN))
        before = {one.id: one for one in await harness.service.vms(NS, "m1")}
    async with open_harness(new_store(), tmp_path, cloud=cloud) as harness:
        await harness.plugin.reconciler.reconcile_all()
        assert {one.id: one for one in await harness.service.vms(NS, "m1")} == before
        assert await states(harness) == {"g1-1": "Running", "g1-2": "Terminated", "g1-3": "Running"}
        assert sorted(map(str, truth(harness).values())) == ["running", "running", "terminated"]


async def test_an_mci_is_brought_in_step_though_whoever_saw_its_vm_change_has_died(
    new_store: NewStore, tmp_path: Path
) -> None:
    async with open_harness(new_store(), tmp_path) as harness:
        await harness.created(mci())
    async with open_harness(new_store(), tmp_path, works=False) as deaf:  # it follows nothing
        await deaf.engine.act(NS, "m1.g1-1", "shows suspended", actor=PROVIDER)
    async with open_harness(new_store(), tmp_path, cloud=harness.cloud) as harness:
        harness.cloud.stop(SEOUL, await uid(harness, "g1-1"))
        assert await harness.state() == MciState.RUNNING
        await harness.plugin.reconciler.reconcile_all()
        await harness.until(lambda now: now == MciState.PARTIAL)


# --- the same again --------------------------------------------------------------------------------------------------


def reboots(harness: MciHarness) -> list[int]:
    return [one.reboots for one in harness.cloud.region(SEOUL).machines.values()]


async def test_a_second_reboot_is_a_second_reboot(harness: MciHarness) -> None:
    await harness.created(mci())
    for times in (1, 2, 3):
        verdict = await harness.service.control(NS, "m1", "reboot", ANN)
        await harness.ended(verdict.whole)
        assert reboots(harness) == [times, times]


async def test_a_reboot_that_a_restart_repeats_is_one_reboot(new_store: NewStore, tmp_path: Path) -> None:
    cloud = SimulatedCloud(profile=CALM, chance=Random(1))
    async with open_harness(new_store(), tmp_path, cloud=cloud) as harness:
        await harness.created(mci())
        cloud.set_profile(SEOUL, CALM.__class__(latency=0.0, rebooting=3600.0))
        verdict = await harness.service.control(NS, "m1", "reboot", ANN)
        await until(lambda: reboots(harness) == [1, 1])
        assert verdict.whole is not None
    for machine in cloud.region(SEOUL).machines.values():
        machine.until = cloud.clock()
    async with open_harness(new_store(), tmp_path, cloud=cloud) as harness:
        assert (await harness.ended(verdict.whole)).status is Status.SUCCEEDED
        assert reboots(harness) == [1, 1]


async def test_what_the_provider_shows_is_kept_with_the_vm(harness: MciHarness) -> None:
    await harness.created(mci())
    shown = vm_seen(await harness.service.vm(NS, "m1", "g1-1"))
    assert (shown.native_state, shown.name) == ("running", "m1-g1-1")
    assert shown.native_id.startswith("i-")
    harness.cloud.stop(SEOUL, await uid(harness, "g1-1"))
    await harness.plugin.reconciler.reconcile_all()
    assert vm_seen(await harness.service.vm(NS, "m1", "g1-1")).native_state == "stopped"


async def test_a_connection_whose_driver_cannot_be_made_here_does_not_hold_up_the_round(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.created(mci("m1", group(), group("g2", 1, "aws+ap-northeast-1+t3.nano")))
    harness.cloud.stop(SEOUL, await uid(harness, "g1-1"))
    make = harness.plugin.drivers.make

    def refuse_tokyo(name: str, place: ProviderRegion, *how: Any) -> Driver:
        if place.region == "ap-northeast-1":
            raise BadInput("driver", name, "a driver whose library is installed")
        return make(name, place, *how)

    monkeypatch.setattr(harness.plugin.drivers, "make", refuse_tokyo)
    await harness.plugin.clients.discard("aws-ap-northeast-1")
    assert await harness.plugin.reconciler.reconcile_all() == []
    assert await states(harness) == {"g1-1": "Suspended", "g1-2": "Running", "g2-1": "Running"}
