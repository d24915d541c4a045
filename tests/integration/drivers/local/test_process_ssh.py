"""Login to process machines over SSH: what a caller can do in the machine, and what no caller can."""

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path
from shutil import which
from types import SimpleNamespace
from typing import cast

import asyncssh
import pytest
import pytest_asyncio
from msgspec.structs import replace

from stateward.drivers import (
    CallRefused,
    MachineAction,
    MachineHandle,
    MachineSpec,
    MachineState,
    Observation,
    ProviderRegion,
    ResourceKind,
    TransientFailure,
)
from stateward.drivers.process import ProcessDriver
from stateward.drivers.process import driver as driver_module
from stateward.drivers.process.session_job import SessionJob, start_session_job
from stateward.drivers.process.ssh_server import MAX_CONNECTIONS, MAX_STARTUPS
from stateward.drivers.process.ssh_session import MachineSession
from stateward.procfs import process_of, stat_of
from tests.integration.drivers.local.host_machines import (
    TIMEOUT_S,
    kill_all_in,
    observe_machine,
    ssh_servers_in,
    wait_for_state,
)
from tests.integration.drivers.local.ssh_logins import KEY, OTHER_KEY, log_in, public_text
from tests.waiting import until

HANDLE = MachineHandle("key-1")
MACHINE = MachineSpec("key-1", "web", "tiny", "sh", authorized_keys=(public_text(KEY),))

pytestmark = pytest.mark.asyncio(loop_scope="module")


