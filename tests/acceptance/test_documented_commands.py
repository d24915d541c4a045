"""Every command and every piece of Python in the README and the documentation is run."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.server.server_processes import run, run_module

ROOT = Path(__file__).parents[2]
DOCUMENTED_PROGRAM = "tests.acceptance.documented_program"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

ELSEWHERE = (
    "make run",
    "make test",
    "make check",
    "make prove",
    "make pairs",
    "make bench",
    "make simulate",
    "make chaos",
    "make growth",
    "make year",
    "make mutate",
    "make flake",
    "make docs",
    "make format",
    "make lock",
)
"""Commands that are not run here: servers, this suite, others that run it, slow ones, those that change the tree."""


CONTINUED = ("docs/howto/driver.md", "docs/howto/job.md")
"""Pages whose first piece of Python stands before each of the others."""

LOGGED_FAILURE = re.compile(r"^operation \w+ \(.+\) failed: .+\n", re.MULTILINE)
"""The log line of an operation that fails, as some of the examples are to show."""


def blocks(language: str) -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for found in BLOCK.finditer(page.read_text("utf-8")):
            if found[1] == language:
                yield str(page.relative_to(ROOT)), found[2]


def commands() -> Iterator[object]:
    for page, block in blocks("sh"):
        for line in block.splitlines():
            command = line.split(" #")[0].strip()
            if command and not command.startswith(ELSEWHERE):
                yield pytest.param(command, id=f"{page}: {command}")


@pytest.mark.parametrize("command", list(commands()))
def test_a_documented_command_works(command: str) -> None:
    program, *words = shlex.split(command)
    if program == "stateward":
        done = run(*words)
    else:
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def programs() -> Iterator[object]:
    """Yield every piece of Python; one that names its file belongs to a story or a project, which another test runs."""
    first: dict[str, str] = {}
    for page, code in blocks("python"):
        before = first.setdefault(page, code) if page in CONTINUED else code
        yield pytest.param(code if before == code else f"{before}\n\n{code}", id=page)


@pytest.mark.parametrize("code", list(programs()))
def test_documented_python_runs_and_prints_what_it_says(code: str) -> None:
    done = run_module(DOCUMENTED_PROGRAM, code)
    assert (done.returncode, LOGGED_FAILURE.sub("", done.stderr)) == (0, "")
    said = re.findall(r"^# (.+)$", code.split("print(")[-1], re.MULTILINE)
    assert done.stdout.splitlines() == said


def test_a_target_that_is_only_named_elsewhere_exists() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert all(re.search(rf"^{command.split()[1]}:.*## ", makefile, re.MULTILINE) for command in ELSEWHERE)
