"""A folder in which processes of the domain live and die, and nothing of theirs stays behind."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.chaos.mci.domain_process import Plan
from tests.integration.drivers.local.host_machines import kill_all_in, live_processes_in

ROOT = Path(__file__).parents[3]
PATIENT = 60.0
CREDENTIAL = {"FARM_ACCESS_KEY_ID": "AKIDFARM", "FARM_SECRET_ACCESS_KEY": "secret"}


class Lives:
    """One life of a domain after the other, in one folder."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.store = folder, plan.store or str(folder / "stateward.db")
        folder.mkdir(parents=True)
        (folder / "plan.json").write_bytes(msgspec.json.encode(plan))
        command = [sys.executable, "-m", "tests.chaos.mci.domain_process", str(folder)]
        with (folder / "log").open("w") as log:
            self._source = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **CREDENTIAL},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self.deaths = 0

    def die_at(self, point: str, *options: str) -> None:
        """Live until a point, and be gone there."""
        said, code = self._live("--die", point, *options)
        assert code == -9, f"{point} was never reached:\n{said}{self._log()}"
        self.deaths += 1

    def kill_at(self, point: str) -> None:
        """Live until a point, and be killed from outside some time after."""
        said, code = self._live(killed_at=f"at {point}")
        assert code == -9, f"{point} was never reached:\n{said}{self._log()}"
        self.deaths += 1

    def live_on(self, *options: str) -> str:
        """Live to the end; returns in what state the MCI rests."""
        said, code = self._live(*options)
        assert code == 0, f"{said}{self._log()}"
        return said[-1].removeprefix("rests ")

    def _live(self, *options: str, killed_at: str = "") -> tuple[list[str], int]:
        """Begin a life, and wait for its end; returns what it said, and how it ended."""
        assert self._source.stdin is not None
        self._source.stdin.write(f"{shlex.join(options)}\n")
        self._source.stdin.flush()
        said, pid = list[str](), 0
        while True:
            word, _, rest = self._line().partition(" ")
            if word == "ended":
                return said, int(rest)
            said.append(f"{word} {rest}")
            pid = int(rest) if word == "begun" else pid
            if said[-1] == killed_at:
                os.kill(pid, signal.SIGKILL)

    def _line(self) -> str:
        assert self._source.stdout is not None
        line = self._source.stdout.readline()
        assert line, self._log()
        return line.rstrip("\n")

    def end(self) -> None:
        """Leave no process behind."""
        os.killpg(self._source.pid, signal.SIGKILL)
        self._source.communicate(timeout=PATIENT)

    def _log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]


MakeLives = Callable[[Plan], Lives]


@pytest.fixture
def lives_of(tmp_path: Path) -> Iterator[MakeLives]:
    """Give a test a folder for lives, of which nothing stays."""
    made: list[Lives] = []

    def make(plan: Plan) -> Lives:
        made.append(Lives(tmp_path / "site", plan))
        return made[-1]

    yield make
    for found in made:
        found.end()
        for folder in (found.folder / "machines").glob("*/*"):
            kill_all_in(folder)
            assert live_processes_in(folder) == []
        shutil.rmtree(found.folder, ignore_errors=True)


@pytest.fixture
def cloud_url() -> Iterator[str]:
    """Start a test cloud that outlives whoever is killed; returns where it listens."""
    command = [sys.executable, "-m", "tests.chaos.mci.cloud_process"]
    env = {
        name: value for name, value in os.environ.items() if name != "MOTO_AMIS_PATH"
    }  # a cloud here may have set it
    cloud = subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert cloud.stdout is not None
    yield cloud.stdout.readline().strip()
    cloud.communicate(timeout=PATIENT)
