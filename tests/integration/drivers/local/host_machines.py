"""What tests of machines on this host share: how to find what they left behind, and to end it."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Collection
from contextlib import suppress
from pathlib import Path
from shutil import which

import pytest
from msgspec import json

from stateward.drivers import Driver, MachineState, Observation, ProviderRegion
from stateward.drivers.process.machine_dir import MachineRecord
from stateward.drivers.process.machine_processes import processes_of
from stateward.drivers.process.ssh_daemon import MODULE
from stateward.drivers.qemu.hardware import BOARDS, Hardware
from stateward.procfs import find_marked, is_same_process, parse_stat, stat_of
from stateward.workloads.spawn import reap_children
from tests.waiting import until

TIMEOUT_S = 30.0
HARDWARE = Hardware(ProviderRegion("local", "here"))
needs_qemu = pytest.mark.skipif(
    HARDWARE.program is None,
    reason=f"{HARDWARE.board.program} is not installed: apt-get install {HARDWARE.board.package}",
)

ARCHITECTURES = [
    pytest.param(
        arch,
        marks=pytest.mark.skipif(
            which(board.program) is None, reason=f"{board.program} is not installed: apt-get install {board.package}"
        ),
    )
    for arch, board in BOARDS.items()
]
"""Every board that a guest can have. The one of another architecture is emulated, so both are tested on either."""


def records_in(folder: Path) -> list[MachineRecord]:
    """Return the records of all machines in a folder."""
    return [
        json.decode(file.read_bytes(), type=MachineRecord) for file in sorted(folder.glob("machines/*/record.json"))
    ]


def live_processes_in(folder: Path) -> list[int]:
    """Return the numbers of all live processes that are machines in a folder, of whatever boot, or come from one."""
    reap_children()
    return _live_in(folder, _marks_in(folder))


def ssh_servers_in(folder: Path) -> list[int]:
    """Return the process that serves SSH to the machines in a folder, if there is one."""
    reap_children()
    found = find_marked([str(folder.absolute())]).values()
    return [pid for pid in found if MODULE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]


def _live_in(folder: Path, marks: Collection[str]) -> list[int]:
    """Return the live processes of the recorded machines, and those that bear a mark.

    The record comes first: a process that was just started shows no arguments until the kernel has laid them out.
    """
    records = records_in(folder)
    recorded = [record.process for record in records if record.process is not None]
    leaders = {one.pid for one in recorded if is_same_process(one, stat_of(one.pid))} | {*find_marked(marks).values()}
    unconfined = [record for record in records if record.uid is None]  # a user can belong to another test by now
    labeled = {one.pid for record in unconfined for one in processes_of(record, None)}
    stats = []
    for file in Path("/proc").glob("[0-9]*/stat") if leaders | labeled else ():
        with suppress(OSError):
            stats.append(parse_stat(file.read_text(errors="replace")))
    return sorted(one.pid for one in stats if one.alive and (one.session in leaders or one.pid in labeled))


def _marks_in(folder: Path) -> set[str]:
    return {mark for one in records_in(folder) for mark in _marks(one)}


def _marks(record: MachineRecord) -> list[str]:
    return [record.native_id, *(f"{record.native_id}/{boot}" for boot in range(1, record.boot + 2))]


def kill_all_in(folder: Path) -> None:
    """End all machines in a folder and their SSH server, and wait until they are gone.

    A child that has not yet executed its program bears no mark, so there are none only if none are seen repeatedly.
    Each look scans all processes of the host, so one has to do where no machine was made.
    """
    deadline, looks_without = time.monotonic() + TIMEOUT_S, 0
    while looks_without < (3 if (marks := _marks_in(folder)) else 1):
        reap_children()
        pids = _live_in(folder, {*marks, str(folder.absolute())})
        assert not pids or time.monotonic() < deadline, f"these do not end: {pids}"
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        looks_without = 0 if pids else looks_without + 1
        time.sleep(0.005)


async def observe_machine(driver: Driver, key: str) -> Observation | None:
    """Return a machine as it is shown; the listing has to be complete."""
    listing = await driver.observe([key])
    assert listing.complete, listing.problem
    return next(iter(listing.machines), None)


async def wait_for_state(driver: Driver, key: str, state: MachineState) -> Observation:
    """Wait until a machine is in a state."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        listing = await driver.observe([key])
        for shown in listing.machines:
            if shown.state is state:
                return shown
        assert time.monotonic() < deadline, f"{key} never became {state}: {listing}"
        await asyncio.sleep(0.01)


async def wait_for_all(driver: Driver, state: MachineState, number: int) -> None:
    """Wait until all machines are in a state."""
    await until(
        driver.observe,
        lambda listing: listing.complete and [one.state for one in listing.machines] == [state] * number,
    )


async def timed(name: str, number: int, work: Awaitable[object]) -> None:
    """Print what something takes for each machine."""
    begin = time.perf_counter()
    await work
    sys.stdout.write(f"{name:>10}: {(time.perf_counter() - begin) * 1000 / number:.2f} ms each\n")


def memory_of(pids: list[int]) -> float:
    """Return the proportional share of memory of some processes, in MiB."""
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    return sum(int(text.partition("Pss:")[2].split()[0]) for text in texts) / 1024
