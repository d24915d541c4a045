import subprocess
import sys

import pytest

from stateward.access import Role as Known
from stateward.cli.commands.token import RoleName


def test_the_roles_are_those_of_the_server() -> None:
    assert [(one.name, one.value) for one in RoleName] == [(one.name, one.value) for one in Known]


PROGRAM = """
import sys
from typer.testing import CliRunner
from stateward.cli.main import app
assert CliRunner().invoke(app, [sys.argv[1], "--help"]).exit_code == 0
print(*sys.modules)
"""
UNWANTED = ("engine", "server", "store.sqlite", "plugin.registry", "drivers", "access")


@pytest.mark.parametrize("command", ["get", "do", "list", "top"])
def test_a_command_starts_without_the_engine_the_server_the_domains_and_http(command: str) -> None:
    started = [sys.executable, "-c", PROGRAM, command]
    loaded = subprocess.run(started, capture_output=True, text=True, check=True).stdout.split()
    assert not {*(f"stateward.{one}" for one in UNWANTED), "httpx", "litestar"} & set(loaded)
