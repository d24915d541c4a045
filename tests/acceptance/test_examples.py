"""The examples run as they are, and print what their docstrings promise."""

import subprocess
import sys
from pathlib import Path
from signal import SIGKILL

EXAMPLES = Path(__file__).parents[2] / "examples"
KILLED_IN_COMPILE = """
import asyncio, os, signal, sys
import build_machine

async def work(step):
    if step == "compile":
        os.kill(os.getpid(), signal.SIGKILL)

build_machine.work = work
asyncio.run(build_machine.main(sys.argv[1]))
"""


def told(name: str) -> list[str]:
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_build_machine_refuses_the_second_build_and_names_the_first() -> None:
    lines = told("build_machine.py")
    assert any("blocked by operation" in line for line in lines)
    assert "build succeeded {'artifacts': 3}" in lines
    assert lines[-1] == "building -> idle (succeeded by worker)"


def test_the_build_machine_continues_after_its_last_finished_step_when_it_was_killed(tmp_path: Path) -> None:
    database = str(tmp_path / "machines.db")
    killed = subprocess.run([sys.executable, "-c", KILLED_IN_COMPILE, database], cwd=EXAMPLES, timeout=60, check=False)
    assert killed.returncode == -SIGKILL
    command = [sys.executable, str(EXAMPLES / "build_machine.py"), database]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line in ("fetch", "compile", "test")] == ["compile", "test"]
    assert "build succeeded {'artifacts': 3}" in lines


def test_the_phone_number_is_ported_in_and_a_late_word_does_not_count() -> None:
    lines = told("phone_number.py")
    assert lines[:2] == ["a late report about the first try counts: False", "the number is active"]
    assert any(line.startswith("rejected: ported by carrier") for line in lines)
