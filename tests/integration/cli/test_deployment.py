"""The deployment as a whole: token, lanes, heal, top."""

import json

import pytest

from tests.integration.cli.house import House


def issued(house: House, *words: str) -> str:
    text: str = house.json("token", "create", "somebody", *words)["token"]
    return text


def test_a_tokens_text_is_shown_once_and_alone_on_standard_output(house: House) -> None:
    done = house.run("token", "create", "ann", "--role", "operator", "--ns", house.ns)
    assert done.exit_code == 0, done.output
    text = done.stdout.strip()
    assert text.startswith("sw_")
    assert "not shown again" in done.stderr
    listed = house.run("token", "list").stdout
    assert "ann" in listed
    assert text not in listed
    assert house.run("list", token=text).exit_code == 0


def test_a_revoked_token_opens_nothing_and_exits_with_4(house: House) -> None:
    made = house.json("token", "create", "bob", "--ns", "*", "--days", "1")
    assert made["info"]["expires"] is not None
    assert house.run("list", token=made["token"]).exit_code == 0
    assert house.run("token", "revoke", made["info"]["id"]).exit_code == 0
    done = house.run("list", token=made["token"])
    assert done.exit_code == 4
    assert "not valid" in done.stderr
    assert house.run("token", "revoke", made["info"]["id"]).exit_code == 1
    assert house.run("token", "revoke", "nobody").exit_code == 2


def test_what_a_role_or_namespace_does_not_allow_exits_with_4(house: House) -> None:
    house.built("p1")
    viewer = issued(house, "--ns", house.ns)
    assert house.run("get", "p1", token=viewer).exit_code == 0
    for words in (["do", "tune", "p1"], ["list", "-n", "other"], ["token", "list"], ["heal"], ["lanes"]):
        done = house.run(*words, token=viewer)
        assert done.exit_code == 4, done.output
        assert "right" in done.stderr


def test_no_token_at_all_exits_with_4(house: House) -> None:
    done = house.run("list", token="")
    assert done.exit_code == 4
    assert "a token is needed" in done.stderr


@pytest.mark.parametrize("role", ["king", ""])
def test_an_unknown_role_exits_with_2(house: House, role: str) -> None:
    assert house.run("token", "create", "x", "--ns", "a", "--role", role).exit_code == 2


def test_lanes_are_limited_and_shown(house: House) -> None:
    lane = f"{house.ns}/eu"
    done = house.run("lanes", "set", lane, "--capacity", "3")
    assert done.exit_code == 0, done.output
    assert "up to 3 at once" in done.stdout
    assert house.run("lanes", "group", house.ns, "--lanes", "2").exit_code == 0
    found = house.json("lanes", "show")
    assert [(one["grp"], one["capacity"]) for one in found["lanes"] if one["lane"] == lane] == [(house.ns, 3)]
    assert {"grp": house.ns, "lanes": 2} in found["groups"]
    assert lane in house.run("lanes", "show").stdout


def test_a_lane_keeps_its_group_when_its_limit_changes(house: House) -> None:
    lane = f"{house.ns}/eu"
    house.run("lanes", "set", lane, "--capacity", "3", "--group", "mine")
    assert house.json("lanes", "set", lane, "--capacity", "4")["grp"] == "mine"


def test_a_limit_of_a_lane_or_group_that_is_not_in_use_is_set_with_a_notice(house: House) -> None:
    group, lane = f"{house.ns}-typo", f"{house.ns}-typo/eu"
    limits = {f"group {group}": ("group", group, "--lanes", "2"), f"lane {lane}": ("set", lane, "--capacity", "0")}
    for what, words in limits.items():
        first, again = house.run("lanes", *words), house.run("lanes", *words)
        assert (first.exit_code, again.exit_code) == (0, 0), first.output
        assert f"Notice: no {what} is in use now" in first.stderr
        assert again.stderr == "", "it is known by its limit"


def test_lanes_alone_shows_them(house: House) -> None:
    done = house.run("lanes")
    assert done.exit_code == 0, done.output
    assert "capacity" in done.stdout
    assert house.json("lanes")["lanes"]


def test_options_before_a_subcommand_are_not_silently_passed_over(house: House) -> None:
    done = house.run("lanes", "--server", "http://elsewhere", "show")
    assert done.exit_code == 2
    assert "after" in done.stderr


@pytest.mark.parametrize("words", [["set", "a"], ["set", "a", "--capacity", "-1"], ["group", "a"], ["nonsense"]])
def test_a_limit_that_is_not_understood_exits_with_2(house: House, words: list[str]) -> None:
    assert house.run("lanes", *words).exit_code == 2


def test_heal_reports_what_it_did(house: House) -> None:
    assert house.json("heal") == {"freed": 0, "settled": 0}
    assert "0 put back" in house.run("heal").stdout
    assert house.run("heal", "--dry-run").stdout.strip() == "Nothing is stuck."
    assert house.json("heal", "--dry-run") == []


def test_top_shows_states_lanes_workers_and_the_newest_lines(house: House) -> None:
    house.built("p1")
    house.built("p2")
    house.routed("p2", capacity=0)
    house.run("do", "tune", "p2")
    shown = house.run("top", "--once").stdout
    assert "2 objects, 1 in transition, 0 operations running, 1 workers" in shown
    assert "idle 1  tuning 1" in shown
    assert f"{house.ns}/p2" in shown
    assert "p2 tune idle -> tuning by admin (the test)" in shown


def test_top_as_json_is_a_whole_frame(house: House) -> None:
    house.built("p1")
    frame = house.json("top", "--once")
    assert frame["namespaces"] == [{"ns": house.ns, "counts": {"test.pump": {"idle": 1}}}]
    assert [line["event"] for line in frame["lines"]] == ["build", "succeeded"]


def test_top_without_a_terminal_shows_one_frame(house: House) -> None:
    done = house.run("top", "--all-namespaces")
    assert done.exit_code == 0
    assert "objects" in done.stdout


def test_top_shows_a_viewer_what_the_token_opens(house: House) -> None:
    house.built("p1")
    viewer = issued(house, "--ns", house.ns)
    frame = json.loads(house.run("top", "--once", "--json", token=viewer).stdout)
    assert (frame["lanes"], frame["workers"]) == (None, None)
    assert [one["ns"] for one in frame["namespaces"]] == [house.ns]
