"""Sign-in, contexts and the view of what commands use."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stateward.access import Role
from stateward.cli.main import app
from stateward.client.errors import exit_code_for
from stateward.errors import StatewardError
from tests.integration.cli.cli_server import WIDE, CliServer


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "client.json"


def run(file: Path, *words: str, stdin: str | None = None, **env: str) -> Result:
    done = CliRunner().invoke(app, words, input=stdin, env={**WIDE, "STATEWARD_CLIENT_FILE": str(file), **env})
    if isinstance(done.exception, StatewardError):
        done.exit_code = exit_code_for(done.exception)  # as the program does
    return done


def test_login_checks_the_token_and_stores_it_for_its_owner_alone(cli: CliServer, file: Path) -> None:
    cli.built("pump-1")
    done = run(file, "login", cli.url, "--context", "plant", "-n", cli.ns, stdin=f"{cli.token}\n")
    assert (done.exit_code, cli.token in done.output) == (0, False), done.output
    assert "as the test (admin)" in done.stdout
    stored = file.parent / "tokens" / "plant"
    assert (stored.stat().st_mode & 0o777, stored.read_text()) == (0o600, f"{cli.token}\n")
    assert cli.token not in file.read_text()
    assert run(file, "list", "-o", "name").stdout == "test.pump/pump-1\n"

    assert run(file, "logout").exit_code == 0
    assert not stored.exists()
    assert run(file, "list").exit_code == 4


def test_a_wrong_token_is_not_stored(cli: CliServer, file: Path) -> None:
    done = run(file, "login", cli.url, stdin="sw_wrong_token\n")
    assert (done.exit_code, "sw_wrong_token" in done.output) == (4, False)
    assert not file.exists()
    assert run(file, "login", stdin="x\n").exit_code == 2


def test_a_token_of_one_namespace_is_used_there(cli: CliServer, file: Path) -> None:
    token, _ = cli.ask(cli.tokens.issue("ann", Role.VIEWER, [cli.ns]))
    assert run(file, "login", cli.url, "-n", "elsewhere", stdin=token).exit_code == 2
    assert run(file, "login", cli.url, stdin=token).exit_code == 0
    shown = {one["name"]: one for one in json.loads(run(file, "config", "view", "--json").stdout)}
    assert shown["namespace"]["value"] == cli.ns


def test_contexts_are_set_listed_used_and_deleted(file: Path) -> None:
    assert run(file, "config", "current-context").exit_code == 1
    assert run(file, "config", "set-context", "shop", "--server", "http://shop:1/", "-n", "goods").exit_code == 0
    assert run(file, "config", "set-context", "lab", "--server", "http://lab:1", "--token-ref", "env:T").exit_code == 0
    assert run(file, "config", "current-context").stdout == "shop\n"
    assert run(file, "config", "use-context", "lab").exit_code == 0
    rows = json.loads(run(file, "config", "get-contexts", "--json").stdout)
    assert [(one["name"], one["is_current"], one["server"]) for one in rows] == [
        ("shop", False, "http://shop:1"),
        ("lab", True, "http://lab:1"),
    ]
    assert "did you mean 'shop'" in str(run(file, "config", "use-context", "shp").exception)
    assert run(file, "config", "set-context", "lab", "-n", "tests").exit_code == 0
    assert json.loads(file.read_text())["contexts"]["lab"] == {
        "server": "http://lab:1",
        "token": "env:T",
        "namespace": "tests",
    }
    assert run(file, "config", "delete-context", "lab").exit_code == 0
    assert run(file, "config", "current-context").exit_code == 1
    assert run(file, "config", "set-context", "new").exit_code == 2


def test_the_view_tells_what_is_used_and_from_where_and_no_token(file: Path) -> None:
    run(file, "config", "set-context", "shop", "--server", "http://shop:1", "--token-ref", "file:t", "-n", "goods")
    done = run(file, "config", "view", "--json", "--token", "sw_secret", STATEWARD_NAMESPACE="mine")
    assert "sw_secret" not in done.output
    assert {one["name"]: (one["value"], one["source"]) for one in json.loads(done.stdout)} == {
        "client file": (str(file), ""),
        "context": ("shop", "client file"),
        "server": ("http://shop:1", "context shop"),
        "token": ("***", "--token"),
        "namespace": ("mine", "--namespace"),
    }
    assert "http://shop:1" in run(file, "config", "view").stdout


def test_without_a_command_config_still_shows_the_settings_of_servers(file: Path) -> None:
    assert "largest request body" in run(file, "config").stdout
