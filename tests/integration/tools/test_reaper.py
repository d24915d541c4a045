"""Nothing of a run remains, whatever ends it."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tools import reaper
from tools.reaper import OWNER, PREFIX

ROOT = Path(__file__).parents[3]
REAPER = [sys.executable, "-m", "tools.reaper"]
DAEMON = """
import os, subprocess, sys, tempfile
folder = tempfile.mkdtemp()
words = [sys.executable, "-c", "import time; time.sleep(600)", folder]
daemon = subprocess.Popen(words, start_new_session=True, env={})
with open(sys.argv[1], "w") as told:
    told.write(f"{daemon.pid} {folder}")
os.rename(sys.argv[1], sys.argv[1] + ".done")
"""
"""A program that leaves a process in a session of its own, without our environment, and a folder."""
PATIENCE_S = 60.0

LEAVE = DAEMON + "daemon.returncode = 0"
WAIT = DAEMON + "daemon.wait()"
ORPHAN = """
import os, sys, time
reader, writer = os.pipe()
if not (child := os.fork()):
    if not (orphan := os.fork()):
        os._exit(0)
    os.write(writer, str(orphan).encode())
    os._exit(0)
os.waitpid(child, 0)
orphan, deadline = os.read(reader, 100).decode(), time.monotonic() + 60
while os.path.exists("/proc/" + orphan):
    if time.monotonic() > deadline:
        sys.exit("it is a zombie")
    time.sleep(0.02)
"""
"""A program that waits until somebody has reaped an orphan of its."""
MEMORY = """
import ctypes, os, sys
number = ctypes.CDLL(None).shmget(0, 4096, 0o1600)
os.makedirs(os.environ["TMPDIR"] + "/pg")
with open(os.environ["TMPDIR"] + "/pg/postmaster.pid", "w") as file:
    file.write(f"1\\n2\\n3\\n4\\n5\\n6\\n  123 {number}\\n")
with open(sys.argv[1], "w") as told:
    told.write(f"{number} -")
os.rename(sys.argv[1], sys.argv[1] + ".done")
"""
"""A program that leaves the shared memory of a PostgreSQL server that was killed."""
NETWORK = """
import json, os, subprocess
os.makedirs(os.environ["TMPDIR"] + "/networks")
with open(os.environ["TMPDIR"] + "/networks/one.json", "w") as file:
    json.dump({"name": "one", "network_interface": "swtest1", "subnets": [{"subnet": "10.99.7.0/24"}]}, file)
for command in (
    "ip link add swtest1 type bridge",
    "iptables -N NETAVARK_ISOLATION_1",
    "iptables -A NETAVARK_ISOLATION_1 -i swtest1 ! -o swtest1 -j DROP",
    "iptables -A FORWARD -m comment --comment 'networks stay isolated' -j NETAVARK_ISOLATION_1",
    "iptables -A FORWARD -s 10.98.7.0/24 -j ACCEPT",
    "iptables -t nat -N NETAVARK-HOSTPORT-DNAT",
    "iptables -t nat -N NETAVARK-DN-12AB",
    "iptables -t nat -A NETAVARK-HOSTPORT-DNAT -p tcp --dport 80 -j NETAVARK-DN-12AB",
    "iptables -t nat -A NETAVARK-DN-12AB -p tcp -j DNAT --to-destination 10.99.7.2:80",
):
    subprocess.run(command, shell=True, check=True)
"""
"""A program that leaves a network of containers with its rules, and a rule of somebody else."""
LISTING = "ip -brief link; iptables --list-rules; iptables --table=nat --list-rules"

EXIT_AT_ONCE = DAEMON + "os._exit(3)"

TIMING_OUT = """
import time, pytest
from tests.servers import PostgresServer

@pytest.fixture
def server():
    server = PostgresServer()
    open({told!r}, "w").write(str(server._folder))
    return server

@pytest.mark.timeout(1, method="thread", func_only=True)
def test_hangs(server):
    time.sleep(600)
"""


class Run:
    """A run of a program under the reaper, with a temporary folder of its own around it."""

    def __init__(self, program: str, around: Path, *, ignored: signal.Signals | None = None) -> None:
        self._told = around / "told"
        self.tmp = around / "tmp"
        self.tmp.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [*REAPER, sys.executable, "-c", program, str(self._told)],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(self.tmp)},
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=(lambda: signal.signal(ignored, signal.SIG_IGN)) if ignored else None,
        )

    def daemon(self) -> int:
        """Wait until the program has left its process; return the process's number."""
        told = self._told.with_name("told.done")
        wait_until(told.exists)
        return int(told.read_text().split()[0])

    def end(self) -> tuple[int, str]:
        _, said = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, said


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_run_that_leaves_a_process_behind_is_cleaned_up_and_fails(tmp_path: Path) -> None:
    run = Run(LEAVE, tmp_path)
    pid = run.daemon()
    status, said = run.end()
    assert (status, is_alive(pid), list(run.tmp.iterdir())) == (1, False, [])
    assert f"left behind, and removed: {pid} " in said


def test_orphans_that_end_during_a_run_are_reaped(tmp_path: Path) -> None:
    assert Run(ORPHAN, tmp_path).end() == (0, "")


