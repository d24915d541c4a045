"""Evidence has a time, in virtual time: a listing proves nothing about a call that may be newer than what it shows."""

import asyncio
from collections.abc import Collection, Sequence
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.domains.mci.adoption import AdoptionRequest, adopt_machines, deregister_vms
from stateward.domains.mci.control.orphan_machines import RemovalEvidence, find_orphans, terminate_orphans
from stateward.domains.mci.control.reconciler import TAKEOVER_INTERVALS, Reconciler
from stateward.domains.mci.lifecycle import MciState
from stateward.domains.mci.model import ADOPTED_KEY, MachineToAdopt, VmSpec, vm_of
from stateward.domains.mci.provider.evidence import APPEARS_WITHIN_S
from stateward.domains.mci.service import Service
from stateward.domains.mci.shared_schemas import OrphanMachine, PossibleOrphan
from stateward.drivers import (
    CallRefused,
    Capabilities,
    MachineAction,
    MachineHandle,
    MachineListing,
    MachineSpec,
    MachineState,
    Outcome,
    ProviderRegion,
    RefusalReason,
)
from stateward.drivers.simulated import SimulatedDriver
from stateward.drivers.simulated.faults import FaultProfile
from stateward.drivers.simulated.machine import state_at, unmarked_key
from stateward.errors import StatewardError
from stateward.store.filters import JournalFilter
from stateward.store.records import Object, Status
from tests.integration.domains.mci.conftest import ANN, NS, group, mci
from tests.integration.domains.mci.test_evidence import LONGEST, made, states
from tests.integration.domains.mci.virtual_world import ENDED, World, live
from tests.long_forms import in_long_form

SEOUL = ProviderRegion("aws", "ap-northeast-2")
ACCOUNT = "aws-ap-northeast-2"
FAIR = FaultProfile()
LATE = replace(FAIR, late=12.0)


