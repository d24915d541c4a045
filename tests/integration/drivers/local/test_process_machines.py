"""Process machines are real: what runs on them stops, goes on and ends with them."""

import asyncio
import errno
import fcntl
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    Driver,
    MachineAction,
    MachineHandle,
    MachineState,
    ProviderRegion,
    TransientFailure,
)
from stateward.drivers.process import ProcessDriver, machine_processes, supervisor
from stateward.drivers.process.jobs import MAX_OUTPUT_BYTES
from stateward.drivers.process.machine_dir import MachineRecord
from stateward.errors import BadInput
from stateward.procfs import is_stopped, process_of, stat_of
from stateward.workloads import confinement
from tests.integration.drivers.local.host_machines import (
    kill_all_in,
    live_processes_in,
    observe_machine,
    wait_for_state,
)
from tests.integration.drivers.local.killed_controller import machine_handles, machine_specs
from tests.waiting import until

COUNTING = "i=0; while :; do i=$((i+1)); echo $i >>count; sleep 0.01; done"


def local(folder: Path, **options: str) -> ProcessDriver:
    return ProcessDriver(ProviderRegion("local", "here", options={"folder": str(folder)} | options))


async def one_machine(folder: Path, **options: str) -> ProcessDriver:
    driver = local(folder, **options)
    await driver.create(machine_specs(1, "tiny", "sh"))
    await wait_for_state(driver, "key-0", MachineState.RUNNING)
    return driver


async def pid_of(driver: ProcessDriver) -> int:
    shown = await observe_machine(driver, "key-0")
    assert shown is not None
    return int(shown.details["pid"])


def count_file(folder: Path) -> Path:
    return folder / "machines" / "key-0" / "work" / "count"


async def counts_on(file: Path) -> None:
    before = file.stat().st_size

    await until(lambda: file.stat().st_size > before)


async def start_counting(driver: ProcessDriver, folder: Path) -> Path:
    await driver.run(MachineHandle("key-0"), f"({COUNTING}) >/dev/null 2>&1 &\necho 0 >>count", "", 30.0)
    await counts_on(count_file(folder))
    return count_file(folder)


async def test_what_runs_on_a_machine_is_suspended_and_resumed_with_it(folder: Path) -> None:
    driver = await one_machine(folder)
    file = await start_counting(driver, folder)
    await driver.act(MachineAction.SUSPEND, machine_handles(1))
    await wait_for_state(driver, "key-0", MachineState.SUSPENDED)
    for pid in live_processes_in(folder):
        await until(lambda pid=pid: stopped(pid))  # type: ignore[misc]
    size = file.stat().st_size
    for _ in range(20):
        # real time: nothing happens meanwhile, however long it takes
        await asyncio.sleep(0.01)
        assert file.stat().st_size == size
    await driver.act(MachineAction.RESUME, machine_handles(1))
    await counts_on(file)
    await driver.close()


STOPPED = ("T", "Z", "D")
"""Stopped; ended and not waited for by a stopped parent; waiting for a stopped child that will run another program."""