def test_a_run_that_leaves_shared_memory_behind_is_cleaned_up_and_fails(tmp_path: Path) -> None:
    run = Run(MEMORY, tmp_path)
    number = run.daemon()
    status, said = run.end()
    assert (status, f"left behind, and removed: shared memory {number} of " in said) == (1, True)
    assert f" {number} " not in Path("/proc/sysvipc/shm").read_text()


@pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("iptables") and shutil.which("ip")),
    reason="only root makes networks and their rules, with iptables and iproute2",
)
def test_a_run_that_leaves_a_container_network_behind_is_cleaned_up_and_fails(tmp_path: Path) -> None:
    script = f'"$@" >&2; status=$?; {LISTING}; exit $status'
    apart = ["unshare", "--net", "--pid", "--fork", "--mount-proc"]  # no Podman of another test
    words = [*apart, "sh", "-c", script, "sh", *REAPER, sys.executable, "-c", NETWORK]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}  # it sees no owner of a run of ours, and would end them all
    done = subprocess.run(words, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "left behind, and removed: network one (swtest1)\n")
    assert [rule for rule in done.stdout.splitlines() if rule.startswith("-A ")] == [
        "-A FORWARD -s 10.98.7.0/24 -j ACCEPT"
    ]
    assert ("swtest1" in done.stdout, "NETAVARK" in done.stdout) == (False, False)


def test_folders_of_confined_programs_are_kept_while_there_is_such_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims, home, other = tmp_path / "run" / "uids", tmp_path / "run" / "home", tmp_path / "netns"
    monkeypatch.setattr(reaper, "CLAIMED_UIDS", claims)
    for folder in (claims, home, other):
        folder.mkdir(parents=True)
    (claims / "70000").symlink_to(tmp_path)
    reaper.remove_empty([claims, home, claims.parent, other])
    assert (home.exists(), other.exists()) == (True, False)
    (claims / "70000").unlink()
    reaper.remove_empty([claims, home, claims.parent, other])
    assert list(tmp_path.iterdir()) == []


def test_the_status_of_a_run_that_fails_is_kept(tmp_path: Path) -> None:
    run = Run(EXIT_AT_ONCE, tmp_path)
    pid = run.daemon()
    assert run.end()[0] == 3
    assert (is_alive(pid), list(run.tmp.iterdir())) == (False, [])


@pytest.mark.parametrize(
    ("number", "ignored"), [(signal.SIGINT, False), (signal.SIGINT, True), (signal.SIGTERM, False)]
)
def test_a_signal_ends_a_run_with_everything_in_it(tmp_path: Path, number: signal.Signals, ignored: bool) -> None:
    run = Run(WAIT, tmp_path, ignored=number if ignored else None)
    pid = run.daemon()
    run.process.send_signal(number)
    assert run.end()[0] != 0
    assert (is_alive(pid), list(run.tmp.iterdir())) == (False, [])


def test_a_killed_reaper_leaves_nothing_either(tmp_path: Path) -> None:
    run = Run(WAIT, tmp_path)
    pid = run.daemon()
    run.process.kill()
    wait_until(lambda: not is_alive(pid) and not list(run.tmp.iterdir()))
    run.end()


def test_a_run_begins_with_what_a_stopped_machine_left(tmp_path: Path) -> None:
    left = tmp_path / "tmp" / f"{PREFIX}old"
    left.mkdir(parents=True)
    (left / OWNER).write_text(f"{os.getpid()} 1")  # the number of a live process, but of another one
    sleeper = subprocess.Popen(["/bin/sleep", "600"], cwd=left)
    assert Run("pass", tmp_path).end() == (0, "")
    sleeper.wait(timeout=PATIENCE_S)
    assert not left.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts programs as other users")
def test_a_confined_program_ends_with_its_run_though_it_names_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims, folder, uid = tmp_path / "uids", tmp_path / "run", 69_999
    claims.mkdir()
    folder.mkdir()
    (claims / str(uid)).symlink_to(folder / "machines" / "one")
    monkeypatch.setattr(reaper, "CLAIMED_UIDS", claims)
    sleeper = subprocess.Popen(["/bin/sleep", "600"], cwd="/", env={}, user=uid)
    reaper.remove_run(folder)
    sleeper.wait(timeout=PATIENCE_S)
    assert (folder.exists(), list(claims.iterdir())) == (False, [])


def test_a_run_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    first = Run(WAIT, tmp_path)
    pid = first.daemon()
    assert Run("pass", tmp_path).end() == (0, "")
    assert is_alive(pid)
    first.process.terminate()
    first.end()


def test_a_test_that_times_out_leaves_no_database_server(tmp_path: Path) -> None:
    told = tmp_path / "folder"
    (tmp_path / "test_hangs.py").write_text(TIMING_OUT.format(told=str(told)))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
    done = subprocess.run(
        [*words, str(tmp_path / "test_hangs.py")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0, done.stdout
    folder = Path(told.read_text())
    wait_until(lambda: not folder.exists() and not mentioned(str(folder)))


def mentioned(text: str) -> list[int]:
    """Return the processes that have a text among their arguments."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text in file.read_text(errors="replace"):
                found.append(int(file.parent.name))
        except OSError:
            continue
    return found
