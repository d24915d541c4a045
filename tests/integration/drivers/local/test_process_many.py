"""Many process machines: what they cost is printed, not asserted."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from stateward.drivers import MachineAction, MachineHandle, MachineState, ProviderRegion, TransientFailure
from stateward.drivers.process import ProcessDriver
from tests.integration.drivers.local.host_machines import (
    live_processes_in,
    memory_of,
    timed,
    wait_for_all,
)
from tests.integration.drivers.local.killed_controller import machine_handles, machine_specs
from tests.long_forms import in_long_form


async def accepted(driver: ProcessDriver, action: MachineAction, handles: Sequence[MachineHandle]) -> None:
    """Request an action until no machine refuses it for now: a process may stop slowly where others are busy."""
    while handles:
        outcomes = await driver.act(action, handles)
        pairs = zip(handles, outcomes, strict=True)
        handles = [handle for handle, outcome in pairs if isinstance(outcome, TransientFailure)]


async def live(folder: Path, number: int) -> None:
    """Bring machines through their lives, and print what it takes."""
    calls: list[str] = []
    driver = ProcessDriver(ProviderRegion("local", "here", options={"folder": str(folder)}), calls.append)
    await timed("create", number, driver.create(machine_specs(number, "tiny", "sh")))
    await wait_for_all(driver, MachineState.RUNNING, number)
    pids = live_processes_in(folder)
    assert len(pids) == number
    sys.stdout.write(f"    memory: {memory_of(pids) / number:.2f} MiB each\n")
    await timed("list", number, driver.observe())
    for action, state in [
        (MachineAction.SUSPEND, MachineState.SUSPENDED),
        (MachineAction.RESUME, MachineState.RUNNING),
    ]:
        await timed(action, number, accepted(driver, action, machine_handles(number)))
        await wait_for_all(driver, state, number)
    await timed("reboot", number, accepted(driver, MachineAction.REBOOT, machine_handles(number, "token")))
    await wait_for_all(driver, MachineState.RUNNING, number)
    assert len(live_processes_in(folder)) == number
    await timed("terminate", number, accepted(driver, MachineAction.TERMINATE, machine_handles(number)))
    await wait_for_all(driver, MachineState.TERMINATED, number)
    assert live_processes_in(folder) == []
    assert calls.count("spawn") == 2 * number
    await driver.close()


@pytest.mark.parametrize("number", in_long_form((20, 100), short=(20,)))
async def test_many_machines_live_and_end(folder: Path, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    await live(folder, number)
    assert "terminate" in capsys.readouterr().out