def make_driver(folder: Path) -> ProcessDriver:
    return ProcessDriver(ProviderRegion("local", "here", options={"folder": str(folder)}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ssh") / "region"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def driver(folder: Path) -> AsyncIterator[ProcessDriver]:
    """One folder for all tests, so that they share one SSH server."""
    driver = make_driver(folder)
    yield driver
    await driver.close()
    kill_all_in(folder)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seen(driver: ProcessDriver) -> Observation:
    """A machine that the tests may use, and must leave running."""
    await driver.create([MACHINE])
    return await wait_for_state(driver, "key-1", MachineState.RUNNING)


async def test_a_command_runs_inside_the_machine(driver: ProcessDriver, seen: Observation) -> None:
    async with log_in(seen) as connection:
        result = await connection.run("cat; id -u; echo $STATEWARD_NAME $USER; pwd; echo bad >&2; exit 3", input="hi\n")
    inside = (await driver.run(HANDLE, "id -u; pwd", "", 30.0)).splitlines()
    assert str(result.stdout).splitlines() == ["hi", inside[0], "web anna", inside[1]]
    assert (result.stderr, result.exit_status) == ("bad\n", 3)


async def test_a_shell_takes_commands_until_its_input_ends(seen: Observation) -> None:
    async with log_in(seen) as connection:
        result = await connection.run(input="one=1\necho $one\nfalse\n")
    assert (result.stdout, result.exit_status) == ("1\n", 1)


async def test_much_output_and_much_input_arrive_whole(seen: Observation) -> None:
    text = "0123456789abcdef" * 50_000
    async with log_in(seen) as connection:
        result = await connection.run("cat", input=text)
    assert result.stdout == text


async def test_sessions_of_one_connection_run_side_by_side(seen: Observation) -> None:
    async with log_in(seen) as connection:
        results = await asyncio.gather(*(connection.run(f"echo {number}") for number in range(5)))
    assert [one.stdout for one in results] == [f"{number}\n" for number in range(5)]


async def test_a_signal_of_the_caller_ends_the_command(seen: Observation) -> None:
    async with log_in(seen) as connection:
        process = await connection.create_process("echo up; exec sleep 1000")
        assert await process.stdout.readline() == "up\n"
        process.terminate()
        assert (await process.wait()).exit_status == 128 + signal.SIGTERM


async def test_only_the_keys_of_the_machine_open_it(driver: ProcessDriver, seen: Observation) -> None:
    await driver.create([replace(MACHINE, key="key-other", authorized_keys=(public_text(OTHER_KEY),))])
    other = await wait_for_state(driver, "key-other", MachineState.RUNNING)
    async with log_in(other, OTHER_KEY) as connection:
        assert (await connection.run("echo $STATEWARD_KEY")).stdout == "key-other\n"
    for machine, key in ((seen, OTHER_KEY), (other, KEY)):
        with pytest.raises(asyncssh.PermissionDenied):
            async with log_in(machine, key):
                pass
    assert other.host_key != seen.host_key


async def test_the_key_among_the_resources_opens_it_too(driver: ProcessDriver) -> None:
    resources = {ResourceKind.SSH_KEY: public_text(OTHER_KEY)}
    await driver.create([replace(MACHINE, key="key-resource", authorized_keys=(), resources=resources)])
    async with log_in(await wait_for_state(driver, "key-resource", MachineState.RUNNING), OTHER_KEY) as connection:
        assert (await connection.run("echo in")).stdout == "in\n"


async def test_there_is_no_password_and_no_way_in_without_a_key(seen: Observation) -> None:
    async with log_in(seen):
        pass
    with pytest.raises(asyncssh.PermissionDenied):
        await asyncssh.connect(
            "127.0.0.1", seen.ssh_port, username="root", password="", client_keys=None, known_hosts=None,
            config=None, agent_path=None,
        )  # fmt: skip


# --- what no caller can do -------------------------------------------------------------------------------------------


async def test_nothing_is_forwarded(seen: Observation) -> None:
    async with log_in(seen) as connection:
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_connection("127.0.0.1", seen.ssh_port)
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_unix_connection("/run/any.sock")
        with pytest.raises(asyncssh.ChannelListenError):
            await connection.forward_remote_port("127.0.0.1", 0, "127.0.0.1", seen.ssh_port)


async def test_the_callers_environment_does_not_reach_the_machine(seen: Observation) -> None:
    async with log_in(seen) as connection:
        result = await connection.run("env", env={"LD_PRELOAD": "/tmp/x.so", "PATH": "/evil", "LC_ALL": "C"})
    assert not {"LD_PRELOAD", "/evil", "LC_ALL", "SSH_AUTH_SOCK"} & set(str(result.stdout).replace("=", "\n").split())


async def test_a_session_is_as_confined_as_a_job(driver: ProcessDriver, seen: Observation, folder: Path) -> None:
    secret = folder / "ssh" / "ports"
    tries = f"cat {folder}/machines/key-1/host_key; ls {secret}; echo x >{folder}/machines/key-1/record.json; true"
    async with log_in(seen) as connection:
        result = await connection.run(tries)
    assert "PRIVATE KEY" not in str(result.stderr)
    assert result.stdout == ""
    assert (await observe_machine(driver, "key-1")) is not None


async def test_sftp_reads_and_writes_files_of_the_machine(driver: ProcessDriver, seen: Observation) -> None:
    async with log_in(seen) as connection, connection.start_sftp_client() as sftp:
        await sftp.mkdir("data")
        async with sftp.open("data/one", "wb") as file:
            await file.write(b"x" * 300_000)
        await sftp.rename("data/one", "data/two")
        await sftp.symlink("two", "data/link")
        await sftp.chmod("data/two", 0o600)
        names = await sftp.listdir("data")
        found = await sftp.stat("data/link")
        async with sftp.open("data/link", "rb") as file:
            copy = await file.read()
        assert not await sftp.exists("data/none")
        await sftp.rmtree("data")
        assert not await sftp.exists("data")
    assert sorted(names) == [".", "..", "link", "two"]
    assert (found.size, found.permissions) == (300_000, 0o100600)
    assert copy == b"x" * 300_000  # type: ignore[comparison-overlap]


@pytest.mark.skipif(which("sftp") is None, reason="there is no sftp: apt-get install openssh-client")
async def test_the_clients_of_openssh_log_in(seen: Observation, tmp_path: Path) -> None:
    async with log_in(seen):  # the server is up
        pass
    key, known = tmp_path / "key", tmp_path / "known"
    KEY.write_private_key(key)
    key.chmod(0o600)
    known.write_text(f"[127.0.0.1]:{seen.ssh_port} {seen.host_key}\n")
    options: list[str | Path] = ["-F", "none", "-i", key, "-o", f"UserKnownHostsFile={known}"]
    for one in ("StrictHostKeyChecking=yes", "BatchMode=yes", "IdentityAgent=none", "IdentitiesOnly=yes"):
        options += ["-o", one]
    (tmp_path / "file").write_text("whole")
    steps = f"put {tmp_path}/file given\nln -s given link\nget link {tmp_path}/back\nrm link\nrm given\n"
    await _run_client(["sftp", "-b", "-", *options, "-P", str(seen.ssh_port), "anna@127.0.0.1"], steps)
    assert (tmp_path / "back").read_text() == "whole"
    output = await _run_client(
        ["ssh", *options, "-p", str(seen.ssh_port), "anna@127.0.0.1", "read a; echo got $a"], "x\n"
    )
    assert output == "got x\n"


async def _run_client(words: list[str | Path], given: str) -> str:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=pipe)
    output, errors = await process.communicate(given.encode())
    assert process.returncode == 0, errors.decode()
    return output.decode()


async def test_sftp_reads_no_file_that_the_machine_cannot(seen: Observation, folder: Path) -> None:
    hidden = folder / "machines" / "key-1" / "host_key"
    async with log_in(seen) as connection, connection.start_sftp_client() as sftp:
        await sftp.symlink(str(hidden), "out")
        for path in ("out", str(hidden), "../host_key"):
            with pytest.raises(asyncssh.SFTPError):
                await sftp.open(path, "rb")
        with pytest.raises(asyncssh.SFTPError):
            await sftp.open("../record.json", "wb")
        await sftp.remove("out")


@pytest.mark.parametrize(
    "make", [lambda path, victim: path.symlink_to(victim), lambda path, victim: path.hardlink_to(victim)]
)
async def test_a_link_in_the_place_of_a_pipe_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path, Path], None]
) -> None:
    """The machine replaces a pipe right after it was made, by a link to a file that only we may read."""
    victim = tmp_path / "victim"
    victim.write_text("whole")
    (tmp_path / "jobs").mkdir()
    monkeypatch.setattr(os, "mkfifo", lambda path, mode: make(path, victim))
    process = process_of(os.getpid())
    assert process is not None
    with pytest.raises(OSError, match=r"not a pipe|symbolic links"):
        start_session_job(tmp_path, tmp_path, process, {}, "true")
    assert victim.read_text() == "whole"
    assert victim.stat().st_mode & 0o777 != 0o666
    assert list((tmp_path / "jobs").iterdir()) == []


