"""Commands of the deployment: token, lanes, heal, top."""

import json

import pytest

from tests.integration.cli.cli_server import CliServer


def issued(cli: CliServer, *words: str) -> str:
    text: str = cli.json("token", "create", "somebody", *words)["token"]
    return text


def test_a_tokens_text_is_shown_once_and_alone_on_standard_output(cli: CliServer) -> None:
    done = cli.run("token", "create", "ann", "--role", "operator", "--ns", cli.ns)
    assert done.exit_code == 0, done.output
    text = done.stdout.strip()
    assert text.startswith("sw_")
    assert "shown only once" in done.stderr
    listed = cli.run("token", "list").stdout
    assert "ann" in listed
    assert text not in listed
    assert cli.run("list", token=text).exit_code == 0


def test_a_revoked_token_opens_nothing_and_exits_with_4(cli: CliServer) -> None:
    cli.built("p1")
    made = cli.json("token", "create", "bob", "--ns", "*", "--days", "1")
    assert made["info"]["expires"] is not None
    assert cli.run("list", token=made["token"]).exit_code == 0
    assert cli.run("token", "revoke", made["info"]["id"]).exit_code == 0
    done = cli.run("list", token=made["token"])
    assert done.exit_code == 4
    assert "not valid" in done.stderr
    assert cli.run("token", "revoke", made["info"]["id"]).exit_code == 1
    assert cli.run("token", "revoke", "nobody").exit_code == 2


def test_what_a_role_or_namespace_does_not_allow_exits_with_4(cli: CliServer) -> None:
    cli.built("p1")
    viewer = issued(cli, "--ns", cli.ns)
    assert cli.run("get", "p1", token=viewer).exit_code == 0
    for words in (["do", "tune", "p1"], ["list", "-n", "other"], ["token", "list"], ["heal"], ["lanes"]):
        done = cli.run(*words, token=viewer)
        assert done.exit_code == 4, done.output
        assert "right" in done.stderr


def test_no_token_at_all_exits_with_4(cli: CliServer) -> None:
    done = cli.run("list", token="")
    assert done.exit_code == 4
    assert "a token is needed" in done.stderr


@pytest.mark.parametrize("role", ["king", ""])
def test_an_unknown_role_exits_with_2(cli: CliServer, role: str) -> None:
    assert cli.run("token", "create", "x", "--ns", "a", "--role", role).exit_code == 2


def test_lanes_are_limited_and_shown(cli: CliServer) -> None:
    lane = f"{cli.ns}/eu"
    done = cli.run("lanes", "set", lane, "--capacity", "3")
    assert done.exit_code == 0, done.output
    assert "limit is 3 at once" in done.stdout
    assert cli.run("lanes", "group", cli.ns, "--lanes", "2").exit_code == 0
    found = cli.json("lanes", "show")
    assert [(one["grp"], one["capacity"]) for one in found["lanes"] if one["lane"] == lane] == [(cli.ns, 3)]
    assert {"grp": cli.ns, "lanes": 2} in found["groups"]
    assert lane in cli.run("lanes", "show").stdout


def test_a_lane_keeps_its_group_when_its_limit_changes(cli: CliServer) -> None:
    lane = f"{cli.ns}/eu"
    cli.run("lanes", "set", lane, "--capacity", "3", "--group", "mine")
    assert cli.json("lanes", "set", lane, "--capacity", "4")["grp"] == "mine"


def test_a_limit_of_a_lane_or_group_that_is_not_in_use_is_set_with_a_notice(cli: CliServer) -> None:
    group, lane = f"{cli.ns}-typo", f"{cli.ns}-typo/eu"
    limits = {f"group {group}": ("group", group, "--lanes", "2"), f"lane {lane}": ("set", lane, "--capacity", "0")}
    for what, words in limits.items():
        first, again = cli.run("lanes", *words), cli.run("lanes", *words)
        assert (first.exit_code, again.exit_code) == (0, 0), first.output
        assert f"Notice: no {what} is in use now" in first.stderr
        assert again.stderr == "", "it is known by its limit"


def test_lanes_alone_shows_them(cli: CliServer) -> None:
    done = cli.run("lanes")
    assert done.exit_code == 0, done.output
    assert "capacity" in done.stdout
    assert cli.json("lanes")["lanes"]


def test_options_before_a_subcommand_are_not_silently_passed_over(cli: CliServer) -> None:
    done = cli.run("lanes", "--server", "http://elsewhere", "show")
    assert done.exit_code == 2
    assert "after" in done.stderr


@pytest.mark.parametrize("words", [["set", "a"], ["set", "a", "--capacity", "-1"], ["group", "a"], ["nonsense"]])
def test_a_limit_that_is_not_understood_exits_with_2(cli: CliServer, words: list[str]) -> None:
    assert cli.run("lanes", *words).exit_code == 2


def test_heal_reports_what_it_did(cli: CliServer) -> None:
    assert cli.json("heal") == {"freed": 0, "settled": 0}
    assert "0 requeued" in cli.run("heal").stdout
    assert cli.run("heal", "--dry-run").stderr.strip() == "Nothing is stuck."
    assert cli.json("heal", "--dry-run") == []


def test_top_shows_states_lanes_workers_and_the_newest_lines(cli: CliServer) -> None:
    cli.built("p1")
    cli.built("p2")
    cli.routed("p2", capacity=0)
    cli.run("do", "tune", "p2")
    shown = cli.run("top", "--once").stdout
    assert "2 objects, 1 in transition, 0 operations running, 1 worker" in shown
    assert "idle 1  tuning 1" in shown
    assert f"{cli.ns}/p2" in shown
    assert "p2 tune idle -> tuning by admin (the test)" in shown


def test_top_as_json_is_a_whole_frame(cli: CliServer) -> None:
    cli.built("p1")
    frame = cli.json("top", "--once")
    assert frame["namespaces"] == [{"ns": cli.ns, "counts": {"test.pump": {"idle": 1}}}]
    assert [line["event"] for line in frame["lines"]] == ["build", "succeeded"]


def test_top_without_a_terminal_shows_one_frame(cli: CliServer) -> None:
    done = cli.run("top", "--all-namespaces")
    assert done.exit_code == 0
    assert "objects" in done.stdout


def test_the_last_administrators_token_is_not_revoked_and_the_error_says_what_to_do(cli: CliServer) -> None:
    id_ = cli.token.split("_")[1]
    done = cli.run("token", "revoke", id_)
    assert done.exit_code == 1
    assert f"token {id_} is the last one that administers all namespaces" in " ".join(done.stderr.split())
    assert "stateward token create NAME --role admin --ns '*'" in " ".join(done.stderr.split())
    assert cli.run("token", "list").exit_code == 0


def test_top_shows_a_viewer_what_the_token_opens_and_asks_for_nothing_else(
    cli: CliServer, caplog: pytest.LogCaptureFixture
) -> None:
    cli.built("p1")
    viewer = issued(cli, "--ns", cli.ns)
    frame = json.loads(cli.run("top", "--once", "--json", token=viewer).stdout)
    assert [one.message for one in caplog.records if one.name == "stateward.audit"] == []
    assert (frame["lanes"], frame["workers"]) == (None, None)
    assert [one["ns"] for one in frame["namespaces"]] == [cli.ns]
