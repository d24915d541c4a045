"""No process and no folder of a run remains, whatever ends it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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


def wait_until(condition: object) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.02)


def test_a_run_that_leaves_a_process_behind_is_cleaned_up_and_fails(tmp_path: Path) -> None:
    run = Run(LEAVE, tmp_path)
    pid = run.daemon()
    status, said = run.end()
    assert (status, is_alive(pid), list(run.tmp.iterdir())) == (1, False, [])
    assert f"left behind, and killed: {pid} " in said


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
