"""Requests for actions: do, plan, wait, cancel."""

import json

import pytest

from stateward.client.operation_waiter import IN_TURN
from stateward.engine import Permanent
from stateward.store.filters import Selector
from tests.integration.cli.cli_server import CliServer


@pytest.fixture
def pumps(cli: CliServer) -> CliServer:
    for name, region in (("p1", "eu"), ("p2", "us"), ("p3", "eu")):
        cli.built(name, region=region)
    return cli


def results(done: list[dict[str, dict[str, object]]]) -> dict[object, object]:
    return {one["id"]: (one["operation"] or {}).get("status") for one in done}


def test_an_action_is_accepted_and_its_operation_named(pumps: CliServer) -> None:
    done = pumps.run("do", "tune", "pump/p1")
    assert done.exit_code == 0, done.output
    assert "tuning" in done.stdout


def test_with_wait_the_end_is_told(pumps: CliServer) -> None:
    assert results(pumps.json("do", "tune", "p1", "p2", "--wait")) == {"p1": "succeeded", "p2": "succeeded"}
    shown = pumps.run("do", "tune", "p1", "--wait").stdout
    assert "succeeded" in shown
    assert "idle" in shown


def test_a_failure_exits_with_1_and_says_why(pumps: CliServer) -> None:
    pumps.do(lambda: pumps.plant.fail("pump", Permanent("it leaks")))
    done = pumps.run("do", "pump", "p1", "--wait")
    assert done.exit_code == 1
    assert "broken" in done.stdout
    assert "it leaks" in done.stdout


def test_a_second_action_is_refused_and_names_the_first(pumps: CliServer) -> None:
    pumps.do(pumps.plant.hold)
    first = pumps.json("do", "tune", "p1")[0]["operation"]["id"]
    done = pumps.run("do", "tune", "p1")
    assert done.exit_code == 1
    assert first in done.stdout
    refused = pumps.json("do", "tune", "p1", code=1)[0]["problem"]
    assert (refused["state"], refused["blocker"]["op"]) == ("tuning", first)


def test_what_one_object_refuses_the_others_still_do(pumps: CliServer) -> None:
    assert pumps.run("do", "scrap", "p2", "--wait").exit_code == 0
    done = pumps.json("do", "tune", "p1", "p2", "p9", "station/p3", "p3", "--wait", code=2)
    assert results(done) == {"p1": "succeeded", "p2": None, "p9": None, "p3": "succeeded"}


def test_a_selector_acts_on_all_that_fit_at_once(pumps: CliServer) -> None:
    done = pumps.json("do", "tune", "--selector", "kind=pump,state=idle,label=region=eu", "--wait")
    assert results(done) == {"p1": "succeeded", "p3": "succeeded"}


def test_more_operations_than_can_be_looked_at_one_by_one_are_all_seen_to_end(cli: CliServer) -> None:
    for number in range(3 * IN_TURN):
        cli.built(f"p{number:03}")
    for action in ("tune", "move"):  # the end of a hidden action, such as move, is not told by the journal
        done = results(cli.json("do", action, "--selector", "kind=pump", "--wait"))
        assert list(done.values()) == ["succeeded"] * 3 * IN_TURN


def test_what_a_selector_skips_is_shown_and_is_no_failure(pumps: CliServer) -> None:
    pumps.run("do", "scrap", "p2", "--wait")
    done = pumps.run("do", "tune", "--selector", "kind=pump", "--wait")
    assert done.exit_code == 0, done.output
    assert "skipped" in done.stdout
    skipped = [one for one in pumps.json("do", "tune", "--selector", "kind=pump") if one["skipped"]]
    assert [one["id"] for one in skipped] == ["p2"]


def test_a_selector_that_nothing_allows_is_refused_with_1(pumps: CliServer) -> None:
    done = pumps.run("do", "mend", "--selector", "kind=pump")
    assert done.exit_code == 1
    assert "is refused by all 3 members" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["do", "tune"],
        ["do", "tune", "p1", "--selector", "kind=pump"],
        ["do", "tune", "--selector", "kind=pomp"],
        ["do", "tune", "--selector", "colour=red"],
        ["do", "tune", "p1", "--arg", "x"],
        ["do", "tune", "p1", "--timeout", "-1"],
        ["plan", "tune"],
        ["plan", "tune", "station/p1"],
        ["wait", "nothing"],
        ["cancel", "nothing"],
        ["do"],
    ],
)
def test_what_is_not_understood_exits_with_2(pumps: CliServer, words: list[str]) -> None:
    done = pumps.run(*words)
    assert done.exit_code == 2, done.output
    assert done.stderr
    assert "''" not in done.stderr, "what was not given is not shown"


def test_force_and_facts_and_arguments_go_with_the_action(pumps: CliServer) -> None:
    pumps.do(pumps.plant.hold)
    pumps.run("do", "tune", "p1")
    done = pumps.json("do", "scrap", "p1", "--force", "--fact", "old", "--arg", "why=rust")[0]["operation"]
    assert (sorted(done["facts"]), done["args"]) == (["force", "old"], {"why": "rust"})


