"""The command sequences of the documentation: every command of a page is typed, in order, into one real shell.

A story is what stands behind `$` in a page's `text` blocks. What the page shows below a command is to be found in what
the command printed, line by line; `...` stands for anything. A command whose remark says `is refused` has to fail.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import Struct

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PATIENT = 120.0
PAGES = (
    "docs/tutorial.md",
    "docs/howto/lifecycle.md",
    "docs/howto/backup.md",
    "docs/howto/secure.md",
    "docs/howto/upgrade.md",
    "docs/howto/operate.md",
    "docs/howto/history.md",
)


class Typed(Struct, frozen=True):
    """A command of a page, and the lines that the page shows below it."""

    command: str
    shown: list[str]

    @property
    def refused(self) -> bool:
        return self.command.endswith("is refused")

    @property
    def stays(self) -> bool:
        return self.command.partition("  #")[0].rstrip().endswith("&")


def story(page: str) -> list[Typed]:
    """Return the commands of a page, in order."""
    found: list[Typed] = []
    for block in BLOCK.findall(page):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Typed(line.removeprefix("$ "), []))
            elif line.strip() and found:
                found[-1].shown.append(line.rstrip())
    return found


class Terminal:
    """One shell for all commands of a page, so that later commands see the variables of earlier ones."""

    def __init__(self, folder: Path) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("STATEWARD_")}
        path = f"{Path(sys.executable).parent}:{clean['PATH']}"
        self._folder = folder
        self._shell = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=folder,
            env={**clean, "PATH": path, "STATEWARD_PORT": "0", "COLUMNS": "200", "NO_COLOR": "1"},
            start_new_session=True,
        )
        self._count = 0

    def type(self, typed: Typed) -> str:
        """Type a command, wait for its end (or for the first output of a server), and return its output."""
        self._count += 1
        said, ended = self._folder / f".said-{self._count}", self._folder / f".ended-{self._count}"
        command = (
            f"{{ {typed.command}\n}} >{said.name} 2>&1; echo $? >{ended.name}.new; mv {ended.name}.new {ended.name}\n"
        )
        assert self._shell.stdin is not None
        self._shell.stdin.write(command)
        self._shell.stdin.flush()
        self._until(ended.exists, typed, said)
        if typed.stays:
            self._until(lambda: " answers on " in said.read_text("utf-8"), typed, said)
        printed = said.read_text("utf-8")
        assert (int(ended.read_text()) != 0) is typed.refused, f"{typed.command}: {printed}"
        return printed

    def _until(self, happened: Callable[[], bool], typed: Typed, said: Path) -> None:
        end = time.monotonic() + PATIENT
        while not happened():
            assert time.monotonic() < end, f"{typed.command}: {said.read_text('utf-8') if said.exists() else ''}"
            time.sleep(0.05)

    def close(self) -> None:
        """End the shell and all of its processes."""
        os.killpg(self._shell.pid, signal.SIGKILL)
        with self._shell:
            pass


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


def is_shown(line: str, printed: str) -> bool:
    wanted = re.compile(".*".join(map(re.escape, line.split("..."))))
    return any(wanted.fullmatch(one.rstrip()) for one in printed.splitlines())


@pytest.mark.parametrize("page", PAGES)
def test_a_story_of_the_documentation_can_be_lived(terminal: Terminal, page: str) -> None:
    typed = story((ROOT / page).read_text("utf-8"))
    assert typed
    for one in typed:
        printed = terminal.type(one)
        for line in one.shown:
            assert is_shown(line, printed), f"{one.command} printed {printed!r}, and not {line!r}"


def test_the_tour_of_the_readme_is_the_one_of_the_tutorial() -> None:
    """The README then works as written, if the tutorial does."""
    tour, tutorial = (
        [re.split(r"\s+#", one.command)[0] for one in story((ROOT / page).read_text("utf-8"))]
        for page in ("README.md", "docs/tutorial.md")
    )
    rest = iter(tutorial)
    assert tour
    assert [one for one in tour if one not in rest] == []


def test_a_story_is_read_with_what_it_shows() -> None:
    page = "```text\n$ one &  # it stays\n\n$ two  # is refused\nerror: ...\n```\n"
    first, second = story(page)
    assert (first.stays, first.refused, first.shown) == (True, False, [])
    assert (second.stays, second.refused, second.shown) == (False, True, ["error: ..."])


def test_dots_stand_for_anything_and_the_rest_for_itself() -> None:
    assert is_shown("moved (...) by me", "first\nmoved (1 of 2) by me  \n")
    assert not is_shown("moved (...) by me", "moved by me\n")
