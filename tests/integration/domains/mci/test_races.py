"""Concurrent requests: one wins, the errors of the others name it, and nothing is half done."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import cycle, islice
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.domains.mci.errors import VmsAlive
from stateward.domains.mci.handlers.prerequisites import Prerequisites
from stateward.domains.mci.lifecycle import MciState, VmState
from stateward.domains.mci.provider import provider_client
from stateward.drivers import MachineState
from stateward.drivers.simulated import SimulatedDriver
from stateward.drivers.simulated.faults import CALM
from stateward.drivers.simulated.machine import state_at
from stateward.engine import Accepted, AlreadyExists, Handler, Job, NotFound, Refused
from stateward.engine.job import Run
from stateward.store.records import Status
from tests.integration.domains.mci.conftest import ANN, NS, PATIENT, MciHarness, group, mci
from tests.integration.domains.mci.request_races import (
    SEOUL,
    SLOW,
    Racer,
    alive,
    control,
    control_vm,
    delete,
    go_on,
    names,
    operation_id,
    quiet,
    race,
    scale,
    states,
)
from tests.long_forms import in_long_form
from tests.waiting import until

PAIRS = [["suspend", "terminate"], ["terminate", "suspend"], ["suspend", "reboot"], ["reboot", "terminate"]]
RACERS = 8
ENDS = {"suspend": MciState.SUSPENDED, "terminate": MciState.TERMINATED, "reboot": MciState.RUNNING}


@pytest.fixture(autouse=True)
def _absent_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_client, "ABSENT_AFTER_S", 0.02)


# --- control against control -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", in_long_form(PAIRS, short=PAIRS[:2]), ids="-".join)
async def test_of_racing_actions_on_an_mci_one_wins_and_the_others_are_told_which(
    harnesses: list[MciHarness], pair: list[str]
) -> None:
    harness = harnesses[0]
    await harness.created(mci())
    harness.cloud.set_profile(SEOUL, SLOW)
    won, lost = await race(harnesses, *map(control, islice(cycle(pair), RACERS)))
    assert (len(won), len(lost)) == (1, RACERS - 1)
    winner = operation_id(won[0]).op
    assert {names(one) for one in lost} == {winner.id}
    assert {f", {winner.action} by user (ann)" in str(one) for one in lost} == {True}
    go_on(harness)
    assert (await harness.ended(won[0].whole)).status is Status.SUCCEEDED
    assert await harness.state() == ENDS[winner.action]
    begun = [line for line in await harness.engine.history(NS, "m1.g1-1") if line.source == VmState.RUNNING]
    assert [line.event for line in begun] == [winner.action]


async def test_of_racing_actions_on_a_vm_one_wins_and_the_others_are_told_which(harnesses: list[MciHarness]) -> None:
    harness = harnesses[0]
    await harness.created(mci())
    harness.cloud.set_profile(SEOUL, SLOW)
    won, lost = await race(harnesses, *map(control_vm, islice(cycle(("suspend", "terminate")), RACERS)))
    assert len(won) == 1
    assert {names(one) for one in lost} == {won[0].op.id}
    go_on(harness)
    await harness.ended(won[0])
    assert (await states(harness)) == {"g1-1": str(ENDS[won[0].op.action]), "g1-2": "Running"}


async def test_an_action_on_the_mci_leaves_alone_a_vm_that_was_quicker(harnesses: list[MciHarness]) -> None:
    harness = harnesses[0]
    await harness.created(mci())
    harness.cloud.set_profile(SEOUL, SLOW)  # a VM that was so quick that it is Suspended already is terminated too
    won, lost = await race(harnesses, control_vm("suspend"), control("terminate"))
    go_on(harness)
    for one in won:
        await harness.ended(operation_id(one))
    if len(won) == 2:  # the VM was first: the MCI has skipped it, and says so
        assert won[1].skipped.keys() == {"m1.g1-1"}
        assert await states(harness) == {"g1-1": "Suspended", "g1-2": "Terminated"}
    else:
        assert len(lost) == 1
        assert set((await states(harness)).values()) == {"Terminated"}


# --- scale against control -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, -1], ids=["out", "in"])
@pytest.mark.parametrize("action", in_long_form(("suspend", "terminate"), short=("terminate",)))
async def test_an_mci_is_scaled_or_controlled_and_never_both(
    harnesses: list[MciHarness], count: int, action: str
) -> None:
    harness = harnesses[0]
    await harness.created(mci("m1", group(size=3)))
    harness.cloud.set_profile(SEOUL, SLOW)
    racers = [scale(count), control(action)] * (RACERS // 2)
    Random(f"{count}{action}").shuffle(racers)
    won, lost = await race(harnesses, *racers)
    assert len(won) == 1
    winner = operation_id(won[0])
    assert {names(one) for one in lost} == {winner.op.id}
    go_on(harness)
    await harness.ended(winner)
    if winner.op.action == action:
        assert Counter((await states(harness)).values()) == {str(ENDS[action]): 3}
    else:
        assert Counter((await states(harness)).values()) == {"Running": 3 + count}
    assert len(alive(harness)) == sum(state != "Terminated" for state in (await states(harness)).values())


async def test_two_growths_at_once_are_one_growth(harnesses: list[MciHarness]) -> None:
    harness = harnesses[0]
    await harness.created(mci())
    harness.cloud.set_profile(SEOUL, SLOW)
    won, lost = await race(harnesses, *[scale(2)] * RACERS)
    assert len(won) == 1
    assert {names(one) for one in lost} == {won[0].op.id}
    go_on(harness)
    await harness.ended(won[0])
    assert (await states(harness)).keys() == {"g1-1", "g1-2", "g1-3", "g1-4"}
    assert len(alive(harness)) == 4


# --- creates ---------------------------------------------------------------------------------------------------------


async def test_of_two_creates_of_one_name_one_wins_and_each_machine_is_made_once(harnesses: list[MciHarness]) -> None:
    harness = harnesses[0]
    won, lost = await race(harnesses, *[lambda harness: harness.service.create(NS, mci(), ANN)] * RACERS)
    assert len(won) == 1
    assert {type(one) for one in lost} == {AlreadyExists}
    assert (await harness.ended(won[0])).status is Status.SUCCEEDED
    assert await states(harness) == {"g1-1": "Running", "g1-2": "Running"}
    assert len(harness.cloud.region(SEOUL).machines) == 2
    assert len(await harness.service.resources(NS, "vNet")) == 1


async def test_creates_of_many_names_at_once_share_what_they_stand_on(harnesses: list[MciHarness]) -> None:
    harness = harnesses[0]

    def create(name: str) -> Racer:
        return lambda harness: harness.service.create(NS, mci(name), ANN)

    won, lost = await race(harnesses, *(create(f"m{number}") for number in range(RACERS)))
    assert not lost
    assert {(await harness.ended(one)).status for one in won} == {Status.SUCCEEDED}
    assert len(harness.cloud.region(SEOUL).machines) == 2 * RACERS
    assert [len(await harness.service.resources(NS, word)) for word in ("vNet", "securityGroup", "sshKey")] == [1, 1, 1]


class Gate:
    """Holds the first caller that reaches it until it is opened; later ones pass."""

    def __init__(self) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def hold(self) -> None:
        if not self.reached.is_set():
            self.reached.set()
            await self.opened.wait()

    def hold_after(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        """Hold the first caller of a method of `Prerequisites` that has its result."""
        method = getattr(Prerequisites, name)

        async def call_and_hold(*args: Any) -> Any:
            result = await method(*args)
            await self.hold()
            return result

        monkeypatch.setattr(Prerequisites, name, call_and_hold)


async def withdraw_held_mci(harness: MciHarness, gate: Gate) -> Accepted:
    """Withdraw an MCI for which the shared resources were made; returns when the gate holds the withdrawal."""
    await harness.service.create(NS, mci("m1", hold=True), ANN)
    await harness.until(lambda state: state == MciState.PREPARED)
    withdrawn = await harness.service.continue_or_withdraw(NS, "m1", "withdraw", ANN)
    await asyncio.wait_for(gate.reached.wait(), PATIENT)
    return withdrawn


async def assert_runs_on_shared_resources(harness: MciHarness, name: str) -> None:
    assert set((await states(harness, name)).values()) == {"Running"}
    found = [await harness.service.resources(NS, word) for word in ("vNet", "securityGroup", "sshKey")]
    assert [[one.state for one in each] for each in found] == [["Available"]] * 3


async def test_a_withdrawal_leaves_what_an_mci_began_to_use_after_the_deletions_were_planned(
    harnesses: list[MciHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, deletion, use = harnesses[0], Gate(), Gate()
    deletion.hold_after(monkeypatch, "_ids_made_for")
    use.hold_after(monkeypatch, "native_ids")
    withdrawn = await withdraw_held_mci(harness, deletion)
    created = await harness.service.create(NS, mci("n1"), ANN)
    await asyncio.wait_for(use.reached.wait(), PATIENT)  # it has found all resources, and is about to request its VMs
    deletion.opened.set()
    assert (await harness.ended(withdrawn)).status is Status.SUCCEEDED
    use.opened.set()
    assert (await harness.ended(created)).status is Status.SUCCEEDED
    await assert_runs_on_shared_resources(harness, "n1")


async def test_an_mci_that_is_created_during_a_withdrawal_creates_what_that_deletes(
    harnesses: list[MciHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, gate, remove = harnesses[0], Gate(), SimulatedDriver.remove

    async def hold_and_remove(*args: Any) -> Any:
        await gate.hold()
        return await remove(*args)

    monkeypatch.setattr(SimulatedDriver, "remove", hold_and_remove)
    withdrawn = await withdraw_held_mci(harness, gate)  # its key is Deleting, and the rest is still Available
    created = await harness.service.create(NS, mci("n1"), ANN)
    gate.opened.set()
    for one in (withdrawn, created):
        assert (await harness.ended(one)).status is Status.SUCCEEDED
    await assert_runs_on_shared_resources(harness, "n1")


# --- delete against create -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["", "terminate"])
@pytest.mark.parametrize("pending", [0.0, 3600.0], ids=["quick", "slow"])
async def test_an_mci_that_is_being_created_is_not_deleted(
    harnesses: list[MciHarness], option: str, pending: float
) -> None:
    harness = harnesses[0]
    harness.cloud.set_profile(SEOUL, replace(CALM, pending=3600.0, latency=0.02))
    created = await harness.service.create(NS, mci(), ANN)
    if pending:
        await harness.until(lambda state: state == MciState.CREATING)
    won, lost = await race(harnesses, *[delete(option)] * RACERS)
    assert won == []
    refused = [one for one in lost if not isinstance(one, VmsAlive)]
    assert {names(one) for one in refused} <= {created.op.id}
    assert await harness.state() in (MciState.PREPARING, MciState.PREPARED, MciState.CREATING)
    await harness.service.delete(NS, "m1", "force", ANN)


@pytest.mark.parametrize("option", ["terminate", "force"])
async def test_an_mci_is_deleted_once_however_many_ask(harnesses: list[MciHarness], option: str) -> None:
    harness = harnesses[0]
    await harness.created(mci())
    won, lost = await race(harnesses, *[delete(option)] * RACERS)
    assert len(won) == 1
    assert {type(one) for one in lost} <= {NotFound, Refused}
    if option == "terminate":
        await harness.ended(won[0][0])
        assert alive(harness) == []
    assert await harness.service.mcis(NS) == await harness.service.vms(NS, "m1") == []


# --- force -----------------------------------------------------------------------------------------------------------


def counting(harnesses: Sequence[MciHarness]) -> Counter[str]:
    """Count how many handlers are at one VM at once; the most that there ever were is kept."""
    now: Counter[str] = Counter()
    most: Counter[str] = Counter()

    def counted(run: Run) -> Run:
        async def work(job: Job) -> Any:
            now[job.object] += 1
            most[job.object] = max(most[job.object], now[job.object])
            try:
                return await run(job)
            finally:
                now[job.object] -= 1

        return work

    for harness in harnesses:
        (kind,) = (kind for kind in harness.plugin.kinds if kind.name == "mci.vm")
        for action, one in kind.handlers.items():
            kind.handlers[action] = Handler(counted(one.run), one.observe, one.attempts)
    return most


async def test_force_fences_what_is_under_way_and_two_never_work_on_one_vm(harnesses: list[MciHarness]) -> None:
    harness, most = harnesses[0], counting(harnesses)
    await harness.created(mci())
    harness.cloud.set_profile(SEOUL, SLOW)
    first = await harness.service.control(NS, "m1", "suspend", ANN)
    await until_asked(harness, MachineState.SUSPENDING)
    harness.cloud.set_profile(SEOUL, CALM)
    second = await harness.service.control(NS, "m1", "terminate", ANN, force=True)
    assert (await harness.ended(second.whole)).status is Status.SUCCEEDED
    assert (await harness.ended(first.whole)).status is Status.CANCELLED
    assert set((await states(harness)).values()) == {"Terminated"}
    assert alive(harness) == []
    assert set(most.values()) == {1}


async def until_asked(harness: MciHarness, state: MachineState) -> None:
    """Wait until all machines are in a state at their provider."""
    machines = harness.cloud.region(SEOUL).machines
    await until(lambda: {state_at(one, harness.cloud.clock()) for one in machines.values()} == {state})


async def test_of_many_forced_actions_the_last_one_counts(harnesses: list[MciHarness]) -> None:
    harness, most = harnesses[0], counting(harnesses)
    await harness.created(mci())
    won, lost = await race(
        harnesses, *(control(one, force=True) for one in islice(cycle(("suspend", "resume")), RACERS))
    )
    assert not lost
    ended = [await harness.ended(operation_id(one)) for one in won]
    assert sum(one.status is not Status.CANCELLED for one in ended) == 1
    last = max(ended, key=lambda one: one.ended or 0.0)
    await quiet(harnesses)
    assert last.status is not Status.CANCELLED
    assert set(most.values()) == {1}
    truth = {state_at(one, harness.cloud.clock()) for one in harness.cloud.region(SEOUL).machines.values()}
    assert {state.lower() for state in (await states(harness)).values()} == truth


async def test_a_create_that_is_forced_away_while_the_provider_still_thinks_leaves_no_machine(
    harnesses: list[MciHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, most = harnesses[0], counting(harnesses)
    await harness.created(mci("m0"))  # what VMs stand on is there
    await harness.ended((await harness.service.control(NS, "m0", "terminate", ANN)).whole)
    harness.cloud.set_profile(SEOUL, replace(CALM, latency=1.0))  # it takes half a second until a call is heard
    sent = calls(monkeypatch)
    await harness.service.create(NS, mci(), ANN)
    await until(lambda: sent["create"] >= 2)
    harness.cloud.set_profile(SEOUL, CALM)
    verdict = await harness.service.control(NS, "m1", "terminate", ANN, force=True)
    await harness.ended(verdict.whole)
    await until(lambda: len(harness.cloud.region(SEOUL).machines) == 4)
    assert set((await states(harness)).values()) == {"Terminated"}
    assert alive(harness) == []
    assert set(most.values()) == {1}


def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what is asked for at the providers, when it is sent."""
    sent: Counter[str] = Counter()
    send = SimulatedDriver._call

    async def counted(driver: SimulatedDriver, call: str, items: Sequence[Any], do: Any) -> Any:
        sent[call] += len(items)
        return await send(driver, call, items, do)

    monkeypatch.setattr(SimulatedDriver, "_call", counted)
    return sent
