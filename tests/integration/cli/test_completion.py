"""Completion in the shell, by calls of the completion functions."""

from types import SimpleNamespace

import pytest

from stateward.cli.commands.kind_options import complete_actions, complete_kinds
from stateward.client.shared_options import complete_objects
from tests.integration.cli.cli_server import CliServer


def test_kinds_and_actions_come_from_the_tables() -> None:
    assert complete_kinds("mci.v") == ["mci.vm", "mci.vnet"]
    assert "suspend" in complete_actions("sus")
    assert complete_actions("no such") == []


def test_objects_come_from_the_server_with_the_kind_as_it_was_typed(cli: CliServer) -> None:
    cli.built("web-1")
    cli.built("db-1")
    given = {"server": cli.url, "token": cli.token, "namespace": cli.ns}
    assert complete_objects(SimpleNamespace(params=given, obj=None), "we") == ["web-1"]  # type: ignore[arg-type]
    assert complete_objects(SimpleNamespace(params=given, obj=None), "pump/db") == ["pump/db-1"]  # type: ignore[arg-type]


def test_where_nobody_can_be_asked_nothing_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SERVER", "DATA", "TOKEN"):
        monkeypatch.delenv(f"STATEWARD_{name}", raising=False)
    assert complete_objects(SimpleNamespace(params={"data": "/nowhere"}, obj=None), "we") == []  # type: ignore[arg-type]
