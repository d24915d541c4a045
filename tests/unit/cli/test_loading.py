import subprocess
import sys

from stateward.access import Role as Known
from stateward.cli.commands.token import Role


def test_the_roles_are_those_of_the_server() -> None:
    assert [(one.name, one.value) for one in Role] == [(one.name, one.value) for one in Known]


def test_the_command_line_starts_without_the_engine_the_server_and_http() -> None:
    program = "import sys; import stateward.cli.commands; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"stateward.engine", "stateward.server", "stateward.store", "httpx", "litestar"} & set(loaded)
