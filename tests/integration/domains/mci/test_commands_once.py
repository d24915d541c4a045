"""Commands on VMs without SSH: each runs at most once, on the machines that it was requested for."""

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest

from stateward.domains.mci.model import CommandInput, CommandSpec, PostCommand, VmChoice, command_seen, mci_seen, vm_of
from stateward.domains.mci.remote.begun_runs import INTERRUPTED
from stateward.domains.mci.remote.command_requests import submit_command
from stateward.domains.mci.remote.command_retention import LANE_GROUP
from stateward.drivers import MachineHandle
from stateward.drivers.simulated import SimulatedDriver
from stateward.drivers.simulated.faults import FaultProfile
from stateward.engine import Accepted
from stateward.store.records import Lane, LaneGroup, Object, Status
from tests.integration.domains.mci.conftest import ANN, NS, MciHarness, group, mci
from tests.integration.domains.mci.virtual_world import World, live

LONGEST = 3_600.0


class Machines:
    """Counts the commands that machines run; the first worker never receives an answer, while `holds` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, holds: bool = False) -> None:
        self.ran: Counter[str] = Counter()
        self.holds = holds

        async def run(_driver: Any, handle: MachineHandle, _command: str, _user: str, _seconds: float) -> str:
            self.ran[handle.key] += 1
            if self.holds:
                await asyncio.Event().wait()
            return "done\n"

        monkeypatch.setattr(SimulatedDriver, "run", run)

    async def busy(self, count: int) -> None:
        """Wait until so many commands have begun."""
        async with asyncio.timeout(LONGEST):
            while self.ran.total() < count:
                await asyncio.sleep(0.01)


async def submitted(harness: MciHarness, *commands: str) -> Accepted:
    """Request a command on all VMs of an MCI."""
    return await submit_command(harness.service, NS, VmChoice(), CommandSpec("m1", (), commands), CommandInput(), ANN)


async def ended(harness: MciHarness, accepted: Accepted) -> Object:
    """Return the record of a command after its end."""
    await harness.engine.wait_record(NS, accepted.op.id, LONGEST)
    return await harness.engine.record(NS, accepted.object.id)


def test_a_command_without_ssh_is_not_run_again_after_the_end_of_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Machines(monkeypatch, holds=True)

    async def course(world: World) -> None:
        await world.harness.engine.wait_record(
            NS, (await world.harness.service.create(NS, mci("m1", group("a", 2)), ANN)).op.id, LONGEST
        )
        accepted = await submitted(world.harness, "adduser bob")
        await machines.busy(2)
        machines.holds = False
        await world.kill()
        found = await ended(world.harness, accepted)
        assert found.state == "Failed"
        assert {one.error for one in command_seen(found).results.values()} == {INTERRUPTED}

    live(1, FaultProfile(), course)
    assert set(machines.ran.values()) == {1}


def test_a_post_command_without_ssh_is_not_run_again_after_the_end_of_its_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machines = Machines(monkeypatch, holds=True)

    async def course(world: World) -> None:
        spec = mci("m1", group("a", 2), post_command=PostCommand(commands=("adduser bob",)))
        accepted = await world.harness.service.create(NS, spec, ANN)
        await machines.busy(2)
        machines.holds = False
        await world.kill()
        await world.harness.engine.wait_record(NS, accepted.op.id, LONGEST)
        made = await world.harness.service.mci(NS, "m1")
        assert made.state == "Running"
        assert mci_seen(made).failed == {"a-1": INTERRUPTED, "a-2": INTERRUPTED}

    live(2, FaultProfile(), course)
    assert set(machines.ran.values()) == {1}


def test_a_command_without_ssh_that_is_cancelled_after_the_end_of_its_worker_may_still_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machines = Machines(monkeypatch, holds=True)

    async def course(world: World) -> None:
        await world.harness.engine.wait_record(
            NS, (await world.harness.service.create(NS, mci("m1", group("a", 1)), ANN)).op.id, LONGEST
        )
        accepted = await submitted(world.harness, "sleep 1000")
        await machines.busy(1)
        await world.kill()
        await world.harness.engine.cancel(NS, accepted.op.id, ANN.who)
        found = await ended(world.harness, accepted)
        assert "it may still run on a-1" in (found.error or "")

    live(3, FaultProfile(), course)
    assert set(machines.ran.values()) == {1}


async def test_a_command_that_waits_does_not_run_on_a_new_machine_of_an_old_name(
    harness: MciHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines, lane = Machines(monkeypatch), f"{LANE_GROUP}/{NS}"
    await harness.created(mci("m1", group(size=2)))
    await harness.engine.set_limits([LaneGroup(LANE_GROUP, 1)], [Lane(lane, LANE_GROUP, 0, 0.0, 0.0, 0)])
    accepted = await submitted(harness, "wipe --all")
    old = {vm_of(one).uid for one in await harness.service.vms(NS, "m1")}
    await harness.ended(await harness.service.scale(NS, "m1", "g1", -1, ANN))
    await harness.ended(await harness.service.scale(NS, "m1", "g1", 1, ANN))
    new = {vm_of(one).uid for one in await harness.service.vms(NS, "m1")}
    assert len(new - old) == 1
    await harness.engine.set_limits([], [Lane(lane, LANE_GROUP, 10, 0.0, 0.0, 0)])
    found = await ended(harness, accepted)
    assert set(machines.ran) == old & new
    assert [one.error for one in command_seen(found).results.values()] == ["", "the VM is gone"]
    assert (await harness.ended(accepted)).status is Status.FAILED


def test_a_command_of_an_earlier_version_has_no_uids() -> None:
    assert msgspec.json.decode('{"mci": "m1", "vms": ["g-1"]}', type=CommandSpec).uids == ()
