"""A controller is killed at every point of what it does; the next one finds one machine for each key, and goes on."""

import asyncio
from pathlib import Path

import pytest

from stateward.drivers import AlreadyDone, CallAccepted, Driver, MachineAction, MachineState, Observation
from tests.fork_server import forked_module
from tests.integration.drivers.local.host_machines import (
    live_processes_in,
    needs_qemu,
    observe_machine,
    records_in,
    wait_for_state,
)
from tests.integration.drivers.local.killed_controller import machine_handles, machine_specs, make
from tests.long_forms import in_long_form
from tests.waiting import until

KINDS = ["process", pytest.param("qemu", marks=needs_qemu)]
MOSTLY_PROCESS = ["process", pytest.param("qemu", marks=(needs_qemu, pytest.mark.long))]
"""Both kinds have the same records of machines; the long form has both."""
IMAGES = {"process": "sh", "qemu": "tick"}


CONTROLLER = "tests.integration.drivers.local.killed_controller"


async def die(kind: str, folder: Path, action: str, last: str) -> None:
    with forked_module(CONTROLLER, kind, str(folder), action, last, "1") as (process, printed):
        await asyncio.to_thread(printed.read)
        assert process.wait() == (0 if last == "never" else -9)


async def created(kind: str, folder: Path) -> Driver:
    driver = make(kind, str(folder))
    await driver.create(machine_specs(1, "tiny", IMAGES[kind]))
    await wait_for_state(driver, "key-0", MachineState.RUNNING)
    return driver


async def alone(driver: Driver, folder: Path) -> Observation:
    shown = await wait_for_state(driver, "key-0", MachineState.RUNNING)

    async def is_alone() -> bool:  # a process has no mark before it executes its program
        return live_processes_in(folder) == [int(shown.details["pid"])]

    await until(is_alone)
    assert len((await driver.observe()).machines) == 1
    return shown


@pytest.mark.parametrize("kind", MOSTLY_PROCESS)
@pytest.mark.parametrize("last", ["recorded", "started", "settled", "never"])
async def test_a_create_that_was_cut_short_ends_in_one_machine(folder: Path, kind: str, last: str) -> None:
    await die(kind, folder, "create", last)
    driver = make(kind, str(folder))
    found = await observe_machine(driver, "key-0")
    assert found is not None
    assert found.state in (MachineState.PENDING, MachineState.RUNNING)
    (outcome,) = await driver.create(machine_specs(1, "tiny", IMAGES[kind]))
    assert isinstance(outcome, (CallAccepted, AlreadyDone))
    assert (await alone(driver, folder)).native_id == outcome.native_id == found.native_id
    await driver.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_machine_that_was_started_and_not_yet_noted_is_seen_and_can_be_controlled(
    folder: Path, kind: str
) -> None:
    await die(kind, folder, "create", "started")
    driver = make(kind, str(folder))
    await wait_for_state(driver, "key-0", MachineState.RUNNING)
    assert isinstance((await driver.act(MachineAction.SUSPEND, machine_handles(1)))[0], CallAccepted)
    await wait_for_state(driver, "key-0", MachineState.SUSPENDED)
    assert isinstance((await driver.act(MachineAction.TERMINATE, machine_handles(1)))[0], CallAccepted)
    await wait_for_state(driver, "key-0", MachineState.TERMINATED)
    assert live_processes_in(folder) == []
    await driver.close()


@pytest.mark.parametrize("kind", MOSTLY_PROCESS)
async def test_a_machine_that_was_never_started_can_be_terminated(folder: Path, kind: str) -> None:
    await die(kind, folder, "create", "recorded")
    driver = make(kind, str(folder))
    assert isinstance((await driver.act(MachineAction.TERMINATE, machine_handles(1)))[0], CallAccepted)
    await wait_for_state(driver, "key-0", MachineState.TERMINATED)
    assert isinstance((await driver.create(machine_specs(1, "tiny", IMAGES[kind])))[0], AlreadyDone)
    assert live_processes_in(folder) == []
    await driver.close()


@pytest.mark.parametrize("last", ["recorded", "started", "settled"])
async def test_a_reboot_that_was_cut_short_is_one_reboot_when_it_is_repeated(folder: Path, last: str) -> None:
    driver = await created("process", folder)
    await die("process", folder, "reboot", last)
    (outcome,) = await driver.act(MachineAction.REBOOT, machine_handles(1, "the-token"))
    assert isinstance(outcome, (CallAccepted, AlreadyDone))
    assert (await alone(driver, folder)).details["boots"] == "2"
    await driver.close()


async def test_a_machine_whose_reboot_was_cut_short_is_shown_as_rebooting(folder: Path) -> None:
    driver = await created("process", folder)
    await die("process", folder, "reboot", "recorded")
    await wait_for_state(driver, "key-0", MachineState.REBOOTING)
    await driver.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_terminate_that_was_cut_short_is_repeated_and_ends(folder: Path, kind: str) -> None:
    driver = await created(kind, folder)
    await die(kind, folder, "terminate", "ending")
    await wait_for_state(driver, "key-0", MachineState.TERMINATING)
    assert isinstance((await driver.act(MachineAction.TERMINATE, machine_handles(1)))[0], CallAccepted)
    await wait_for_state(driver, "key-0", MachineState.TERMINATED)
    assert live_processes_in(folder) == []
    await driver.close()


@pytest.mark.parametrize("lines", in_long_form((1, 9, 25), short=(9,)))
async def test_a_controller_killed_amid_many_creates_leaves_one_machine_for_each_key(folder: Path, lines: int) -> None:
    with forked_module(CONTROLLER, "process", str(folder), "create", "no milestone", "20") as (_, printed):
        for _ in range(lines):
            await asyncio.to_thread(printed.readline)
    driver = make("process", str(folder))
    await driver.create(machine_specs(20, "tiny", "sh"))

    await until(
        driver.observe,
        lambda listing: listing.complete and all(one.state is MachineState.RUNNING for one in listing.machines),
    )
    assert len(live_processes_in(folder)) == len(records_in(folder)) == len((await driver.observe()).machines) == 20
    await driver.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_machines_outlive_the_controller_that_made_them(folder: Path, kind: str) -> None:
    await die(kind, folder, "create", "never")
    driver = make(kind, str(folder))
    await alone(driver, folder)
    await driver.close()
