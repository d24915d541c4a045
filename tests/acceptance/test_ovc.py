"""The small cloud of docs/ovc.md: every command of its story is run, in order, on a real server with real VMs."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest
from typer.testing import CliRunner

from stateward.cli.main import app
from tests.integration.drivers.local.host_machines import kill_all_in, needs_qemu
from tests.integration.server.server_processes import served

ROOT = Path(__file__).parents[2]

pytestmark = [
    needs_qemu,
    pytest.mark.skipif(which("qemu-img") is None, reason="qemu-img is not installed: apt-get install qemu-utils"),
]


@pytest.fixture
def where(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A server, and an environment whose commands find it."""
    with served(tmp_path / "data", "--only", "ovc") as server:
        yield {"STATEWARD_SERVER": server.url, "STATEWARD_TOKEN": server.token, "COLUMNS": "250", "NO_COLOR": "1"}
        server.stop()
    for node in (tmp_path / "data" / "ovc" / "nodes").glob("*"):
        kill_all_in(node)


def told() -> list[str]:
    """Return the commands of the page's story, in order."""
    page = (ROOT / "docs" / "ovc.md").read_text("utf-8").partition("## One action")[0]
    return re.findall(r"^\$ (.+)$", page, re.MULTILINE)


def test_the_story_of_the_small_cloud_can_be_lived(where: dict[str, str]) -> None:
    said: dict[str, str] = {}
    for line in told():
        done = CliRunner().invoke(app, shlex.split(line)[1:], env=where)
        assert done.exit_code == 0, f"{line}: {done.output}"
        said[line] = done.stdout
    assert "2 disks" in said["stateward ovc show machine/db"]
    assert "RUNNING" in said["stateward ovc list machines"]
    assert "db" in said["stateward ovc list machines --state DELETED"]
    assert "has no queue" in said["stateward ovc queue machine/db"]
    assert "DESTROYED" in said["stateward ovc delete machine/db --permanently --wait"]
    assert "Nothing is stuck" in said["stateward ovc healing"]
