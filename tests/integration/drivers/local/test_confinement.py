"""Confinement: what a program on this host has, and what happens where it cannot be confined."""

import ctypes
import os
import platform
import pwd
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from stateward.agents.messages import AgentOrder, OrderAction
from stateward.domains.edge.sites.process_site import ProcessSite
from stateward.drivers import (
    CallAccepted,
    CallRefused,
    MachineAction,
    MachineHandle,
    MachineSpec,
    MachineState,
    ProviderRegion,
    RefusalReason,
)
from stateward.drivers.process import ProcessDriver
from stateward.errors import BadInput
from stateward.workloads import confinement as module
from stateward.workloads.confinement import PATH, Confinement, landlock, syscalls
from stateward.workloads.confinement import uids as uids_module
from stateward.workloads.confinement.uids import UidClaims, uid_range
from tests.integration.drivers.local.host_machines import kill_all_in, wait_for_state
from tests.waiting import until

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="NOT PROVED HERE: users of their own need a server that is root")
SHELL = MachineSpec("k1", "m1", "tiny", "sh")


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[ProcessDriver]:
    made = ProcessDriver(
        ProviderRegion("local", "here", options={"folder": str(tmp_path)}), confinement=Confinement([tmp_path])
    )
    yield made
    kill_all_in(tmp_path)
    await made.close()


async def ran(driver: ProcessDriver, command: str, key: str = "k1") -> str:
    await wait_for_state(driver, key, MachineState.RUNNING)
    return await driver.run(MachineHandle(key), command, "", 20.0)


# --- what a machine has ----------------------------------------------------------------------------------------------


async def test_a_machine_has_no_capability_gets_no_privilege_and_only_its_own_environment(
    driver: ProcessDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "of ours")
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/home/operator/bin")
    await driver.create([SHELL])
    facts = await ran(driver, "grep -E 'CapEff|CapPrm|NoNewPrivs' /proc/self/status; env")
    assert facts.count("0000000000000000") == 2
    assert "NoNewPrivs:\t1" in facts
    assert "A_SECRET" not in facts
    assert f"PATH={PATH}\n" in facts
    home = (await ran(driver, "cd; pwd; echo $HOME; touch here; touch $TMPDIR/there; echo ok")).split()
    assert home[0] == home[1]
    assert home[2] == "ok"


async def test_a_machine_cannot_change_what_is_kept_of_it(driver: ProcessDriver, tmp_path: Path) -> None:
    await driver.create([SHELL])
    said = await ran(driver, "( cat ../record.json; echo x >../record.json; rm ../record.json; ls .. ) 2>&1; echo end")
    assert "native_id" not in said
    assert said.endswith("end\n")
    assert "native_id" in next(tmp_path.rglob("record.json")).read_text()


