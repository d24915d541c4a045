"""The commands of docs/cheat-sheet.md are run in their order, against a server of its own."""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stateward.cli.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "cheat-sheet.md").read_text("utf-8")
COMMAND = re.compile(r"^\$ stateward (.*?)(?:\s{2,}# .*)?$", re.MULTILINE)
OPERATION = re.compile(r"\b[0-9a-f]{32}\b")
ELSEWHERE = ("serve --demo",)
"""Commands that are not run here: this test has a server already."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cheat") / "data"
    words = [sys.executable, "-m", "stateward", "serve", "--data", str(folder), "--port", "0", "--only", "ovc"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            while not (folder / "server.json").exists():
                assert server.poll() is None
                time.sleep(0.05)
            yield folder
        finally:
            server.terminate()


def test_the_commands_of_the_page_work_in_their_order(folder: Path, tmp_path: Path) -> None:
    url = re.search(r'"url":"([^"]+)"', (folder / "server.json").read_text())
    token = (folder / "admin-token").read_text()
    assert url is not None
    operation = ""
    commands = [one for one in COMMAND.findall(PAGE) if one not in ELSEWHERE]
    assert len(commands) > 25
    commands = [one for one in commands if one != "logout"] + ["logout"]
    for line in commands:
        line = line.replace("https://stateward.example -n shop", f"{url[1]} -n shop --context shop")
        done = run(tmp_path, line.replace("OP", operation), token)
        assert done.exit_code == 0, (line, done.output, done.exception)
        assert done.stdout.strip() or line.startswith("logs"), line
        found = OPERATION.search(done.stdout)
        operation = found[0] if found else operation


def run(home: Path, line: str, stdin: str) -> Result:
    env = {"STATEWARD_CLIENT_FILE": str(home / "client.json"), "COLUMNS": "250", "NO_COLOR": "1"}
    return CliRunner().invoke(app, shlex.split(line), env=env, input=stdin)