async def stopped(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True  # it ended, and was waited for, right before its parent was stopped
    return text.rpartition(")")[2].split()[0] in STOPPED


def runs(pid: int) -> bool:
    return (stat := stat_of(pid)) is not None and stat.alive and not is_stopped(stat)


WAITS_FOR_CHILD = """
import ctypes, os, platform, signal
CLONE_VFORK, number = 0x4000, {"x86_64": 56, "aarch64": 220}[platform.machine()]
if ctypes.CDLL(None).syscall(number, CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0) == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
print("continued", flush=True)
"""


async def test_a_process_that_waits_for_a_stopped_child_is_suspended_and_resumed() -> None:
    command = [sys.executable, "-I", "-c", WAITS_FOR_CHILD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as program:
        assert program.stdout is not None
        leader = process_of(program.pid)
        assert leader is not None
        record = MachineRecord("key-0", uuid4().hex, "key-0", "tiny", "sh", process=leader)

        async def waits() -> bool:
            found = machine_processes.processes_of(record, leader)
            return {one.pid == leader.pid: one.state for one in found} == {True: "D", False: "T"}

        try:
            await until(waits)
            assert machine_processes.is_any_running(record, leader)
            assert machine_processes.stop_all(record, leader, 60.0)
            assert not machine_processes.is_any_running(record, leader)
            assert machine_processes.continue_all(record, leader)
            assert program.stdout.read() == "continued\n"
        finally:
            machine_processes.kill_all(record, leader)


@pytest.mark.parametrize("action", [MachineAction.TERMINATE, MachineAction.REBOOT])
async def test_what_runs_on_a_machine_ends_with_it(folder: Path, action: MachineAction) -> None:
    driver = await one_machine(folder)
    await start_counting(driver, folder)
    before = set(live_processes_in(folder))
    assert len(before) > 1
    await driver.act(action, machine_handles(1))

    await until(lambda: not before & set(live_processes_in(folder)) and not [pid for pid in before if _is_alive(pid)])
    await driver.close()


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def test_a_command_that_puts_a_folder_among_its_files_has_its_result(folder: Path) -> None:
    driver = await one_machine(folder)
    assert await driver.run(MachineHandle("key-0"), 'mkdir "${0%.command}.more"; echo done', "", 30.0) == "done\n"
    await driver.close()


async def test_what_outlives_a_killed_machine_is_ended_when_it_is_terminated(folder: Path) -> None:
    driver = await one_machine(folder)
    await start_counting(driver, folder)
    everything, leader = live_processes_in(folder), await pid_of(driver)
    os.kill(leader, signal.SIGKILL)
    await wait_for_state(driver, "key-0", MachineState.TERMINATED)
    await driver.act(MachineAction.TERMINATE, machine_handles(1))

    await until(lambda: not [pid for pid in everything if _is_alive(pid)])
    await driver.close()


async def test_a_machine_killed_behind_our_back_is_terminated_and_its_key_makes_no_other(folder: Path) -> None:
    driver = await one_machine(folder)
    os.kill(await pid_of(driver), signal.SIGKILL)
    shown = await wait_for_state(driver, "key-0", MachineState.TERMINATED)
    assert shown.native_state == "killed"
    assert isinstance((await driver.create(machine_specs(1, "tiny", "sh")))[0], AlreadyDone)
    assert live_processes_in(folder) == []
    await driver.close()


async def test_a_machine_stopped_behind_our_back_is_suspended(folder: Path) -> None:
    driver = await one_machine(folder)
    os.kill(await pid_of(driver), signal.SIGSTOP)
    await wait_for_state(driver, "key-0", MachineState.SUSPENDED)
    await driver.close()


async def accepted(driver: Driver, action: MachineAction) -> None:
    """Ask for an action until it is accepted: a process may take longer than a second to stop where others are busy."""
    allowed: tuple[type, ...] = (CallAccepted,)
    while isinstance(outcome := (await driver.act(action, machine_handles(1)))[0], TransientFailure):
        allowed = (CallAccepted, AlreadyDone)
    assert isinstance(outcome, allowed)


@pytest.mark.parametrize("leader_is_stopped", [False, True])
async def test_processes_in_sessions_of_their_own_are_suspended_and_exactly_these_are_resumed(
    folder: Path, leader_is_stopped: bool
) -> None:
    driver = await one_machine(folder)
    away = f"setsid sh -c '{COUNTING}' >/dev/null 2>&1 & sleep 1000 & kill -STOP $!; echo $! >own; echo 0 >>count"
    await driver.run(MachineHandle("key-0"), away, "", 30.0)
    file = count_file(folder)
    await counts_on(file)
    own = int(file.with_name("own").read_text())
    await until(lambda: stopped(own))
    if leader_is_stopped:
        os.kill(await pid_of(driver), signal.SIGSTOP)
        await wait_for_state(driver, "key-0", MachineState.SUSPENDED)
    await accepted(driver, MachineAction.SUSPEND)
    size = file.stat().st_size
    for _ in range(20):
        # real time: nothing happens meanwhile, however long it takes
        await asyncio.sleep(0.01)
        assert file.stat().st_size == size
    assert isinstance((await driver.act(MachineAction.SUSPEND, machine_handles(1)))[0], AlreadyDone)
    await driver.act(MachineAction.RESUME, machine_handles(1))
    await wait_for_state(driver, "key-0", MachineState.RUNNING)
    await counts_on(file)
    assert await stopped(own)
    assert isinstance((await driver.act(MachineAction.RESUME, machine_handles(1)))[0], AlreadyDone)
    everything = live_processes_in(folder)
    await driver.act(MachineAction.TERMINATE, machine_handles(1))
    await until_ended(own, *everything)
    await driver.close()


@pytest.fixture(params=["its own user", "our user"])
def machine_user(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run machines as their own users, and as the user of the server, which a server without rights always does."""
    if request.param == "our user":
        monkeypatch.setattr(confinement, "_is_root", lambda: False)
    elif os.geteuid() != 0:
        pytest.skip("NOT PROVED HERE: machines with their own user need root")


AWAY = "(env -i setsid sh -c 'cd /; echo $$ >&3; exec 3>&-; while :; do sleep 0.01; done' 3>{file} >/dev/null 2>&1 &)"
"""A daemon: with its own session, without its parent, its environment, its folder and its output."""


async def start_daemon(driver: ProcessDriver, folder: Path) -> int:
    """Start a daemon on a machine, and return its pid on this host."""
    await driver.run(MachineHandle("key-0"), AWAY.format(file="away"), "", 30.0)
    file = count_file(folder).with_name("away")

    await until(lambda: file.exists() and file.read_text().endswith("\n"))
    return int(file.read_text())


@pytest.mark.usefixtures("machine_user")
@pytest.mark.parametrize("action", [MachineAction.TERMINATE, MachineAction.REBOOT])
async def test_a_daemon_ends_with_its_machine(folder: Path, action: MachineAction) -> None:
    driver = await one_machine(folder)
    daemon = await start_daemon(driver, folder)
    await driver.act(action, machine_handles(1))
    await until_ended(daemon)
    await driver.close()


@pytest.mark.usefixtures("machine_user")
async def test_a_daemon_that_outlived_its_machine_ends_when_the_machine_is_terminated(folder: Path) -> None:
    driver = await one_machine(folder)
    daemon = await start_daemon(driver, folder)
    os.kill(await pid_of(driver), signal.SIGKILL)
    await wait_for_state(driver, "key-0", MachineState.TERMINATED)
    await driver.act(MachineAction.TERMINATE, machine_handles(1))
    await until_ended(daemon)
    await driver.close()


@pytest.mark.usefixtures("machine_user")
async def test_a_machine_with_the_same_key_in_another_folder_is_not_touched(folder: Path, tmp_path: Path) -> None:
    other_folder = tmp_path / "other"
    driver, other = await one_machine(folder), await one_machine(other_folder)
    try:
        daemon = await start_daemon(other, other_folder)
        await start_daemon(driver, folder)
        await accepted(driver, MachineAction.SUSPEND)
        await wait_for_state(driver, "key-0", MachineState.SUSPENDED)
        assert runs(daemon)
        assert runs(await pid_of(other))
        await driver.act(MachineAction.TERMINATE, machine_handles(1))
        await wait_for_state(driver, "key-0", MachineState.TERMINATED)
        assert _is_alive(daemon)
        await wait_for_state(other, "key-0", MachineState.RUNNING)
        await other.act(MachineAction.TERMINATE, machine_handles(1))
        await until_ended(daemon)
    finally:
        kill_all_in(other_folder)
        await driver.close()
        await other.close()


async def test_a_reboot_is_another_process_in_the_same_machine(folder: Path) -> None:
    driver = await one_machine(folder)
    first = await observe_machine(driver, "key-0")
    await driver.run(MachineHandle("key-0"), "echo kept >file", "", 30.0)
    await driver.act(MachineAction.REBOOT, machine_handles(1, "token"))
    second = await wait_for_state(driver, "key-0", MachineState.RUNNING)
    assert first is not None
    assert (first.native_id, first.details["boots"]) == (second.native_id, "1")
    assert second.details["boots"] == "2"
    assert first.details["pid"] != second.details["pid"]
    assert await driver.run(MachineHandle("key-0"), "cat file", "", 30.0) == "kept\n"
    await driver.close()


async def test_of_a_command_that_writes_without_end_the_last_is_read(folder: Path) -> None:
    driver = await one_machine(folder)
    told = await driver.run(MachineHandle("key-0"), "head -c 3000000 /dev/zero | tr '\\0' a; echo last", "", 30.0)
    assert (len(told), told.endswith("a" * 100 + "last\n")) == (MAX_OUTPUT_BYTES, True)
    await driver.close()


async def test_a_command_sees_its_machine_and_no_secret_of_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "do-not-tell")
    driver = await one_machine(folder)
    told = await driver.run(MachineHandle("key-0"), "env; pwd; echo wrong >&2", "alice", 30.0)
    assert "STATEWARD_KEY=key-0\n" in told
    assert "USER=alice\n" in told
    assert "wrong\n" in told
    assert "do-not-tell" not in told
    await driver.close()


async def test_a_machine_inherits_none_of_our_files(folder: Path) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    driver = await one_machine(folder)
    os.close(writing)
    assert os.read(reading, 1) == b""
    os.close(reading)
    await driver.close()


async def test_commands_run_side_by_side(folder: Path) -> None:
    driver = await one_machine(folder)
    told = await asyncio.gather(*(driver.run(MachineHandle("key-0"), f"echo {one}", "", 30.0) for one in range(10)))
    assert told == [f"{one}\n" for one in range(10)]
    await driver.close()


async def until_ended(*pids: int) -> None:
    await until(lambda: not any(map(process_of, pids)))


async def test_a_command_that_takes_too_long_is_ended_with_all_it_started(folder: Path) -> None:
    driver = await one_machine(folder)
    away = "(setsid sh -c 'echo $$ >orphan; sleep 1000; :' &)"  # its parent has ended, and its session is another one
    orphan = count_file(folder).with_name("orphan")
    with pytest.raises(TimeoutError):
        await driver.run(MachineHandle("key-0"), f"{away}; echo 0 >>count; sleep 1000", "", 0.5)
    leader = await pid_of(driver)
    await until_ended(int(orphan.read_text()))

    await until(lambda: live_processes_in(folder) == [leader])
    await driver.close()


async def test_a_command_for_a_suspended_machine_is_given_up_and_does_not_run_later(folder: Path) -> None:
    driver = await one_machine(folder)
    await driver.act(MachineAction.SUSPEND, machine_handles(1))
    await wait_for_state(driver, "key-0", MachineState.SUSPENDED)
    with pytest.raises(TimeoutError):
        await driver.run(MachineHandle("key-0"), "echo late >>count", "", 0.2)
    await driver.act(MachineAction.RESUME, machine_handles(1))
    assert await driver.run(MachineHandle("key-0"), "echo next", "", 30.0) == "next\n"
    assert not count_file(folder).exists()
    await driver.close()


async def test_a_command_ends_when_its_machine_does(folder: Path) -> None:
    driver = await one_machine(folder)
    running = asyncio.create_task(driver.run(MachineHandle("key-0"), "echo 0 >>count; sleep 1000", "", 30.0))

    await until(lambda: count_file(folder).exists())
    await driver.act(MachineAction.TERMINATE, machine_handles(1))
    with pytest.raises(ProcessLookupError):
        await running
    await driver.close()


async def test_further_specs_and_images_can_be_named(folder: Path) -> None:
    driver = local(folder, specs="t3.nano, t3.micro", images="ubuntu")
    assert await driver.check("t3.micro", "ubuntu") is None
    assert isinstance(await driver.check("t3.large", "ubuntu"), CallRefused)
    assert isinstance(await driver.check("t3.nano", "debian"), CallRefused)
    await driver.close()


@pytest.mark.parametrize("options", [{}, {"folder": "/proc/nowhere"}])
async def test_a_place_without_a_usable_folder_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(BadInput, match="folder"):
        ProcessDriver(ProviderRegion("local", "here", options=options))


async def test_what_is_begun_is_finished_though_nobody_waits(folder: Path) -> None:
    driver = local(folder)
    creating = asyncio.create_task(_create(driver))
    await asyncio.sleep(0)
    creating.cancel()
    await asyncio.gather(creating, return_exceptions=True)
    await driver.close()
    driver = local(folder)
    await driver.create(machine_specs(5, "tiny", "sh"))
    for one in range(5):
        await wait_for_state(driver, f"key-{one}", MachineState.RUNNING)
    assert len(live_processes_in(folder)) == 5
    await driver.close()


async def _create(driver: ProcessDriver) -> None:
    outcomes = await driver.create(machine_specs(5, "tiny", "sh"))
    assert all(isinstance(outcome, CallAccepted) for outcome in outcomes)


async def test_a_file_that_we_inherited_above_the_limit_on_open_files_keeps_no_machine_from_starting(
    folder: Path,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Path("/dev/null").open() as inherited:
        above = fcntl.fcntl(inherited, fcntl.F_DUPFD, soft - 1)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (above, hard))
        driver = await one_machine(folder)
        await driver.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(above)


@pytest.mark.parametrize("place", [(supervisor, "spawn"), (confinement.Confinement, "_enter")])
async def test_too_few_open_files_are_a_passing_failure_that_names_the_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, place: tuple[object, str]
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    driver = local(folder)
    with monkeypatch.context() as patched:
        patched.setattr(*place, fail)
        (outcome,) = await driver.create(machine_specs(1, "tiny", "sh"))
    assert isinstance(outcome, TransientFailure)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert f"this process can open {limit} files (ulimit -n), and machines need at least 512" in outcome.message
    await driver.create(machine_specs(1, "tiny", "sh"))
    await wait_for_state(driver, "key-0", MachineState.RUNNING)
    await driver.close()
