"""What a listing says when record and operating system do not agree: a machine is dead only if both signs say so."""

import errno
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec import json
from msgspec.structs import replace

from stateward.drivers import (
    CallAccepted,
    CallRefused,
    MachineAction,
    MachineState,
    ProviderRegion,
    RefusalReason,
    TransientFailure,
)
from stateward.drivers.process import ProcessDriver
from stateward.drivers.process.machine_dir import MachineRecord
from stateward.procfs import PidNamespace, ProcessId
from tests.integration.drivers.local.host_machines import (
    live_processes_in,
    observe_machine,
    records_in,
    wait_for_state,
)
from tests.integration.drivers.local.killed_controller import machine_handles, machine_specs


def local(folder: Path, **options: str) -> ProcessDriver:
    return ProcessDriver(ProviderRegion("local", "here", options={"folder": str(folder)} | options))


async def one_machine(folder: Path) -> ProcessDriver:
    driver = local(folder)
    await driver.create(machine_specs(1, "tiny", "sh"))
    await wait_for_state(driver, "key-0", MachineState.RUNNING)
    return driver


async def one_dead_machine(folder: Path) -> ProcessDriver:
    driver = await one_machine(folder)
    (record,) = records_in(folder)
    assert record.process is not None
    os.kill(record.process.pid, 9)
    await wait_for_state(driver, "key-0", MachineState.TERMINATED)
    return driver


def change(folder: Path, how: Callable[[ProcessId], ProcessId]) -> None:
    (record,) = records_in(folder)
    assert record.process is not None
    file = folder / "machines" / "key-0" / "record.json"
    file.write_bytes(json.encode(replace(record, process=how(record.process))))


def other_start(process: ProcessId) -> ProcessId:
    return replace(process, pid=os.getpid())


def other_boot(process: ProcessId) -> ProcessId:
    return replace(process, host=PidNamespace("another boot", process.host.namespace), pid=os.getpid())


def other_namespace(process: ProcessId) -> ProcessId:
    return replace(process, host=PidNamespace(process.host.boot, "pid:[1]"), pid=os.getpid())


@pytest.mark.parametrize("how", [other_start, other_boot, other_namespace])
async def test_a_process_that_was_given_the_number_of_a_dead_machine_is_not_taken_for_it(
    folder: Path, how: Callable[[ProcessId], ProcessId]
) -> None:
    driver = await one_dead_machine(folder)
    change(folder, how)
    await wait_for_state(driver, "key-0", MachineState.TERMINATED)
    (outcome,) = await driver.act(MachineAction.SUSPEND, machine_handles(1))  # would stop the tests themselves
    assert isinstance(outcome, CallRefused)
    assert outcome.why is RefusalReason.CONFLICT
    assert outcome.message == "its record says that it is up, and its process is gone"
    await driver.act(MachineAction.TERMINATE, machine_handles(1))  # would kill them
    await driver.close()


@pytest.mark.parametrize("how", [other_start, other_boot, other_namespace])
async def test_a_living_machine_is_found_though_its_record_names_another_process(
    folder: Path, how: Callable[[ProcessId], ProcessId]
) -> None:
    driver = await one_machine(folder)
    alive = live_processes_in(folder)
    change(folder, how)
    shown = await wait_for_state(driver, "key-0", MachineState.RUNNING)
    assert [int(shown.details["pid"])] == alive
    await driver.act(MachineAction.TERMINATE, machine_handles(1))
    await wait_for_state(driver, "key-0", MachineState.TERMINATED)
    assert live_processes_in(folder) == []
    await driver.close()


async def test_a_machine_with_a_liveness_lock_that_is_not_seen_makes_the_listing_incomplete(
    folder: Path,
) -> None:
    driver = await one_dead_machine(folder)
    with (folder / "machines" / "key-0" / "alive").open() as sign:
        fcntl.flock(sign, fcntl.LOCK_EX)
        listing = await driver.observe()
        assert (list(listing.machines), listing.complete) == ([], False)
        assert "key-0" in listing.problem
    await wait_for_state(driver, "key-0", MachineState.TERMINATED)
    await driver.close()


async def test_a_broken_record_makes_the_listing_incomplete_and_is_named(folder: Path) -> None:
    driver = local(folder)
    await driver.create(machine_specs(2, "tiny", "sh"))
    file = folder / "machines" / "key-0" / "record.json"
    whole = file.read_bytes()
    file.write_bytes(whole[:20])
    listing = await driver.observe()
    assert [one.key for one in listing.machines] == ["key-1"]
    assert not listing.complete
    assert str(file) in listing.problem
    chosen = await driver.observe(["key-0", "key-1"])
    assert ([one.key for one in chosen.machines], chosen.complete) == (["key-1"], False)
    file.write_bytes(whole)
    assert (await driver.observe()).complete
    await driver.close()


async def test_fields_of_a_later_version_are_passed_over(folder: Path) -> None:
    driver = await one_machine(folder)
    file = folder / "machines" / "key-0" / "record.json"
    file.write_bytes(file.read_bytes()[:-1] + b',"disks":["one"]}')
    assert (await observe_machine(driver, "key-0")) is not None
    await driver.close()


async def test_ended_machines_are_listed_for_a_while_and_then_forgotten(folder: Path) -> None:
    driver = local(folder, keep="0")
    await driver.create(machine_specs(2, "tiny", "sh"))
    await driver.act(MachineAction.TERMINATE, machine_handles(1))
    await wait_for_state(driver, "key-0", MachineState.TERMINATED)
    os.kill(
        live_processes_in(folder)[0], 9
    )  # the other one, behind our back: noted at the first sweep, forgotten at the next
    await wait_for_state(driver, "key-1", MachineState.TERMINATED)
    await driver.create([])
    assert await observe_machine(driver, "key-0") is None
    assert await observe_machine(driver, "key-1") is not None
    await driver.create([])
    assert await observe_machine(driver, "key-1") is None
    assert not list((folder / "machines").iterdir())
    await driver.close()


async def test_a_record_is_on_the_disk_before_anything_is_started(folder: Path) -> None:
    noted: list[tuple[str, list[MachineRecord], list[int]]] = []

    def milestone(name: str) -> None:
        noted.append((name, records_in(folder), live_processes_in(folder)))

    driver = ProcessDriver(ProviderRegion("local", "here", options={"folder": str(folder)}), milestone=milestone)
    await driver.create(machine_specs(1, "tiny", "sh"))
    name, records, processes = noted[0]
    assert (name, len(records), processes) == ("recorded", 1, [])
    await driver.close()


async def test_a_machine_whose_start_cannot_be_noted_is_kept_and_found_by_the_next_try(folder: Path) -> None:
    full = ["a disk that is full"]

    def milestone(name: str) -> None:
        if name == "started" and full:
            raise OSError(errno.ENOSPC, full.pop())

    driver = ProcessDriver(ProviderRegion("local", "here", options={"folder": str(folder)}), milestone=milestone)
    (first,) = await driver.create(machine_specs(1, "tiny", "sh"))
    assert isinstance(first, TransientFailure)
    (again,) = await driver.create(machine_specs(1, "tiny", "sh"))
    assert isinstance(again, CallAccepted)
    shown = await wait_for_state(driver, "key-0", MachineState.RUNNING)
    assert processes_of(shown.native_id) == [int(shown.details["pid"])]
    await driver.close()


def processes_of(native_id: str) -> list[int]:
    """Return all processes that were started for a machine, though nobody has noted them."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if f"{native_id}/1".encode() in file.read_bytes().split(b"\0"):
                found.append(int(file.parent.name))
    return found
