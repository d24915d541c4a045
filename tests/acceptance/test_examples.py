"""The examples run as they are, and print what their docstrings promise."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def told(name: str) -> list[str]:
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_build_machine_refuses_the_second_build_and_names_the_first() -> None:
    lines = told("build_machine.py")
    assert "blocked by operation" in lines[0]
    assert lines[1] == "build succeeded {'artifacts': 3}"
    assert lines[-1] == "building -> idle (succeeded by worker)"


def test_the_phone_number_is_ported_in_and_a_late_word_does_not_count() -> None:
    lines = told("phone_number.py")
    assert lines[:2] == ["a late report about the first try counts: False", "the number is active"]
    assert any(line.startswith("rejected: ported by carrier") for line in lines)
