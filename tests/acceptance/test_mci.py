"""The story of docs/mci.md: every command of the page is run, in order, on a real server."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.server.server_processes import Served, served

ROOT = Path(__file__).parents[2]
STATEWARD = Path(sys.executable).parent / "stateward"
BLOCK = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGE = (ROOT / "docs" / "mci.md").read_text("utf-8")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("mci") / "data") as server:
        yield server


def typed(server: Served, line: str) -> str:
    words = [str(STATEWARD), *shlex.split(line, comments=True)[1:]]
    env = {**os.environ, "STATEWARD_DATA": str(server.folder), "COLUMNS": "200"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT, env=env)
    assert done.returncode == 0, f"{line}: {done.stdout} {done.stderr}"
    return done.stdout


@pytest.mark.parametrize("block", BLOCK.findall(PAGE), ids=lambda block: block.split("\n")[0])
def test_the_page_tells_what_happens(server: Served, block: str) -> None:
    said = ""
    for line in block.splitlines():
        if line.startswith("$ "):
            said = typed(server, line.removeprefix("$ "))
            assert said.strip(), line
        else:
            assert line in [one.rstrip() for one in said.splitlines()], said
