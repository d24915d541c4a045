"""Many process machines: what they cost is printed, not asserted."""

import sys
from pathlib import Path

import pytest

from stateward.drivers import MachineAction, MachineState, ProviderRegion
from stateward.drivers.process import ProcessDriver
from tests.integration.drivers.local.host import all_are, left_of, memory_of, refs, timed, wants

NUMBER = 100


async def live(folder: Path, number: int) -> None:
    """Bring machines through their lives, and print what it takes."""
    calls: list[str] = []
    driver = ProcessDriver(ProviderRegion("local", "here", options={"folder": str(folder)}), calls.append)
    await timed("create", number, driver.create(wants(number, "tiny", "sh")))
    await all_are(driver, MachineState.RUNNING, number)
    pids = left_of(folder)
    assert len(pids) == number
    sys.stdout.write(f"    memory: {memory_of(pids) / number:.2f} MiB each\n")
    await timed("list", number, driver.observe())
    for deed, state in [(MachineAction.SUSPEND, MachineState.SUSPENDED), (MachineAction.RESUME, MachineState.RUNNING)]:
        await timed(deed, number, driver.act(deed, refs(number)))
        await all_are(driver, state, number)
    await timed("reboot", number, driver.act(MachineAction.REBOOT, refs(number, "token")))
    await all_are(driver, MachineState.RUNNING, number)
    assert len(left_of(folder)) == number
    await timed("terminate", number, driver.act(MachineAction.TERMINATE, refs(number)))
    await all_are(driver, MachineState.TERMINATED, number)
    assert left_of(folder) == []
    assert calls.count("spawn") == 2 * number
    await driver.close()


async def test_a_hundred_machines_live_and_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await live(folder, NUMBER)
    assert "terminate" in capsys.readouterr().out