def test_plan_tells_what_would_happen_and_changes_nothing(pumps: CliServer) -> None:
    assert pumps.json("plan", "tune", "p1")[0]["would"] == "accept"
    assert pumps.json("get", "p1")["object"]["state"] == "idle"
    done = pumps.run("plan", "mend", "pump/p1", "p2")
    assert done.exit_code == 1
    assert "deny" in done.stdout
    assert "must be one of broken, lost" in done.stdout
    chosen = pumps.run("plan", "tune", "--selector", "kind=pump")
    assert (chosen.exit_code, "3 test.pump: idle to idle" in chosen.stdout) == (0, True), chosen.output
    assert pumps.json("plan", "tune", "--selector", "kind=pump")["total"] == 3
    refused = pumps.run("plan", "mend", "--selector", "kind=pump")
    assert (refused.exit_code, "3 refuse" in refused.stdout) == (1, True), refused.output
    assert pumps.json("get", "p1")["object"]["state"] == "idle"


def test_waiting_longer_than_allowed_exits_with_1_and_the_work_goes_on(pumps: CliServer) -> None:
    pumps.do(pumps.plant.hold)
    done = pumps.run("do", "tune", "p1", "--wait", "--timeout", "0.1")
    assert done.exit_code == 1
    assert "not ended after 0.1 s; it goes on" in done.stderr
    pumps.do(pumps.plant.release)
    assert results(pumps.json("wait", "p1")) in ({"p1": "succeeded"}, {"p1": None})


def test_wait_takes_an_operation_or_an_object(pumps: CliServer) -> None:
    op = pumps.json("do", "tune", "p1")[0]["operation"]["id"]
    assert results(pumps.json("wait", op)) == {"p1": "succeeded"}
    assert pumps.run("wait", "pump/p1").exit_code == 0
    assert "idle" in pumps.run("wait", "p1").stdout


def test_waiting_for_a_whole_tells_of_its_parts(pumps: CliServer) -> None:
    pumps.run("create", "station", "s1")
    engine = pumps.engine
    whole, each = engine.request(pumps.ns, "s1", "pump"), engine.request(pumps.ns, "", "pump")
    pumps.do(pumps.plant.hold)
    begun = pumps.ask(engine.group(whole, Selector(pumps.ns, kind="test.pump"), each))
    pumps.do(pumps.plant.release)
    assert begun.whole is not None
    done = results(pumps.json("wait", begun.whole.op.id))
    assert done == {"s1": "succeeded", "p1": "succeeded", "p2": "succeeded", "p3": "succeeded"}


def test_what_waits_is_cancelled_at_once_and_not_twice(pumps: CliServer) -> None:
    pumps.routed("p1", capacity=0)
    waiting = pumps.json("do", "tune", "p1")[0]["operation"]["id"]
    assert pumps.json("cancel", waiting)["status"] == "cancelled"
    again = pumps.run("cancel", waiting)
    assert again.exit_code == 1
    assert "cancelled already" in again.stderr


def test_a_signal_is_sent_with_its_payload(pumps: CliServer) -> None:
    pumps.routed("p1", capacity=0)
    waiting = pumps.json("do", "tune", "p1")[0]["operation"]["id"]
    assert pumps.json("signal", waiting, "go", "--payload", '{"litres": 3}')["id"] == waiting
    assert "signal: go" in pumps.run("history", "p1").stdout
    wrong = pumps.run("signal", waiting, "go", "--payload", "three")
    assert (wrong.exit_code, "must be JSON" in wrong.stderr) == (2, True)
    pumps.run("cancel", waiting)
    late = pumps.run("signal", waiting, "go")
    assert (late.exit_code, "cancelled already" in late.stderr) == (1, True)


def test_waiting_for_what_is_cancelled_exits_with_1(pumps: CliServer) -> None:
    pumps.do(pumps.plant.hold)
    running = pumps.json("do", "tune", "p1")[0]["operation"]["id"]
    assert pumps.run("cancel", running).exit_code == 0
    assert results(pumps.json("wait", running, code=1)) == {"p1": "cancelled"}


def test_a_hidden_action_is_seen_to_end_though_no_line_tells_of_it(pumps: CliServer) -> None:
    assert results(pumps.json("do", "move", "p1", "p2", "--wait")) == {"p1": "succeeded", "p2": "succeeded"}


def test_operation_shows_an_ended_one_with_the_traceback(cli: CliServer) -> None:
    cli.built("p1")
    cli.plant.fail("pump", ZeroDivisionError("oops"))
    op = json.loads(cli.run("do", "pump", "p1", "--wait", "--json").stdout)[0]["operation"]["id"]
    told = cli.run("operation", op).stdout
    assert "failed" in told
    assert "Traceback (most recent call last)" in told
    assert cli.json("operation", op)["error"] == "ZeroDivisionError: oops"
    assert cli.run("operation", "no-such").exit_code == 2
