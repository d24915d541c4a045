"""The shop of docs/systems.md: every command of its story is run, in order, on a real server with real processes."""

import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stateward.cli.main import app
from tests.integration.domains.systems.local_backend_harness import kill_marked
from tests.integration.server.server_processes import served
from tests.kept_ports import keep_port

ROOT = Path(__file__).parents[2]
PORTS = ("18420", "18421", "18422")
PATIENT = 120.0


class Terminal:
    """A shell that runs the page's commands, with the example on free ports."""

    def __init__(self, ports: dict[str, str], url: str, token: Path) -> None:
        self._ports = ports
        self._where = ["--server", url, "--token-file", str(token)]

    def typed(self, line: str) -> str:
        """Type a line, and return what is printed."""
        for known, free in self._ports.items():
            line = line.replace(known, free)
        words = shlex.split(line)
        if words[0] == "stateward":
            ran = CliRunner().invoke(app, [*words[1:], *self._where])
            assert ran.exit_code == 0, f"{line}: {ran.output}"
            return ran.stdout
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENT, check=False)
        assert done.returncode == 0, f"{line}: {done.stdout} {done.stderr}"
        return done.stdout

    def until(self, line: str, says: str) -> str:
        """Repeat a command until it prints a text."""
        end = time.monotonic() + PATIENT
        while says not in (said := self.typed(line)):
            assert time.monotonic() < end, said
        return said


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    ports = {port: str(keep_port()) for port in PORTS}
    shutil.copytree(ROOT / "examples" / "shop", tmp_path / "examples" / "shop")
    file = tmp_path / "examples" / "shop" / "shop.yaml"
    text = file.read_text()
    for known, free in ports.items():
        text = text.replace(known, free)
    file.write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # readline sets it for the programs that pytest starts
    environ = {"STATEWARD_MACHINE_PATHS": str(tmp_path / "examples")}
    with served(tmp_path / "data", "--only", "systems", environ=environ) as server:
        yield Terminal(ports, server.url, tmp_path / "data" / "admin-token")
        server.stop(signal.SIGTERM)
    assert kill_marked(tmp_path) == []


def told() -> list[str]:
    """Return the commands of the page's story, in order."""
    page = (ROOT / "docs" / "systems.md").read_text("utf-8").partition("## Definitions")[0]
    return re.findall(r"^\$ (.+)$", page, re.MULTILINE)


def test_the_story_of_the_shop_can_be_lived(terminal: Terminal) -> None:
    said: dict[str, list[str]] = {}
    for line in told():
        said.setdefault(line, []).append(terminal.typed(line))
        if line.endswith("/break"):
            terminal.until("stateward history shop", "degraded")
            terminal.until("stateward system status shop", "shop is stable")
    first, second = said["curl -s http://127.0.0.1:18420/"]
    assert '"version": "1", "stock": {"goods"' in first
    assert '"version": "2", "stock": {"goods"' in second
    deploys = said["stateward system deploys shop"][0].splitlines()
    assert [line.split()[2] for line in deploys[1:]] == ["succeeded"] * 3
    assert "serves on" in said["stateward system logs shop /web"][0]
    runs = said["stateward system job runs shop /inventory"][0].splitlines()
    assert [line.split()[1] for line in runs[1:]] == ["succeeded"]
    assert "30 3 * * * (Europe/Berlin)" in " ".join(said["stateward system job list shop"][0].split())
