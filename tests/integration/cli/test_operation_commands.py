"""Operations: listed, followed, and their progress as lines."""

from stateward.engine import Permanent
from tests.integration.cli.cli_server import CliServer


def test_operations_are_listed_newest_first_with_filters(cli: CliServer) -> None:
    cli.built("pump-1")
    cli.json("do", "tune", "pump-1", "--wait")
    assert [one["action"] for one in cli.json("operations")] == ["tune", "build"]
    assert [one["action"] for one in cli.json("operations", "list", "--action", "build")] == ["build"]
    assert cli.json("operations", "list", "--object", "pump-1", "--status", "failed") == []
    assert "tune" in cli.run("operations", "list", "-A").stdout
    done = cli.run("operations", "list", "--status", "runing")
    assert (done.exit_code, "did you mean 'running'" in done.stderr) == (2, True)


def test_an_operation_is_followed_to_its_end(cli: CliServer) -> None:
    cli.built("pump-1")
    begun = cli.json("do", "tune", "pump-1")[0]["operation"]["id"]
    done = cli.run("operations", "follow", begun)
    assert (done.exit_code, "succeeded" in done.stdout) == (0, True)
    lines = cli.run("logs", "-f", begun).stdout.splitlines()
    assert any("attempt" in line and "done" in line for line in lines), lines
    assert len(lines) == len(cli.run("logs", begun, "--json").stdout.splitlines())
    assert cli.run("logs", "no-such-operation").exit_code == 2
    assert cli.json("operations", "show", begun)["operation"]["id"] == begun
    assert "attempt" in cli.run("operations", "show", begun).stdout


def test_describe_tells_the_state_the_work_the_actions_and_the_events(cli: CliServer) -> None:
    cli.built("pump-1", colour="red")
    done = cli.run("describe", "pump/pump-1")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    for part in ("object", "state", "since", "now", "last", "labels", "Actions", "Operations", "Events"):
        assert any(line.startswith(part) for line in lines), part
    assert any(line.startswith("tune") for line in lines)
    assert "colour=red" in done.stdout
    page = cli.json("describe", "pump-1")
    assert list(page) == ["object", "waiting", "allowed", "operations", "events", "children"]


def test_describe_does_not_offer_to_create_what_exists(cli: CliServer) -> None:
    cli.json("create", "record", "www", "--set", "address=192.0.2.1", "--wait")
    shown = cli.run("describe", "www").stdout
    actions = shown[shown.index("Actions") : shown.index("Operations")]
    assert "create" not in actions


def test_an_operation_that_fails_is_followed_with_exit_code_1(cli: CliServer) -> None:
    cli.built("pump-1")
    cli.do(lambda: cli.plant.fail("tune", Permanent("no power")))
    begun = cli.json("do", "tune", "pump-1")[0]["operation"]["id"]
    done = cli.run("operations", "follow", begun)
    assert (done.exit_code, "no power" in done.stdout) == (1, True)
