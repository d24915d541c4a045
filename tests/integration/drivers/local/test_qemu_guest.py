"""The guest is what its source says, and really runs: it ticks, stands still, starts anew, and can be turned off."""

import asyncio
import subprocess
from pathlib import Path
from shutil import which

import pytest

from stateward.drivers import CallAccepted, MachineAction, MachineState, ProviderRegion
from stateward.drivers.qemu import QemuDriver, guest
from stateward.drivers.qemu.hardware import HOST_ARCH
from stateward.drivers.qemu.monitor import open_monitor
from tests.integration.drivers.local.host_machines import (
    ARCHITECTURES,
    wait_for_state,
)
from tests.integration.drivers.local.killed_controller import machine_handles, machine_specs
from tests.waiting import until

SOURCES = Path(guest.__file__).parent
RECIPES = {
    "x86_64": ["as --32 -o o {source}", "ld -m elf_i386 -Ttext 0x7c00 -e 0 -o elf o"],
    "aarch64": ["as -o o {source}", "ld -Ttext 0 -e 0 -o elf o"],
}


ASSEMBLERS = [
    pytest.param(arch, prefix, marks=pytest.mark.skipif(which(f"{prefix}as") is None, reason=f"no {package}"))
    for arch, prefix, package in (
        (arch, "", "binutils")
        if arch == HOST_ARCH
        else (arch, f"{arch}-linux-gnu-", f"binutils-{arch.replace('_', '-')}-linux-gnu")
        for arch in RECIPES
    )
]
"""Every architecture with how the names of its tools begin; those of another one have a prefix."""


@pytest.mark.parametrize(("arch", "prefix"), ASSEMBLERS)
def test_the_bytes_are_those_of_the_source(tmp_path: Path, arch: str, prefix: str) -> None:
    for step in [*RECIPES[arch], "objcopy -O binary elf bin"]:
        words = [word.format(source=SOURCES / f"{arch}.s") for word in (prefix + step).split()]
        subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "bin").read_bytes() == guest.GUESTS[arch]


def test_the_boot_sector_is_one() -> None:
    sector = guest.GUESTS["x86_64"]
    assert (len(sector), sector[-2:]) == (512, b"\x55\xaa")


class Machine:
    """One machine, and its console."""

    def __init__(self, folder: Path, arch: str) -> None:
        self.driver = QemuDriver(ProviderRegion("local", "here", options={"folder": str(folder), "arch": arch}))
        self.folder = folder / "machines" / "key-0"

    async def start(self) -> None:
        await self.driver.create(machine_specs(1, "tiny", "tick"))
        await wait_for_state(self.driver, "key-0", MachineState.RUNNING)
        await self.says("tick 00001")

    def lines(self) -> list[str]:
        return (self.folder / "console").read_text().splitlines()

    async def says(self, line: str, times: int = 1) -> None:
        await until(lambda: self.lines().count(line) >= times)

    async def does(self, action: MachineAction, state: MachineState) -> None:
        (outcome,) = await self.driver.act(action, machine_handles(1))
        assert isinstance(outcome, CallAccepted), outcome
        await wait_for_state(self.driver, "key-0", state)


@pytest.mark.parametrize("arch", ARCHITECTURES)
async def test_a_guest_ticks_and_a_suspended_one_stands_still_and_goes_on_where_it_was(folder: Path, arch: str) -> None:
    machine = Machine(folder, arch)
    await machine.start()
    assert machine.lines()[:2] == ["up", "tick 00001"]
    await machine.does(MachineAction.SUSPEND, MachineState.SUSPENDED)
    before = machine.lines()
    await asyncio.sleep(2.2)  # real time: nothing happens in the time of two ticks, or of more
    assert machine.lines() == before
    await machine.does(MachineAction.RESUME, MachineState.RUNNING)
    await machine.says(f"tick {len(before):05}")
    assert machine.lines().count("up") == 1
    await machine.driver.close()


@pytest.mark.parametrize("arch", ARCHITECTURES)
async def test_a_rebooted_guest_starts_anew_and_answers_the_power_button(folder: Path, arch: str) -> None:
    machine = Machine(folder, arch)
    await machine.start()
    await machine.does(MachineAction.REBOOT, MachineState.RUNNING)
    await machine.says("up", times=2)
    await machine.says("tick 00001", times=2)
    async with open_monitor(machine.folder) as monitor:
        await monitor.execute("system_powerdown")
    shown = await wait_for_state(machine.driver, "key-0", MachineState.TERMINATED)
    assert machine.lines()[-1] == "power button"
    assert shown.native_state == "gone"
    await machine.driver.close()