async def test_connections_without_a_login_keep_nobody_out(seen: Observation) -> None:
    with ExitStack() as idle:
        async with log_in(seen) as first:
            for _ in range(MAX_STARTUPS + MAX_CONNECTIONS):
                idle.enter_context(socket.create_connection(("127.0.0.1", seen.ssh_port), TIMEOUT_S))
            async with log_in(seen) as second:
                assert (await second.run("echo second")).stdout == "second\n"
            assert (await first.run("echo first")).stdout == "first\n"


async def test_a_session_ends_if_the_machine_replaces_its_files(seen: Observation, folder: Path) -> None:
    outside = folder / "outside"
    outside.write_text("whole")
    replace_all = (
        f"""for file in "${{0%.command}}"*; do rm "$file"; mkdir -p "$file/in"; ln -s {outside} "$file/in"; done"""
    )
    async with log_in(seen) as connection, asyncio.timeout(TIMEOUT_S):
        result = await connection.run(f"{replace_all}; echo out; exit 3")
    assert (result.stdout, result.exit_status) == ("out\n", 3)
    assert outside.read_text() == "whole"


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
async def test_a_session_ends_if_the_machine_replaces_its_pipe_before_it_starts(
    driver: ProcessDriver, folder: Path, make: Callable[[Path], None]
) -> None:
    key = f"key-{make.__name__}"
    await driver.create([replace(MACHINE, key=key)])
    seen = await wait_for_state(driver, key, MachineState.RUNNING)
    jobs = folder / "machines" / key / "jobs"
    async with log_in(seen) as connection, asyncio.timeout(TIMEOUT_S):
        await driver.act(MachineAction.SUSPEND, [MachineHandle(key)])
        running = asyncio.create_task(connection.run("true"))
        await until(lambda: list(jobs.glob("session-*.sh")) != [])
        (pipe,) = jobs.glob("session-*.err")
        pipe.unlink()
        make(pipe)
        pipe.chmod(0o777)
        await driver.act(MachineAction.RESUME, [MachineHandle(key)])
        result = await running
    assert (result.exit_status == 0) == (make is Path.touch)
    await driver.act(MachineAction.TERMINATE, [MachineHandle(key)])


