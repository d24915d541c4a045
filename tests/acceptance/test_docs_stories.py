"""The command sequences of the documentation: every command of a page is typed, in order, into one real shell.

A story is what stands behind `$` in a page's `text` blocks. A block that names a file (```` ```python acme.py ````) is
saved as that file, and a `diff` is applied to it. What the page shows below a command is to be found in what
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

from tests.fork_server import fork_server
from tests.integration.server.server_processes import STATEWARD

ROOT = Path(__file__).parents[2]
FORKED = Path(__file__).with_name("forked_stateward.py")
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PATIENT = 120.0
PAGES = {
    "docs/tutorial.md": "mci",
    "docs/own-domain.md": "acme",
    "docs/howto/lifecycle.md": "",
    "docs/howto/backup.md": "ovc",
    "docs/howto/secure.md": "ovc,systems",
    "docs/howto/upgrade.md": "mci",
    "docs/howto/operate.md": "mci,ovc",
    "docs/howto/history.md": "ovc",
    "docs/howto/gitops.md": "edge",
    "docs/systems.md#Secrets": "systems",
    "src/stateward/server/pages/guide.md": "",
}
"""The pages, and the domains that their servers load: one domain is loaded in half the time of all. Empty: all."""


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


class Saved(Struct, frozen=True):
    """A file of a page, or the changes to one."""

    file: str
    text: str
    is_diff: bool

    def save(self, folder: Path) -> None:
        """Write the file, or change it; each part of a diff has to be in the file once."""
        path = folder / self.file
        if not self.is_diff:
            path.write_text(self.text, "utf-8")
            return
        for part in self.text.split("...\n"):
            lines = part.splitlines(keepends=True)
            before, after = ("".join(one[1:] for one in lines if one[0] != sign) for sign in "+-")
            found = path.read_text("utf-8")
            assert found.count(before) == 1, f"{self.file} has {found.count(before)} times: {before}"
            path.write_text(found.replace(before, after), "utf-8")


def steps(page: str) -> list[Typed | Saved]:
    """Return the commands and the files of a page, in order."""
    found: list[Typed | Saved] = []
    for language, file, block in BLOCK.findall(page):
        if file:
            found.append(Saved(file, block, language == "diff"))
        for line in block.splitlines() if language == "text" and block.startswith("$ ") else ():
            if line.startswith("$ "):
                found.append(Typed(line.removeprefix("$ "), []))
            elif line.strip() and isinstance(found[-1], Typed):
                found[-1].shown.append(line.rstrip())
    return found


def read_page(page: str) -> str:
    """Return the text of a page, or of the section that it names."""
    file, _, section = page.partition("#")
    text = (ROOT / file).read_text("utf-8")
    return text.partition(f"\n## {section}\n")[2].partition("\n## ")[0] if section else text


def story(page: str) -> list[Typed]:
    """Return the commands of a page, in order."""
    return [one for one in steps(page) if isinstance(one, Typed)]


class Terminal:
    """One shell for all commands of a page, so that later commands see the variables of earlier ones."""

    def __init__(self, folder: Path, only: str = "") -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("STATEWARD_", "PYTEST_"))}
        path = f"{Path(sys.executable).parent}:{clean['PATH']}"
        installed = {"PIP_TARGET": str(folder / ".installed"), "PYTHONPATH": str(folder / ".installed")}
        offline = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "false"}
        own = {"PYTEST_ADDOPTS": "-p no:schemathesis -p no:faker"}  # which a user doesn't have
        own |= {"STATEWARD_PORT": "0", "STATEWARD_ONLY": only, "COLUMNS": "200", "NO_COLOR": "1"}
        forks = fork_server().fileno()
        path = f"{_forked_program(folder)}:{path}"
        own |= {"FORKED_PROGRAM": str(STATEWARD), "FORK_SERVER": str(forks)}
        self._folder = folder
        self._shell = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=folder,
            env={**clean, "PATH": path, **own, **installed, **offline},
            start_new_session=True,
            pass_fds=[forks],
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


def _forked_program(folder: Path) -> Path:
    """Make a folder with a `stateward` that the fork server runs."""
    programs = folder / ".programs"
    programs.mkdir()
    program = programs / "stateward"
    program.write_text(f"#!{sys.executable} -IS\n{FORKED.read_text('utf-8')}", "utf-8")
    program.chmod(0o755)
    return programs


@pytest.fixture
def terminal(tmp_path: Path, page: str) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, PAGES[page])
    yield terminal
    terminal.close()


def is_shown(line: str, printed: str) -> bool:
    wanted = re.compile(".*".join(map(re.escape, line.split("..."))))
    return any(wanted.fullmatch(one.rstrip()) for one in printed.splitlines())


@pytest.mark.parametrize("page", PAGES)
def test_a_story_of_the_documentation_can_be_lived(terminal: Terminal, page: str, tmp_path: Path) -> None:
    text = read_page(page)
    assert story(text)
    if any("examples/" in one.command for one in story(text)):
        shutil.copytree(ROOT / "examples", tmp_path / "examples")
    if "#" in page:  # the story of a section goes on with the server of the page
        terminal.type(Typed("stateward serve &", []))
    for one in steps(text):
        if isinstance(one, Saved):
            one.save(tmp_path)
            continue
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


def test_the_lamp_of_the_readme_is_the_first_file_of_its_page() -> None:
    first = next(one for one in steps((ROOT / "docs/own-domain.md").read_text("utf-8")) if isinstance(one, Saved))
    assert f"```python\n{first.text}```" in (ROOT / "README.md").read_text("utf-8")


def test_a_story_is_read_with_what_it_shows() -> None:
    page = "```text\n$ one &  # it stays\n\n$ two  # is refused\nerror: ...\n```\n"
    first, second = story(page)
    assert (first.stays, first.refused, first.shown) == (True, False, [])
    assert (second.stays, second.refused, second.shown) == (False, True, ["error: ..."])


def test_a_story_saves_its_files_and_applies_its_diffs(tmp_path: Path) -> None:
    page = "```python a.py\none\ntwo\nthree\n```\n\n```diff a.py\n one\n-two\n+2\n...\n+3\n-three\n```\n"
    for one in steps(page):
        assert isinstance(one, Saved)
        one.save(tmp_path)
    assert (tmp_path / "a.py").read_text() == "one\n2\n3\n"


def test_dots_stand_for_anything_and_the_rest_for_itself() -> None:
    assert is_shown("moved (...) by me", "first\nmoved (1 of 2) by me  \n")
    assert not is_shown("moved (...) by me", "moved by me\n")
