import os
import subprocess
import sys
from types import SimpleNamespace

import msgspec
import pytest
from typer.models import OptionInfo

from stateward.access import Role as Known
from stateward.cli.commands.token import RoleName
from stateward.cli.lazy_commands import LazyCommand, PlainValues, imported_command
from stateward.cli.main import COMMANDS
from stateward.lifecycle import StateClass
from stateward.schemas.objects import ObjectPage
from tests.unit.cli.http_server import http_server
from tests.unit.cli.sample_records import sample_object


def test_the_roles_are_those_of_the_server() -> None:
    assert [(one.name, one.value) for one in RoleName] == [(one.name, one.value) for one in Known]


PROGRAM = """
import sys
from typer.testing import CliRunner
from stateward.cli.main import app
done = CliRunner().invoke(app, sys.argv[1:])
assert done.exit_code == 0, done.output
print(*sys.modules)
"""
OWN = ("engine", "server", "store.sqlite", "drivers", "access", "agents", "domains.mci.lifecycle")
LIBRARIES = ("httpx", "litestar", "pydantic", "uvicorn", "asyncio", "pygments", "markdown_it", "websockets")


def loaded_by(*words: str) -> set[str]:
    started = [sys.executable, "-c", PROGRAM, *words]
    loaded = subprocess.run(started, capture_output=True, text=True, check=True).stdout.split()
    return {one.removeprefix("stateward.") for one in loaded}


@pytest.mark.parametrize("words", [[], ["get"], ["do"], ["list"], ["top"], ["mci"]], ids=" ".join)
def test_help_loads_no_engine_no_server_no_tables_and_no_library_that_it_does_not_need(words: list[str]) -> None:
    assert not {*OWN, *LIBRARIES} & loaded_by(*words, "--help")


def test_the_list_of_commands_draws_nothing() -> None:
    unused = {"rich.console", "client.http", "domains.mci.cli", "importlib.metadata", "email.message"}
    assert not unused & loaded_by("--help")


def test_a_call_loads_neither_the_plugins_nor_a_library_that_it_does_not_need() -> None:
    page = msgspec.json.encode(ObjectPage([sample_object(state_class=StateClass.STABLE)], None))
    with http_server(page) as (url, seen):
        loaded = loaded_by("list", "--server", url, "--token", "tok", "--limit", "7")
    assert [path for _, path in seen] == ["/api/v1/ns/default/objects?limit=8"]
    assert not {*OWN, *LIBRARIES, "plugin.registry", "importlib.metadata", "config", "lifecycle"} & loaded


@pytest.mark.parametrize(
    ("value", "wanted", "found"),
    [
        (("a", "b"), list[str], ["a", "b"]),
        ("admin", RoleName, RoleName.ADMIN),
        (RoleName.ADMIN, RoleName, RoleName.ADMIN),
    ],
)
def test_lists_of_names_and_choices_are_converted_without_the_library(
    value: object, wanted: object, found: object
) -> None:
    described = SimpleNamespace(annotation=wanted, parameter_info=OptionInfo())
    option = SimpleNamespace(multiple=False, nargs=1, type_descriptor=described)
    assert PlainValues(lambda: pytest.fail("the library is used")).coerce(value, option, None) == found


@pytest.mark.parametrize(("words", "shown"), [((), b"v?"), (("-o", "name"), "k/vé".encode())])
def test_a_locale_without_a_letter_prints_a_question_mark_and_data_in_utf_8(
    words: tuple[str, ...], shown: bytes
) -> None:
    page = msgspec.json.encode(ObjectPage([sample_object(id="vé", state_class=StateClass.STABLE)], None))
    environ = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    with http_server(page) as (url, _):
        started = [sys.executable, "-m", "stateward", "list", "--server", url, "--token", "tok", *words]
        done = subprocess.run(started, capture_output=True, check=True, env=environ)
    assert (shown in done.stdout, done.stderr) == (True, b"")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: one.name)
def test_the_line_of_a_command_is_the_first_sentence_of_its_help(command: LazyCommand) -> None:
    assert imported_command(command).get_short_help_str(1000).rstrip(".") == command.about.rstrip(".")
