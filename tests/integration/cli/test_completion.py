"""Completion in the shell: by calls of the completion functions, and by the process that a shell starts."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stateward.cli.commands.kind_options import (
    complete_actions,
    complete_arguments,
    complete_kinds,
    complete_spec_fields,
)
from stateward.client.shared_options import complete_objects
from tests.integration.cli.cli_server import CliServer


def typed(cli: CliServer | None = None, **more: Any) -> Any:
    """Return the context of a command that is being typed."""
    to = {"data": "/nowhere"} if cli is None else {"server": cli.url, "token": cli.token, "namespace": cli.ns}
    return SimpleNamespace(params={**to, **more}, args=[], obj=None)


def pressed_tab(cli: CliServer, *words: str) -> list[str]:
    """Return what bash offers for the last word."""
    typed = {"COMP_WORDS": " ".join(("stateward", *words)), "COMP_CWORD": str(len(words))}
    to = {"STATEWARD_SERVER": cli.url, "STATEWARD_TOKEN": cli.token, "STATEWARD_NAMESPACE": cli.ns}
    environ = {**os.environ, **to, **typed, "_STATEWARD_COMPLETE": "complete_bash"}
    program = Path(sys.executable).with_name("stateward")
    return subprocess.run([program], env=environ, capture_output=True, text=True, check=False).stdout.split()


def test_tab_after_set_offers_the_fields_of_the_kind_and_the_action(cli: CliServer) -> None:
    assert pressed_tab(cli, "create", "dns.record", "www", "--set", "ty") == ["type="]
    assert pressed_tab(cli, "create", "record/www", "--set", "type=A", "--set", "tt") == ["ttl="]
    assert pressed_tab(cli, "do", "change", "--set", "to") == ["token="]
    cli.json("create", "record", "www", "--set", "address=192.0.2.1", "--wait")
    assert pressed_tab(cli, "do", "change", "record/www", "--set", "tt") == ["ttl="]
    assert pressed_tab(cli, "do", "touch", "www", "--set", "t") == []


def test_without_a_server_kinds_and_actions_come_from_the_tables() -> None:
    assert complete_kinds(typed(), "mci.v") == ["mci.vm", "mci.vnet"]
    assert "suspend" in complete_actions(typed(), "sus")
    assert complete_actions(typed(), "no such") == []
    assert complete_spec_fields(typed(kind="mci.vm"), "") == []
    assert complete_arguments(typed(action="suspend"), "") == []


def test_kinds_actions_and_fields_come_from_the_server(cli: CliServer) -> None:
    assert complete_kinds(typed(cli), "rec") == ["dns.record"]
    assert complete_actions(typed(cli), "tou") == ["touch"]
    assert complete_spec_fields(typed(cli, kind="record"), "t") == ["type=", "ttl=", "tags="]
    assert complete_spec_fields(typed(cli, kind="dns.record/www"), "login.") == ["login.user=", "login.password="]
    assert complete_spec_fields(typed(cli, kind="record"), "type=") == ["type=A", "type=TXT"]
    assert complete_spec_fields(typed(cli, kind="no such"), "") == []
    assert complete_arguments(typed(cli, action="change"), "") == ["ttl=", "token="]
    cli.json("create", "record", "www", "--set", "address=192.0.2.1", "--wait")
    assert complete_arguments(typed(cli, action="change", objects=["record/www"]), "to") == ["token="]
    assert complete_arguments(typed(cli, action="touch", objects=["www"]), "") == []


def test_objects_come_from_the_server_with_the_kind_as_it_was_typed(cli: CliServer) -> None:
    cli.built("web-1")
    cli.built("db-1")
    assert complete_objects(typed(cli), "we") == ["web-1"]
    assert complete_objects(typed(cli), "pump/db") == ["pump/db-1"]


def test_where_nobody_can_be_asked_nothing_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SERVER", "DATA", "TOKEN"):
        monkeypatch.delenv(f"STATEWARD_{name}", raising=False)
    assert complete_objects(typed(), "we") == []


def test_a_server_that_is_dead_or_silent_is_no_reason_to_wait_or_to_print(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stateward.client.shared_options.COMPLETION_LIMIT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert complete_objects(typed(server=url, data=None), "we") == []
    assert complete_objects(typed(server=url, data=None), "we") == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_offer_the_same(cli: CliServer, shell: str) -> None:
    cli.built("web-1")
    typed = {"_TYPER_COMPLETE_ARGS": "stateward get we", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    to = {"STATEWARD_SERVER": cli.url, "STATEWARD_TOKEN": cli.token, "STATEWARD_NAMESPACE": cli.ns}
    environ = {**os.environ, **to, **typed, "_STATEWARD_COMPLETE": f"complete_{shell}"}
    program = Path(sys.executable).with_name("stateward")
    done = subprocess.run([program], env=environ, capture_output=True, text=True, check=False)
    assert "web-1" in done.stdout
    assert done.stderr == ""
