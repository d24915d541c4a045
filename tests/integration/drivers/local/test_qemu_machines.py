"""QEMU machines among controllers that come, go and hang; and what their monitors can and cannot tell."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from stateward.drivers import (
    CallAccepted,
    CallRefused,
    CallUnanswered,
    MachineAction,
    MachineHandle,
    MachineState,
    ProviderRegion,
    RefusalReason,
    TransientFailure,
)
from stateward.drivers.qemu import QemuDriver
from stateward.drivers.qemu import monitor as monitors
from stateward.drivers.qemu.errors import CommandRejected, MonitorNotReached
from stateward.drivers.qemu.hardware import Hardware
from stateward.errors import BadInput
from tests.integration.drivers.local.host_machines import (
    TIMEOUT_S,
    live_processes_in,
    memory_of,
    needs_qemu,
    observe_machine,
    timed,
    wait_for_all,
    wait_for_state,
)
from tests.integration.drivers.local.killed_controller import machine_handles, machine_specs
from tests.long_forms import in_long_form
from tests.stopped_processes import stop_process

pytestmark = needs_qemu


def local(folder: Path, program: str | None = None, **options: str) -> QemuDriver:
    region = ProviderRegion("local", "here", options={"folder": str(folder)} | options)
    return QemuDriver(region, hardware=Hardware(region, program))


async def one_machine(folder: Path) -> QemuDriver:
    driver = local(folder)
    await driver.create(machine_specs(1, "tiny", "tick"))
    await wait_for_state(driver, "key-0", MachineState.RUNNING)
    return driver


async def live(folder: Path, number: int) -> None:
    """Bring machines through their lives, one of them killed behind our back, and print what it takes."""
    driver = local(folder)
    await timed("create", number, driver.create(machine_specs(number, "tiny", "tick")))
    await timed("come up", number, wait_for_all(driver, MachineState.RUNNING, number))
    pids = live_processes_in(folder)
    assert len(pids) == number
    sys.stdout.write(f"    memory: {memory_of(pids) / number:.2f} MiB each\n")
    await timed("list", number, driver.observe())
    for action, state in [
        (MachineAction.SUSPEND, MachineState.SUSPENDED),
        (MachineAction.RESUME, MachineState.RUNNING),
    ]:
        await timed(action, number, driver.act(action, machine_handles(number)))
        await wait_for_all(driver, state, number)
    await timed("reboot", number, driver.act(MachineAction.REBOOT, machine_handles(number, "token")))
    victim = await observe_machine(driver, "key-0")
    assert victim is not None
    os.kill(int(victim.details["pid"]), signal.SIGKILL)
    await wait_for_state(driver, "key-0", MachineState.TERMINATED)
    listing = await driver.observe()
    assert [one.state for one in listing.machines].count(MachineState.RUNNING) == number - 1, [
        one.native_state for one in listing.machines
    ]
    await timed("terminate", number, driver.act(MachineAction.TERMINATE, machine_handles(number)))
    await wait_for_all(driver, MachineState.TERMINATED, number)
    assert live_processes_in(folder) == []
    await driver.close()


@pytest.mark.parametrize("number", in_long_form((3, 10), short=(3,)))
async def test_machines_live_and_end_and_one_that_is_killed_is_found(folder: Path, number: int) -> None:
    await live(folder, number)


async def test_the_folder_may_be_deeper_than_the_name_of_a_socket_can_be_long(folder: Path) -> None:
    deep = folder.joinpath(*["a-rather-long-name-of-a-folder"] * 6)
    driver = local(deep)
    await driver.create(machine_specs(1, "tiny", "tick"))
    await wait_for_state(driver, "key-0", MachineState.RUNNING)
    await driver.act(MachineAction.TERMINATE, machine_handles(1))
    await wait_for_state(driver, "key-0", MachineState.TERMINATED)
    assert live_processes_in(deep) == []
    await driver.close()


async def test_two_controllers_do_not_hang_on_one_machine(folder: Path) -> None:
    one = await one_machine(folder)
    other = local(folder)
    listings = await asyncio.gather(*(driver.observe() for driver in [one, other] * 10))
    assert all(listing.complete and len(listing.machines) == 1 for listing in listings)
    await one.close()
    await other.close()


async def test_a_monitor_that_somebody_else_keeps_tells_nothing_and_nobody_is_taken_for_dead(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = await one_machine(folder)
    monkeypatch.setattr(monitors, "ANSWER_TIMEOUT_S", 0.2)
    with hold_monitor(folder):
        listing = await driver.observe()
        assert (list(listing.machines), listing.complete) == ([], False)
        assert "key-0" in listing.problem
        (outcome,) = await driver.act(MachineAction.SUSPEND, machine_handles(1))
        assert isinstance(outcome, (CallUnanswered, TransientFailure))
    await wait_for_state(driver, "key-0", MachineState.RUNNING)
    await driver.close()


def hold_monitor(folder: Path) -> socket.socket:
    """Be a client that comes and does not go."""
    handle = os.open(folder / "machines" / "key-0", os.O_RDONLY)
    client = socket.socket(socket.AF_UNIX)
    client.connect(f"/proc/self/fd/{handle}/monitor")
    os.close(handle)
    assert b"QMP" in client.recv(1000)
    return client


async def test_a_machine_whose_process_is_stopped_is_not_taken_for_anything(folder: Path) -> None:
    driver = await one_machine(folder)
    (pid,) = live_processes_in(folder)
    stop_process(pid)
    listing = await driver.observe()
    assert (list(listing.machines), listing.complete) == ([], False)
    os.kill(pid, signal.SIGCONT)
    await wait_for_state(driver, "key-0", MachineState.RUNNING)
    await driver.close()


async def test_a_machine_that_does_not_quit_is_killed(folder: Path) -> None:
    driver = await one_machine(folder)
    (pid,) = live_processes_in(folder)
    stop_process(pid)
    (outcome,) = await driver.act(MachineAction.TERMINATE, machine_handles(1))
    assert isinstance(outcome, CallAccepted)
    await wait_for_state(driver, "key-0", MachineState.TERMINATED)
    assert live_processes_in(folder) == []
    await driver.close()


async def test_what_happens_behind_our_back_is_hinted_at(folder: Path) -> None:
    driver = await one_machine(folder)
    hints = driver.watch()
    heard = asyncio.ensure_future(anext(hints))
    machine = folder / "machines" / "key-0"
    while not heard.done():  # until the watcher is listening
        async with monitors.open_monitor(machine) as monitor:
            await monitor.execute("stop")
            await monitor.execute("cont")
        await asyncio.wait({heard}, timeout=0.05)
    assert heard.result() == "key-0"
    async with monitors.open_monitor(machine) as monitor:
        await monitor.execute("quit")
    assert await asyncio.wait_for(anext(hints), TIMEOUT_S) == "key-0"
    await hints.aclose()
    await driver.close()


async def test_a_kill_is_hinted_at(folder: Path) -> None:
    driver = await one_machine(folder)
    hints = driver.watch()
    assert await asyncio.wait_for(anext(hints), TIMEOUT_S) == "key-0"
    os.kill(live_processes_in(folder)[0], signal.SIGKILL)
    async with asyncio.timeout(TIMEOUT_S):
        while (await dead_or_alive(driver, await anext(hints))) is not MachineState.TERMINATED:
            pass
    await hints.aclose()
    await driver.close()


async def dead_or_alive(driver: QemuDriver, key: str) -> MachineState | None:
    listing = await driver.observe([key])
    return listing.machines[0].state if listing.machines else None


async def test_a_machine_that_never_came_up_has_failed_and_says_why(folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "broken-qemu"
    program.write_text("#!/bin/sh\necho out of order >&2\nexit 1\n")
    program.chmod(0o700)
    driver = local(folder, program=str(program))
    await driver.create(machine_specs(1, "tiny", "tick"))
    shown = await wait_for_state(driver, "key-0", MachineState.FAILED)
    assert shown.details["complaint"] == "out of order"
    await driver.act(MachineAction.TERMINATE, machine_handles(1))
    await wait_for_state(driver, "key-0", MachineState.TERMINATED)
    await driver.close()


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("1c99999999g", RefusalReason.NOT_FOUND),
        ("1c999999g", RefusalReason.CAPACITY),
        ("99c64m", RefusalReason.CAPACITY),
        ("0c1m", RefusalReason.NOT_FOUND),
    ],
)
async def test_a_size_that_cannot_be_is_refused(folder: Path, spec: str, why: RefusalReason) -> None:
    driver = local(folder)
    refusal = await driver.check(spec, "tick")
    assert refusal is not None
    assert refusal.why is why
    await driver.close()


async def test_a_host_without_qemu_says_what_to_install(folder: Path) -> None:
    driver = local(folder, program="no-such-program")
    (outcome,) = await driver.create(machine_specs(1, "tiny", "tick"))
    assert isinstance(outcome, CallRefused)
    assert outcome.why is RefusalReason.UNABLE
    assert "qemu-system-" in outcome.message
    await driver.close()


@pytest.mark.parametrize("options", [{"arch": "pdp11"}, {"accel": "magic"}])
async def test_nonsense_options_are_refused(folder: Path, options: dict[str, str]) -> None:
    with pytest.raises(BadInput):
        local(folder, **options)


async def test_the_monitor_can_be_asked_anything_and_says_no_with_a_reason(folder: Path) -> None:
    driver = await one_machine(folder)
    machine = folder / "machines" / "key-0"
    async with monitors.open_monitor(machine) as monitor:
        assert await monitor.status() == "running"
        with pytest.raises(CommandRejected, match="no-such-command"):
            await monitor.execute("no-such-command")
    await driver.act(MachineAction.TERMINATE, [MachineHandle("key-0")])
    with pytest.raises(MonitorNotReached):
        async with monitors.open_monitor(machine):
            pass
    await driver.close()