async def test_a_session_that_fails_ends_its_channel(caplog: pytest.LogCaptureFixture) -> None:
    exits: list[int] = []
    channel = cast("asyncssh.SSHServerChannel[bytes]", SimpleNamespace(exit=exits.append))

    def fail(_: str) -> SessionJob:
        raise RuntimeError("unforeseen")

    session = MachineSession(fail, "", lambda: None)
    session.connection_made(channel)
    session.session_started()
    await until(lambda: exits != [])
    assert exits == [255]
    assert "a session has failed" in caplog.text


# --- the machine's life ----------------------------------------------------------------------------------------------


async def test_connections_to_a_suspended_machine_wait(driver: ProcessDriver) -> None:
    await driver.create([replace(MACHINE, key="key-slow")])
    seen = await wait_for_state(driver, "key-slow", MachineState.RUNNING)
    async with log_in(seen) as connection:
        process = await connection.create_process("echo up; read line; echo $line")
        assert await process.stdout.readline() == "up\n"
        await driver.act(MachineAction.SUSPEND, [MachineHandle("key-slow")])
        process.stdin.write("later\n")
        waiting = asyncio.create_task(_run_once(seen))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.stdout.readline(), 0.5)
        assert not waiting.done()
        await driver.act(MachineAction.RESUME, [MachineHandle("key-slow")])
        assert await process.stdout.readline() == "later\n"
        assert await waiting == "new\n"
    await driver.act(MachineAction.TERMINATE, [MachineHandle("key-slow")])


async def _run_once(seen: Observation) -> str:
    async with log_in(seen) as connection:
        return str((await connection.run("echo new")).stdout)


async def test_a_terminated_machine_closes_its_connections_and_its_port(driver: ProcessDriver) -> None:
    await driver.create([replace(MACHINE, key="key-end")])
    seen = await wait_for_state(driver, "key-end", MachineState.RUNNING)
    async with log_in(seen) as connection:
        process = await connection.create_process("echo $$; exec sleep 1000")
        pid = int((await process.stdout.readline()).strip())
        await driver.act(MachineAction.TERMINATE, [MachineHandle("key-end")])
        await connection.wait_closed()
    await until(lambda: (stat := stat_of(pid)) is None or not stat.alive)
    await until(lambda: not _accepts(seen.ssh_port))


async def test_a_rebooted_machine_keeps_its_port_and_its_host_key(driver: ProcessDriver) -> None:
    await driver.create([replace(MACHINE, key="key-boot")])
    before = await wait_for_state(driver, "key-boot", MachineState.RUNNING)
    async with log_in(before) as connection:
        await connection.create_process("exec sleep 1000")
        await driver.act(MachineAction.REBOOT, [MachineHandle("key-boot", token="again")])
        await connection.wait_closed()
    after = await wait_for_state(driver, "key-boot", MachineState.RUNNING)
    assert (after.ssh_port, after.host_key) == (before.ssh_port, before.host_key)
    async with log_in(after) as connection:
        assert (await connection.run("echo back")).stdout == "back\n"


