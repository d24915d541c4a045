"""The story of docs/mci.md: every command of the page is run, in order, on a real server."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stateward.cli.main import app
from tests.integration.server.server_processes import Served, served

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGE = (ROOT / "docs" / "mci.md").read_text("utf-8")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("mci") / "data", "--only", "mci") as server:
        yield server


def typed(server: Served, line: str) -> str:
    env = {"STATEWARD_DATA": str(server.folder), "COLUMNS": "200", "NO_COLOR": "1"}
    done = CliRunner().invoke(app, shlex.split(line, comments=True)[1:], env=env)
    assert done.exit_code == 0, f"{line}: {done.output}"
    return done.stdout


@pytest.mark.parametrize("block", BLOCK.findall(PAGE), ids=lambda block: block.split("\n")[0])
def test_the_page_tells_what_happens(server: Served, block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    said = ""
    for line in block.splitlines():
        if line.startswith("$ "):
            said = typed(server, line.removeprefix("$ "))
            assert said.strip(), line
        else:
            assert line in [one.rstrip() for one in said.splitlines()], said
