"""Questions before large and final actions at a terminal, and deletion protection."""

import pytest

from tests.integration.cli.cli_server import CliServer
from tests.integration.cli.test_terminal import terminal


@pytest.fixture
def pumps(cli: CliServer) -> CliServer:
    for name, region in (("p1", "eu"), ("p2", "us"), ("p3", "eu")):
        cli.built(name, region=region)
    return cli


def state(cli: CliServer, name: str) -> object:
    return cli.json("get", name)["object"]["state"]


def test_a_removal_is_asked_for_at_a_terminal(pumps: CliServer) -> None:
    with terminal(pumps, "delete", "p1", "--wait") as shell:
        shell.until(f"Scrap pump: {pumps.ns}/p1? [y/N]")
        assert "1 test.pump: idle to scrapped" in shell.shown
        assert "this cannot be undone" in shell.shown
        assert shell.answer("n") == 1
        assert "Nothing was changed" in shell.shown
    assert state(pumps, "p1") == "idle"
    with terminal(pumps, "delete", "p1", "--wait") as shell:
        shell.until("[y/N]")
        assert shell.answer("y") == 0
    assert state(pumps, "p1") == "scrapped"


def test_an_action_on_many_objects_is_asked_for_unless_yes_is_said(pumps: CliServer) -> None:
    with terminal(pumps, "do", "tune", "--selector", "kind=pump") as shell:
        shell.until(f"Tune 3 pumps in {pumps.ns}? [y/N]")
        assert shell.answer("") == 1
    with terminal(pumps, "do", "tune", "--selector", "kind=pump", "--yes", "--wait") as shell:
        assert shell.end() == 0
        assert "[y/N]" not in shell.shown
    with terminal(pumps, "do", "tune", "p1", "--wait") as shell:
        assert shell.end() == 0
        assert "[y/N]" not in shell.shown


def test_nothing_is_asked_without_a_terminal(pumps: CliServer) -> None:
    done = pumps.run("do", "scrap", "p1", "p2", "--wait")
    assert (done.exit_code, "[y/N]" in done.output) == (0, False)


def test_protected_objects_are_not_removed_before_the_flag_is_lifted(pumps: CliServer) -> None:
    done = pumps.run("protect", "pump/p1", "p2", "--reason", "the audit needs it")
    assert (done.exit_code, done.stdout.count("protected: the audit needs it")) == (0, 2)
    refused = pumps.run("delete", "p1", "--force")
    assert refused.exit_code == 1
    lifting = f"(the audit needs it); `stateward unprotect p1 -n {pumps.ns}` lifts the protection"
    assert lifting in " ".join(refused.stderr.split())
    assert pumps.run("unprotect", "p1", "-n", pumps.ns).exit_code == 0
    assert pumps.run("delete", "p1").exit_code == 0


def test_a_protected_namespace_is_lifted_by_the_command_that_the_refusal_names(pumps: CliServer) -> None:
    assert pumps.run("protect", "--namespace-flag").stdout.split() == ["namespace", f"{pumps.ns}:", "protected"]
    refused = pumps.json("do", "scrap", "p1", code=1)[0]["problem"]
    assert refused["protection"]["command"] == f"stateward unprotect --namespace-flag -n {pumps.ns}"
    assert pumps.run(*refused["protection"]["command"].split()[1:]).exit_code == 0
    assert pumps.run("do", "scrap", "p1").exit_code == 0


@pytest.mark.parametrize("words", [("protect",), ("protect", "p1", "--namespace-flag"), ("unprotect", "nothing")])
def test_a_wrong_command_changes_nothing(pumps: CliServer, words: tuple[str, ...]) -> None:
    assert pumps.run(*words).exit_code == 2
    assert pumps.json("get", "p1")["object"]["protected"] == ""


def test_plan_says_what_a_removal_would_do(pumps: CliServer) -> None:
    assert "this cannot be undone" in pumps.run("plan", "scrap", "p1").stdout
    assert "undone" not in pumps.run("plan", "tune", "p1").stdout