async def test_the_server_outlives_its_controller_and_is_restarted_if_it_is_killed(
    driver: ProcessDriver, seen: Observation, folder: Path
) -> None:
    async with log_in(seen) as connection:
        await make_driver(folder).close()
        assert (await connection.run("echo still")).stdout == "still\n"
    (server,) = ssh_servers_in(folder)
    os.kill(server, signal.SIGKILL)
    await until(lambda: ssh_servers_in(folder) == [])

    async def is_restarted() -> bool:
        """Observe: a process that ends loses its command line before its lock, and only a later listing restarts it."""
        await observe_machine(driver, "key-1")
        return len(ssh_servers_in(folder)) == 1

    await until(is_restarted)
    again = await observe_machine(driver, "key-1")
    assert again is not None
    async with log_in(again) as connection:
        assert (await connection.run("echo again")).stdout == "again\n"
    assert again.ssh_port == seen.ssh_port
    assert len(ssh_servers_in(folder)) == 1


# --- machines without it ---------------------------------------------------------------------------------------------


async def test_without_keys_or_without_the_library_there_is_no_port(
    driver: ProcessDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    await driver.create([replace(MACHINE, key="key-closed", authorized_keys=())])
    monkeypatch.setattr(driver_module, "is_ssh_installed", lambda: False)
    await driver.create([replace(MACHINE, key="key-bare")])
    for key in ("key-closed", "key-bare"):
        found = await observe_machine(driver, key)
        assert found is not None
        assert (found.ssh_port, found.host_key) == (0, "")


@pytest.mark.parametrize("text", ["", "no key", 'command="id" {}', "{}\n{}"])
async def test_what_is_no_public_key_is_refused(driver: ProcessDriver, text: str) -> None:
    key = text.replace("{}", public_text(KEY))
    (outcome,) = await driver.create([replace(MACHINE, key="key-bad", authorized_keys=(key,))])
    assert isinstance(outcome, CallRefused)
    assert await observe_machine(driver, "key-bad") is None


async def test_a_server_without_machines_ends(tmp_path: Path) -> None:
    driver = make_driver(tmp_path / "region")
    await driver.create([MACHINE])
    await driver.act(MachineAction.TERMINATE, [HANDLE])
    await until(lambda: ssh_servers_in(tmp_path / "region") == [])
    await driver.close()


LINGERING = """
import fcntl, sys, time
from pathlib import Path
from stateward.drivers.process import ssh_server

folder, flock = Path(sys.argv[1]), fcntl.flock

def linger(lock, operation):
    if operation == fcntl.LOCK_UN:
        (folder / "ending").touch()
        while not (folder / "made").exists():
            time.sleep(0.01)
    flock(lock, operation)

fcntl.flock = linger
ssh_server.main()
"""
"""A server that is about to end, and still has its lock."""


async def test_a_machine_that_is_made_while_the_server_ends_is_served(tmp_path: Path) -> None:
    folder, driver = tmp_path / "region", make_driver(tmp_path / "region")
    (folder / "ssh").mkdir(parents=True)
    with (folder / "ssh" / "alive").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, "-c", LINGERING, str(folder)]
        server = subprocess.Popen(command, stdin=lock, start_new_session=True)
    await until((folder / "ending").exists)
    await driver.create([MACHINE])
    (folder / "made").touch()
    async with log_in(await wait_for_state(driver, "key-1", MachineState.RUNNING)) as connection:
        assert (await connection.run("echo in")).stdout == "in\n"
    assert server.poll() is None
    await driver.act(MachineAction.TERMINATE, [HANDLE])
    assert await asyncio.to_thread(server.wait, TIMEOUT_S) == 0
    await driver.close()


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1.0):
            return True
    except OSError:
        return False


async def test_a_create_without_a_free_port_is_repeated_and_leaves_no_folder(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = {"folder": str(tmp_path), "ssh_ports": f"{port}-{port}"}
        driver = ProcessDriver(ProviderRegion("local", "here", options=options))
        (outcome,) = await driver.create([replace(MACHINE, key="key-9")])
        await driver.close()
    assert isinstance(outcome, TransientFailure)
    assert "is free (option ssh_ports)" in outcome.message
    assert not driver._supervisor.machine_dir.path_of("key-9").exists()