@pytest.fixture
def understated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that declares a lag of 3 s, whatever it is, and finds machines by listings, as that of aws does."""
    capabilities, act = SimulatedDriver._capabilities, SimulatedDriver.act

    def declared(driver: SimulatedDriver, profile: FaultProfile) -> Capabilities:
        return replace(capabilities(driver, profile), listing_lag_s=3.0)

    async def by_listing(
        driver: SimulatedDriver, action: MachineAction, handles: Sequence[MachineHandle]
    ) -> Sequence[Outcome]:
        listed = {one.key for one in (await driver.observe([one.key for one in handles])).machines}
        known = [one for one in handles if one.native_id or one.key in listed]
        done = dict(zip(known, await act(driver, action, known), strict=True)) if known else {}
        return [done.get(one) or CallRefused(one.key, RefusalReason.NOT_FOUND, "no such key") for one in handles]

    monkeypatch.setattr(SimulatedDriver, "_capabilities", declared)
    monkeypatch.setattr(SimulatedDriver, "act", by_listing)


async def only_vm(world: World) -> VmSpec:
    (found,) = await world.harness.service.vms(NS, "m1")
    return vm_of(found)


async def until_made(world: World, count: int) -> None:
    """Wait until the provider has so many machines."""
    async with asyncio.timeout(LONGEST):
        while len(list(world.machines())) < count:
            await asyncio.sleep(0.01)


async def orphans(world: World) -> list[OrphanMachine]:
    service = world.harness.service
    connections = [await service.catalogue.connection(ACCOUNT)]
    return (await find_orphans(service.clients, world.store.reader, connections)).orphans


async def end_orphan(world: World, key: str) -> dict[str, StatewardError]:
    service = world.harness.service
    connection = await service.catalogue.connection(ACCOUNT)
    return await terminate_orphans(service.clients, world.store.reader, connection, [key], "ann")


async def left_behind(world: World) -> set[str]:
    """Return the VMs whose removal may have left a machine, as the journal says."""
    lines = await world.store.reader.journal(0, 100_000, JournalFilter(ns=NS))
    return {one.object for one in lines if one.event == "left behind"}


# --- terminations ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("understated")
def test_a_machine_that_was_made_long_after_its_record_is_not_taken_for_terminated() -> None:
    async def course(world: World) -> None:
        service = world.harness.service
        created = await service.create(NS, mci("m1", group("a", 1), hold=True), ANN)
        while await world.harness.state() != MciState.PREPARED:
            await asyncio.sleep(0.1)
        world.cloud.set_profile(SEOUL, replace(LATE, request_lost=1.0))
        await service.continue_or_withdraw(NS, "m1", "continue", ANN)
        await asyncio.sleep(2 * APPEARS_WITHIN_S)  # the VM waits, and its create does not arrive
        world.cloud.set_profile(SEOUL, LATE)
        await until_made(world, 1)
        verdict = await service.control(NS, "m1", "terminate", ANN, force=True)
        assert verdict.whole is not None
        await world.harness.engine.wait_record(NS, verdict.whole.op.id, LONGEST)
        await world.harness.engine.wait_record(NS, created.op.id, LONGEST)
        assert await states(world.harness) == {"a-1": "Terminated"}
        assert list(world.machines()) == []

    live(1, LATE, course)


def test_a_machine_that_lives_on_after_its_vm_was_terminated_is_an_orphan() -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 1))
        vm = await only_vm(world)
        ended = await world.harness.service.control_vm(NS, "m1", "a-1", "terminate", ANN)
        await world.harness.engine.wait_record(NS, ended.op.id, LONGEST)
        world.region(vm).force(vm.uid, MachineState.RUNNING, world.clock())
        assert await orphans(world) == []  # what is shown may be from before its end
        assert await world.harness.plugin.reconciler.reconcile_all() == []
        await asyncio.sleep(APPEARS_WITHIN_S + 1.0)
        assert [one.key for one in await orphans(world)] == [vm.uid]
        assert [one.key for one in await world.harness.plugin.reconciler.reconcile_all()] == [vm.uid]
        assert await end_orphan(world, vm.uid) == {}
        await asyncio.sleep(60.0)
        assert (list(world.machines()), await orphans(world)) == ([], [])

    live(2, FAIR, course)


@pytest.mark.parametrize("whole", [True, False])
def test_a_removal_of_a_terminated_vm_names_its_machine_if_that_lives_on(whole: bool) -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 1))
        vm, service = await only_vm(world), world.harness.service
        verdict = await service.control(NS, "m1", "terminate", ANN)
        assert verdict.whole is not None
        await world.harness.engine.wait_record(NS, verdict.whole.op.id, LONGEST)
        world.region(vm).force(vm.uid, MachineState.RUNNING, world.clock())
        await asyncio.sleep(APPEARS_WITHIN_S + 1.0)
        _, left = await (service.delete(NS, "m1", "", ANN) if whole else service.delete_vm(NS, "m1", "a-1", ANN))
        assert [(one.key, one.shown) for one in left] == [(vm.uid, "running")]
        assert await left_behind(world) == {"m1.a-1"}

    live(3, FAIR, course)


@pytest.mark.parametrize("profile", [FAIR, replace(FAIR, dead=True)])
def test_a_removal_of_a_terminated_vm_names_nothing_that_its_provider_does_not_show(profile: FaultProfile) -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 1))
        ended = await world.harness.service.control_vm(NS, "m1", "a-1", "terminate", ANN)
        await world.harness.engine.wait_record(NS, ended.op.id, LONGEST)
        world.cloud.set_profile(SEOUL, profile)
        assert (await world.harness.service.delete(NS, "m1", "terminate", ANN))[1] == []
        assert await left_behind(world) == set()

    live(4, FAIR, course)


def test_a_listing_from_before_a_reboot_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    observe = SimulatedDriver.observe

    async def slow(driver: SimulatedDriver, keys: Collection[str] | None = None) -> MachineListing:
        """List all machines as they are now; the answer takes 10 s."""
        listing = await observe(driver, keys)
        await asyncio.sleep(10.0 if keys is None else 0.0)
        return listing

    async def course(world: World) -> None:
        await made(world, group("a", 1))
        vm = await only_vm(world)
        world.cloud.set_profile(SEOUL, replace(FAIR, rebooting=60.0))
        client = await world.harness.plugin.clients.by_name(ACCOUNT)
        monkeypatch.setattr(SimulatedDriver, "observe", slow)
        earlier = asyncio.ensure_future(client.list_shared())
        await asyncio.sleep(1.0)
        reboot = await world.harness.service.control_vm(NS, "m1", "a-1", "reboot", ANN)
        await asyncio.sleep(30.0)
        assert (await earlier).machines[0].state is MachineState.RUNNING
        assert (await states(world.harness), world.truth(vm)) == ({"a-1": "Rebooting"}, MachineState.REBOOTING)
        ended = await world.harness.engine.wait_record(NS, reboot.op.id, LONGEST)
        assert (ended.status, world.truth(vm)) == (Status.SUCCEEDED, MachineState.RUNNING)
        monkeypatch.undo()

    live(3, FAIR, course)


def test_a_vm_is_not_reconciled_by_a_listing_from_before_it_failed() -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 1))
        vm = await only_vm(world)
        world.cloud.set_profile(SEOUL, replace(FAIR, late=20.0))
        await asyncio.sleep(60.0)
        world.cloud.stop(SEOUL, vm.uid)
        await world.harness.engine.act(NS, "m1.a-1", "shows failed", actor="provider")
        reconciled = await world.harness.service.reconcile_vm(NS, "m1", "a-1", ANN)
        ended = await world.harness.engine.wait_record(NS, reconciled.op.id, LONGEST)
        assert (ended.status, await states(world.harness)) == (Status.SUCCEEDED, {"a-1": "Suspended"})

    live(10, FAIR, course)


# --- removals --------------------------------------------------------------------------------------------------------


async def list_twice(world: World) -> None:
    """Let two listings, some time apart, come in: absence in both is evidence."""
    client = await world.harness.plugin.clients.by_name(ACCOUNT)
    for _ in range(2):
        keys = [vm_of(one).uid for one in await world.harness.service.vms(NS, "m1")]
        client.read_listing(await client.list_now(), keys)
        await asyncio.sleep(2.5)


async def remove(world: World, how: str) -> list[PossibleOrphan]:
    service = world.harness.service
    if how == "mci":
        return (await service.delete(NS, "m1", "force", ANN))[1]
    vms = [vm_of(one).name for one in await service.vms(NS, "m1")]
    return [left for vm in vms for left in (await service.delete_vm(NS, "m1", vm, ANN, force=True))[1]]


@pytest.mark.parametrize("how", ["mci", "vm"])
@pytest.mark.usefixtures("understated")
def test_a_removal_by_force_names_machines_that_are_not_listed_yet(how: str) -> None:
    async def course(world: World) -> None:
        service = world.harness.service
        await service.create(NS, mci("m1", group("a", 2)), ANN)
        await until_made(world, 2)
        await list_twice(world)
        left = await remove(world, how)
        living = {one.key for one in world.machines()}
        assert ({one.key for one in left}, await left_behind(world)) == (living, {"m1.a-1", "m1.a-2"})

    live(4, LATE, course)


@pytest.mark.usefixtures("understated")
def test_a_removal_by_force_names_a_machine_that_a_create_without_an_answer_may_have_made() -> None:
    async def course(world: World) -> None:
        await world.harness.service.create(NS, mci("m1", group("a", 1)), ANN)
        await until_made(world, 1)
        await world.harness.engine.act(NS, "m1.a-1", "timed out", actor="clock")
        assert await states(world.harness) == {"a-1": "Undefined"}
        await asyncio.sleep(3.5)  # more than the lag that the driver declares
        await list_twice(world)
        assert [one.key for one in await remove(world, "vm")] == [one.key for one in world.machines()]

    live(5, LATE, course)


def test_a_removal_by_force_names_no_machine_that_has_been_absent_for_long() -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 1))
        vm = await only_vm(world)
        del world.region(vm).machines[vm.uid]
        await list_twice(world)
        assert (await remove(world, "mci"), await left_behind(world)) == ([], set())

    live(6, FAIR, course)


STEPS, STRIDE = 70, 10
"""After how many steps of the store an MCI of four VMs has been created and is Running."""


async def delete_amid_create(world: World, step: int) -> None:
    """Delete an MCI by force at a step of its creation; the removal and the journal name every machine that lives."""
    service = world.harness.service
    await service.create(NS, mci("m1", group("a", 4)), ANN)
    while world.killer.passed < step and await world.harness.state() != MciState.RUNNING:
        await asyncio.sleep(0.001)
    left = await remove(world, "mci")
    await asyncio.sleep(60.0)
    assert await service.mcis(NS) == await service.vms(NS, "m1") == []
    assert {one.key for one in world.machines()} <= {one.key for one in left}
    assert {f"m1.{one.vm}" for one in left} == await left_behind(world)
    await made(world, group("a", 4))
    assert set((await states(world.harness)).values()) == {"Running"}


@pytest.mark.parametrize("later_s", [0.0, 0.05, 0.2, 1.0])
@pytest.mark.parametrize("first", in_long_form(range(STRIDE), short=range(1)))
def test_a_deletion_by_force_amid_a_create_leaves_no_record_and_names_every_machine(
    later_s: float, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe = Service._observe_before_removal

    async def observed(service: Service, vms: Sequence[Object]) -> RemovalEvidence:
        """Observe the machines; the creation goes on for a while before the records are removed."""
        evidence = await observe(service, vms)
        await asyncio.sleep(later_s)
        return evidence

    monkeypatch.setattr(Service, "_observe_before_removal", observed)
    profile = FaultProfile(latency=0.02, pending=0.1)
    for step in range(first, STEPS, STRIDE):
        live(step, profile, lambda world, step=step: delete_amid_create(world, step))  # type: ignore[misc]


def test_the_steps_at_which_an_mci_is_deleted_are_all_of_its_creation() -> None:
    async def course(world: World) -> None:
        await made(world, group("a", 4))
        assert world.killer.passed <= STEPS

    live(0, FaultProfile(latency=0.02, pending=0.1), course)


# --- adopted machines ------------------------------------------------------------------------------------------------


async def adopted(world: World, native: str) -> str:
    """Let an MCI adopt a machine of others; returns the operation."""
    service = world.harness.service
    known = await service.catalogue.connection(ACCOUNT)
    await service.add_connection(replace(known, name=ACCOUNT, options={"adopt": NS}), ANN)
    request = AdoptionRequest("m1", (MachineToAdopt(ACCOUNT, native, "old"),))
    op, _ = await adopt_machines(service, NS, request, ANN, lambda _: True)
    assert op is not None
    return op


def foreign(world: World) -> str:
    return world.cloud.create_unmarked(SEOUL, MachineSpec("theirs", "theirs", "t3.nano", "ubuntu22.04"))


def is_untouched(world: World, native: str) -> bool:
    """Tell whether a machine of others is as it was: it lives, and carries no key."""
    machine = world.cloud.region(SEOUL).machines.get(unmarked_key(native))
    return machine is not None and state_at(machine, world.clock()) not in ENDED


def test_a_machine_that_was_deregistered_is_never_an_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    observe = SimulatedDriver.observe

    async def course(world: World) -> None:
        native = foreign(world)
        await world.harness.engine.wait_record(NS, await adopted(world, native), LONGEST)
        client = await world.harness.plugin.clients.by_name(ACCOUNT)
        before, until = await client.list_now(), world.clock() + 20.0

        async def late(driver: SimulatedDriver, keys: Collection[str] | None = None) -> MachineListing:
            """Show the key for a while after it was taken off."""
            return before if world.clock() < until else await observe(driver, keys)

        monkeypatch.setattr(SimulatedDriver, "observe", late)
        leaving = await deregister_vms(world.harness.service, NS, "m1", ["old-1"], ANN)
        ended: Any = None
        for _ in range(60):
            assert await orphans(world) == []
            assert await end_orphan(world, before.machines[0].key)
            await asyncio.sleep(0.5)
            ended = await world.store.reader.operation(leaving.op.key)
        assert (ended.status, is_untouched(world, native)) == (Status.SUCCEEDED, True)
        assert await states(world.harness) == {}
        monkeypatch.undo()

    live(7, FAIR, course)


def test_a_machine_whose_adoption_arrives_after_a_removal_by_force_is_released_and_not_terminated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    adopt, gate = SimulatedDriver.adopt, asyncio.Event()
    calls: list[asyncio.Future[Outcome]] = []

    async def arrive(driver: SimulatedDriver, handle: MachineHandle) -> Outcome:
        await gate.wait()
        return await adopt(driver, handle)

    async def held(driver: SimulatedDriver, handle: MachineHandle) -> Outcome:
        """Send a call that arrives late, even if nobody waits for its answer."""
        calls.append(asyncio.ensure_future(arrive(driver, handle)))
        return await asyncio.shield(calls[-1])

    async def course(world: World) -> None:
        native = foreign(world)
        monkeypatch.setattr(SimulatedDriver, "adopt", held)
        await adopted(world, native)
        while not calls:
            await asyncio.sleep(0.1)
        (left,) = await remove(world, "mci")
        gate.set()
        await calls[0]
        (orphan,) = await orphans(world)
        assert (orphan.key, orphan.key.startswith(ADOPTED_KEY)) == (left.key, True)
        assert await end_orphan(world, orphan.key) == {}
        assert is_untouched(world, native)
        monkeypatch.undo()

    live(8, FAIR, course)


# --- rounds ----------------------------------------------------------------------------------------------------------


def test_one_process_does_all_rounds_while_it_lives() -> None:
    async def course(world: World) -> None:
        plugin, engine = world.harness.plugin, world.harness.engine
        await asyncio.sleep(60.0)  # by now the process of the world does the rounds
        first, second = (
            Reconciler(engine, plugin.service.catalogue, plugin.clients, Random(1), lambda *_: None, every=1.0)
            for _ in range(2)
        )
        while not await first._claim_round():
            await asyncio.sleep(0.1)
        claims = []
        for _ in range(40):
            await asyncio.sleep(0.3)
            claims += [name for name, one in (("second", second), ("first", first)) if await one._claim_round()]
        assert set(claims) == {"first"}
        await asyncio.sleep(TAKEOVER_INTERVALS)
        assert await second._claim_round()
        await asyncio.sleep(1.0)
        assert not await first._claim_round()

    live(9, FAIR, course)