async def test_what_a_machine_puts_in_the_place_of_its_output_is_not_followed(
    driver: ProcessDriver, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of ours")
    await driver.create([SHELL])
    name = "../jobs/$(basename $0 .command).out"
    for trick in (f"ln -sf {secret} {name}", f"rm {name}; mkfifo {name}", f"rm {name}; mkdir {name}"):
        with pytest.raises(OSError) as error:  # noqa: PT011 - of several kinds
            await ran(driver, trick)
        assert "of ours" not in str(error.value)
    with pytest.raises(OSError, match="status"):
        await ran(driver, "mkdir ../jobs/$(basename $0 .command).status")


@as_root
async def test_each_machine_has_a_user_of_its_own_and_sees_nobody_else(driver: ProcessDriver) -> None:
    await driver.create([SHELL, MachineSpec("k2", "m2", "tiny", "sh")])
    first, second = await ran(driver, "id -u"), await ran(driver, "id -u", "k2")
    assert first != second
    assert all(70000 <= int(one) <= 79999 for one in (first, second))
    seen = await ran(driver, "ls /proc | grep -c '^[0-9]'")
    assert int(seen) < 10


@as_root
async def test_what_a_machine_has_put_into_a_session_of_its_own_ends_with_it(driver: ProcessDriver) -> None:
    await driver.create([SHELL])
    uid = int(await ran(driver, "setsid sleep 1000 >/dev/null 2>&1 & id -u"))

    def processes() -> int:
        found = 0
        for one in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                found += one.stat().st_uid == uid and "State:\tZ" not in (one / "status").read_text()
        return found

    assert processes() >= 2
    await driver.act(MachineAction.TERMINATE, [MachineHandle("k1")])

    await until(lambda: processes() == 0)


async def test_a_machine_that_cannot_be_confined_is_not_started_and_says_why(
    driver: ProcessDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_is_root", lambda: False)
    monkeypatch.setattr(landlock, "version", lambda: 0)
    (refused,) = await driver.create([SHELL])
    assert isinstance(refused, CallRefused)
    assert refused.why is RefusalReason.UNABLE
    assert "no Landlock" in refused.message
    assert (await driver.observe()).machines == []
    off = ProcessDriver(
        ProviderRegion("local", "here", options={"folder": str(tmp_path)}), confinement=Confinement(required=False)
    )
    (made,) = await off.create([SHELL])  # an administrator has said so
    assert isinstance(made, CallAccepted)
    await off.close()


async def test_where_we_are_root_and_may_not_mount_landlock_confines(
    driver: ProcessDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not landlock.version():
        pytest.skip("NOT PROVED HERE: the kernel has no Landlock")
    monkeypatch.setattr(module, "_is_root", lambda: False)
    (tmp_path / "secret").write_text("of ours")
    await driver.create([SHELL])
    said = await ran(driver, f"cat {tmp_path}/secret /proc/{os.getpid()}/environ 2>&1; echo end")
    assert said.count("Permission denied") == 2
    listen = "python3 -c 'import socket; socket.socket(socket.AF_UNIX)' 2>&1 || true"
    facts = await ran(driver, f"grep CapEff /proc/self/status; {listen}")
    assert "0000000000000000" in facts
    assert "PermissionError" in facts


REACHES = """
import os, resource, socket, sys
server = int(sys.argv[1])
tries = [
    lambda: resource.prlimit(server, resource.RLIMIT_CPU, (10000, 10000)),
    lambda: resource.setrlimit(resource.RLIMIT_RTTIME, (1 << 61, 1 << 61)),
    lambda: os.setpriority(os.PRIO_PROCESS, server, 1),
    lambda: os.setpriority(os.PRIO_USER, 0, 1),
    lambda: os.sched_setaffinity(server, {0}),
    lambda: os.sched_setscheduler(server, os.SCHED_IDLE, os.sched_param(0)),
    lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM),
    lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC),
]
for number, one in enumerate(tries):
    try:
        one()
        print("reached", number)
    except PermissionError:
        print("refused")
resource.prlimit(0, resource.RLIMIT_CPU)
resource.getrlimit(resource.RLIMIT_RTTIME)
os.sched_setaffinity(0, os.sched_getaffinity(0))
socket.socketpair()
print("own")
"""


async def test_a_program_of_our_own_user_reaches_no_process_and_no_socket_outside(
    driver: ProcessDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not landlock.version():
        pytest.skip("NOT PROVED HERE: the kernel has no Landlock")
    monkeypatch.setattr(module, "_is_root", lambda: False)
    await driver.create([SHELL])
    said = await ran(driver, f"cat >reach.py <<'END'\n{REACHES}\nEND\npython3 reach.py {os.getpid()} 2>&1")
    assert said.splitlines() == ["refused"] * 8 + ["own"]


SHARES = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
tries = [
    lambda: libc.shmget(int(sys.argv[1]), 1, 0),
    lambda: 0 if libc.shmat(int(sys.argv[2]), None, 0) != 2**64 - 1 else -1,
    lambda: libc.semget(int(sys.argv[1]), 1, 0),
    lambda: libc.msgget(int(sys.argv[1]), 0),
    lambda: libc.syscall(ctypes.c_long({"x86_64": 248, "aarch64": 217}[os.uname().machine]), 0, 0, 0, 0, 0),
]
for one in tries:
    print("reached" if one() >= 0 else errno.errorcode[ctypes.get_errno()])
libc.shmget(0, 4096, 0o1600) >= 0 and print("own")
"""


@pytest.fixture
def shared_memory() -> Iterator[tuple[int, int]]:
    """Make memory, a semaphore and a queue that everybody may use; returns their key, and the id of the memory."""
    libc, key = ctypes.CDLL(None, use_errno=True), os.getpid() | 1 << 29
    made = [libc.shmget(key, 4096, 0o1666), libc.semget(key, 1, 0o1666), libc.msgget(key, 0o1666)]
    assert all(one >= 0 for one in made), os.strerror(ctypes.get_errno())
    yield key, made[0]
    libc.shmctl(made[0], 0, None)
    libc.semctl(made[1], 0, 0)
    libc.msgctl(made[2], 0, None)


@as_root
async def test_a_machine_has_its_own_shared_memory_and_no_keyring(
    driver: ProcessDriver, shared_memory: tuple[int, int]
) -> None:
    await driver.create([SHELL])
    key, memory = shared_memory
    said = await ran(driver, f"cat >share.py <<'END'\n{SHARES}\nEND\npython3 share.py {key} {memory} 2>&1")
    assert said.split() == ["ENOENT", "EINVAL", "ENOENT", "ENOENT", "EACCES", "own"]


async def test_a_program_of_our_own_user_gets_no_shared_memory_and_no_keyring(
    driver: ProcessDriver, shared_memory: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not landlock.version():
        pytest.skip("NOT PROVED HERE: the kernel has no Landlock")
    monkeypatch.setattr(module, "_is_root", lambda: False)
    await driver.create([SHELL])
    key, memory = shared_memory
    said = await ran(driver, f"cat >share.py <<'END'\n{SHARES}\nEND\npython3 share.py {key} {memory} 2>&1")
    assert said.split() == ["EACCES"] * 5


async def test_a_program_of_our_own_user_reads_programs_of_the_system_and_no_file_of_ours_next_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not landlock.version():
        pytest.skip("NOT PROVED HERE: the kernel has no Landlock")
    monkeypatch.setattr(module, "_is_root", lambda: False)
    prefix = tmp_path / "prefix"
    for name in ("bin/tool", "etc/stateward.toml", "aws.ini", "lib/code", "lib/data/admin-token"):
        file = prefix / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"in-{file.name}\n")
        file.chmod(0o600)
    (prefix / "lib" / "settings").symlink_to(prefix / "etc")  # next to what is hidden
    (prefix / "lib64").symlink_to(prefix / "lib")
    monkeypatch.setattr(module, "PREFIXES", (*module.PREFIXES, str(prefix)))
    place = ProviderRegion("local", "here", options={"folder": str(tmp_path / "machines")})
    driver = ProcessDriver(place, confinement=Confinement([prefix / "lib" / "data"]))
    await driver.create([SHELL])
    reads = f"cd {prefix}; cat bin/* etc/* *.ini lib/code lib/settings/* lib/data/* lib64/data/* 2>/dev/null; echo end"
    said = await ran(driver, reads)
    kill_all_in(tmp_path / "machines")
    await driver.close()
    assert said.split() == ["in-tool", "in-code", "end"]


def test_no_folder_where_administrators_keep_secrets_is_open_to_programs_of_our_own_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PREFIXES", ("/", "/usr", "/usr/local"))  # our interpreter may be in one of them
    kept = [
        "/opt/x",
        "/usr/local/etc/x",
        "/usr/local/x",
        "/etc/stateward",
        "/etc/ssl/private",
        "/home",
        "/root",
        "/var",
    ]
    assert [one for one in kept for path in module.system_paths() if Path(one).is_relative_to(path)] == []


async def test_a_folder_that_an_administrator_names_can_be_read_wherever_it_is(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "code").mkdir(parents=True)
    closed.chmod(0o700)
    (closed / "code" / "file").write_text("can be read")
    (closed / "other").write_text("cannot be read")
    place = ProviderRegion("local", "here", options={"folder": str(tmp_path / "machines")})
    driver = ProcessDriver(place, confinement=Confinement([tmp_path / "machines"], [closed / "code"]))
    await driver.create([SHELL])
    said = await ran(driver, f"cat {closed}/code/file {closed}/other; echo x >{closed}/code/new; echo end")
    kill_all_in(tmp_path / "machines")
    await driver.close()
    assert "can be read" in said
    assert "cannot be read" not in said
    assert not (closed / "code" / "new").exists()


# --- an edge agent ---------------------------------------------------------------------------------------------------


async def test_an_app_of_an_edge_agent_cannot_read_its_token_nor_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "of-the-agents-environment")
    token = tmp_path / "token"
    token.write_text("the-agents-token")
    site = ProcessSite(tmp_path / "site", Confinement([token]))
    try:
        await site.execute(
            AgentOrder(OrderAction.CREATE, 1, 1, 1, "c1", "", spec='{"kind": "clusterinst"}'), lambda *_: None
        )
        reads = (
            f"cat {token} /proc/{os.getpid()}/environ /proc/*/environ; ls {tmp_path}/site; env; echo tried; sleep 99"
        )
        spec = f'{{"kind": "appinst", "command": "{reads}"}}'
        await site.execute(AgentOrder(OrderAction.CREATE, 2, 2, 1, "c1:a", "c1", spec=spec), lambda *_: None)
        (log,) = tmp_path.rglob("app-*.log")

        await until(lambda: "tried" in log.read_text())
        assert "the-agents-token" not in log.read_text()
        assert "of-the-agents-environment" not in log.read_text()
    finally:
        kill_all_in(tmp_path / "site" / "machines")
        await site.close()


# --- users -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "7", "a-b", "9-1", "0-10", "999-2000", "70000-99999999999", "-5-10"])
def test_a_range_of_users_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="machine_uids"):
        uid_range(text)


@as_root
def test_no_two_owners_have_one_user_and_none_has_that_of_an_account(tmp_path: Path) -> None:
    account = max(one.pw_uid for one in pwd.getpwall())
    first = max(account, 1000)
    uids, claims = UidClaims(range(first, first + 3), tmp_path / "uids"), []
    owners = [tmp_path / name for name in ("a", "b", "c")]
    for owner in (*owners, tmp_path / "d"):
        owner.mkdir()
    for owner in owners:
        with suppress(OSError):
            claims.append(uids.claim(owner))
    assert account not in claims
    assert len(set(claims)) == len(claims) >= 2
    assert uids.claim(owners[0]) == claims[0]
    with pytest.raises(OSError, match="no user number"):
        uids.claim(tmp_path / "d")
    uids.release(claims[0], owners[1])  # it is not its own
    with pytest.raises(OSError, match="no user number"):
        uids.claim(tmp_path / "d")
    uids.release(claims[0], owners[0])
    assert uids.claim(tmp_path / "d") == claims[0]
    owners[1].rmdir()  # its owner is gone, and so is its claim
    assert uids.claim(tmp_path / "e") == claims[1]


def test_of_two_that_take_over_a_void_claim_at_once_one_gets_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = 2**31 - 2
    first, second = (UidClaims(range(number, number + 1), tmp_path / "uids") for _ in range(2))
    gone, mine, other = (tmp_path / name for name in ("gone", "mine", "other"))
    for owner in (mine, other):
        owner.mkdir()
    first.claim(gone)  # whose owner does not exist any more
    got: list[Path] = []

    def claim(uids: UidClaims, owner: Path) -> None:
        with suppress(OSError):
            uids.claim(owner)
            got.append(owner)

    rival = Thread(target=claim, args=(second, other))

    def kill_while_the_rival_claims(_: int) -> None:
        if rival.ident is None:
            rival.start()
            rival.join(0.5)  # it is done by then, unless it has to wait for us

    monkeypatch.setattr(uids_module, "_kill_all_as", kill_while_the_rival_claims)
    claim(first, mine)
    rival.join()
    assert len(got) == 1


@as_root
def test_a_user_whose_processes_could_not_be_killed_is_not_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uids = UidClaims(range(75124, 75126), tmp_path / "uids")
    claimed = uids.claim(tmp_path)

    def refuse(_: int) -> None:
        raise OSError("not allowed")

    monkeypatch.setattr(syscalls, "become", refuse)
    with pytest.raises(OSError, match="not allowed"):
        uids.release(claimed, tmp_path)
    assert os.path.lexists(tmp_path / "uids" / str(claimed))


@as_root
def test_a_user_that_a_process_has_is_nobody_elses(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "1000"], user=75123) as process:
        try:
            with pytest.raises(OSError, match="no user number"):
                UidClaims(range(75123, 75124), tmp_path / "uids").claim(tmp_path)
        finally:
            process.kill()


@as_root
def test_a_start_that_cannot_be_confined_leaves_no_open_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    confinement, mount = Confinement(readable=[Path("/usr"), Path("/opt")]), syscalls.mount

    def refuse_home(source: str, target: str, *how: Any) -> None:
        if target == str(module.HOME):
            raise PermissionError("not here")
        mount(source, target, *how)

    monkeypatch.setattr(syscalls, "mount", refuse_home)
    box = confinement.create_sandbox(tmp_path)
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(module.ConfinementFailed, match="not here"):
        confinement.run(box, lambda: 1)
    assert len([*Path("/proc/self/fd").iterdir()]) == before
    assert box.uid is not None
    confinement.end(tmp_path, box.uid)


# --- parts -----------------------------------------------------------------------------------------------------------


def test_what_is_hidden_is_not_among_what_is_left_of_a_folder(tmp_path: Path) -> None:
    for name in ("a/b/c", "a/d", "e"):
        (tmp_path / name).mkdir(parents=True)
    hidden = [tmp_path / "a" / "b"]
    assert landlock.without([tmp_path], hidden) == [tmp_path / "a" / "d", tmp_path / "e"]
    assert landlock.without([tmp_path / "a" / "b" / "c"], hidden) == []
    assert landlock.without([tmp_path / "e"], hidden) == [tmp_path / "e"]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_both_architectures_are_known(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert syscalls.number_of("setresuid") == {"x86_64": 117, "aarch64": 147}[machine]
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(OSError, match="riscv64"):
        syscalls.number_of("setresuid")


def test_a_server_that_is_sealed_does_not_show_its_environment_to_its_own_user() -> None:
    program = "from stateward.workloads.confinement import seal_process; seal_process(); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        owner = Path(f"/proc/{process.pid}/environ").stat().st_uid
        process.kill()
    assert owner == 0


# --- folders ---------------------------------------------------------------------------------------------------------


def test_what_is_told_of_a_folder_is_what_a_confined_program_meets(tmp_path: Path) -> None:
    shared, hidden, box = tmp_path / "shared", tmp_path / "hidden", tmp_path / "box"
    for folder in (shared / "open", shared / "closed", hidden, box):
        folder.mkdir(parents=True)
        folder.chmod(0o755)
    if os.geteuid() == 0:
        (shared / "closed").chmod(0o700)  # of another user than the program
    (shared / "link").symlink_to(hidden)
    confinement = Confinement([hidden], [shared])
    sandbox = confinement.create_sandbox(box)

    def can_list(folder: Path) -> bool:
        words = ["/bin/sh", "-c", 'cd "$1" && ls', "sh", str(folder)]
        return confinement.run(sandbox, lambda: subprocess.run(words, capture_output=True).returncode) == 0

    told = {}
    try:
        for one in (Path("/usr/bin"), shared, *(shared / name for name in ("open", "closed", "link")), hidden):
            told[one] = confinement.folder_problem(one)
            assert can_list(one) is (told[one] == ""), (one, told[one])
    finally:
        if sandbox.uid is not None:
            confinement.end(box, sandbox.uid)
    (hidden / "file").touch()
    assert told[shared / "open"] == ""
    assert {told[hidden], *map(confinement.folder_problem, (hidden / "file", hidden / "missing"))} == {
        "readable by everybody, or named in the setting machine_paths"
    }
    assert "No such file" in confinement.folder_problem(shared / "missing")
    assert confinement.folder_problem(Path("open")) == "an absolute path"
    assert confinement.folder_problem(Path("/etc/passwd")) == "a folder"
    assert "too long" in confinement.folder_problem(shared / ("x" * 300))
