"""Objects are shown: get, list."""

import asyncio
import json

import pytest

from stateward.access import Role
from tests.integration.cli.cli_server import CliServer
from tests.integration.engine.pump_kinds import PUMP


@pytest.fixture
def fleet(cli: CliServer) -> CliServer:
    """A server with three pumps in different places and states."""
    cli.built("p1", region="eu", tier="web")
    cli.built("p2", region="us")
    cli.built("q3", parent="s1", region="eu")
    assert cli.run("do", "scrap", "p2", "--wait").exit_code == 0
    return cli


def names(listed: list[dict[str, object]]) -> list[object]:
    return [one["id"] for one in listed]


def test_get_shows_an_object_with_its_facts(fleet: CliServer) -> None:
    shown = fleet.run("get", "pump/p1").stdout
    assert "test.pump" in shown
    assert "idle" in shown
    assert "region=eu tier=web" in shown


def test_get_shows_the_operation_that_works_on_an_object(fleet: CliServer) -> None:
    fleet.do(fleet.plant.hold)
    asked = fleet.json("do", "tune", "p1")[0]["operation"]["id"]
    found = fleet.json("get", "p1")
    assert (found["object"]["state"], found["operation"]["id"]) == ("tuning", asked)
    shown = fleet.run("get", "p1").stdout
    assert "tune by admin (the test)" in shown
    assert asked in shown


def test_get_of_an_object_of_another_kind_is_refused(fleet: CliServer) -> None:
    done = fleet.run("get", "station/p1")
    assert done.exit_code == 2
    assert "p1 is of the kind test.pump" in done.stderr


def test_an_error_is_json_even_if_the_token_is_a_part_of_its_numbers(fleet: CliServer) -> None:
    assert fleet.json("list", "--token", "0", code=4)["status"] == 401


def test_get_of_an_unknown_object_exits_with_2_and_names_it(fleet: CliServer) -> None:
    done = fleet.run("get", "p9")
    assert done.exit_code == 2
    assert f"there is no object 'p9' in namespace '{fleet.ns}'" in done.stderr
    assert fleet.json("get", "p9", code=2)["status"] == 404
    assert "did you mean 'p1'?" in fleet.run("get", "pump/p1x").stderr
    assert "did you mean 'p1'?" in fleet.json("get", "pump/p1x", code=2)["detail"]


def test_objects_are_counted_by_the_server(fleet: CliServer) -> None:
    assert fleet.json("list", "--count", "--by", "label.region")["rows"] == [
        {"values": ["eu"], "count": 2},
        {"values": ["us"], "count": 1},
    ]
    shown = fleet.run("list", "--count", "-l", "region=eu").stdout.splitlines()
    assert [line.split() for line in shown] == [
        ["kind", "state", "count"],
        ["test.pump", "idle", "2"],
        ["all", "2"],
    ]
    refused = fleet.run("list", "--count", "--by", "colour")
    assert refused.exit_code == 2
    assert "label.NAME" in refused.stderr


def test_a_namespace_holds_its_own_objects(fleet: CliServer) -> None:
    fleet.ask(fleet.tokens.issue("x", Role.VIEWER, ["other"]))
    assert fleet.json("list", "-n", "other") == []
    empty = fleet.run("list", "-n", "other")
    assert (empty.exit_code, empty.stdout) == (0, "")
    assert "Namespace other has no objects. Objects are in " in empty.stderr
    assert f"{fleet.ns} (3)" in empty.stderr


def test_a_mistyped_name_is_an_error_with_the_nearest(fleet: CliServer) -> None:
    for words, nearest in (
        (["--state", "idel"], "did you mean 'idle'?"),
        (["-n", f"{fleet.ns}x"], f"did you mean '{fleet.ns}'?"),
        (["-l", "regoin=eu"], "did you mean 'region'?"),
        (["--kind", "test.pmup"], "did you mean 'test.pump'?"),
    ):
        done = fleet.run("list", *words)
        assert (done.exit_code, done.stdout) == (2, ""), words
        assert nearest in done.stderr, words


def test_a_list_without_matches_says_how_many_others_there_are(fleet: CliServer) -> None:
    done = fleet.run("list", "--state", "lost")
    assert (done.exit_code, done.stdout, done.stderr) == (
        0,
        "",
        f"No objects match: namespace {fleet.ns} has 3 others.\n",
    )


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], ["p1", "p2", "q3"]),
        (["--state", "idle"], ["p1", "q3"]),
        (["--state", "idle,scrapped", "--q", "p"], ["p1", "p2"]),
        (["--label", "region=eu", "--label", "tier=web"], ["p1"]),
        (["--kind", "pump", "--label", "region=us"], ["p2"]),
        (["--kind", "test.station"], []),
        (["--parent", "station/s1"], ["q3"]),
        (["--limit", "2"], ["p1", "p2"]),
    ],
)
def test_list_shows_what_fits(fleet: CliServer, words: list[str], found: list[str]) -> None:
    assert names(fleet.json("list", *words)) == found


def test_list_says_when_there_are_more(fleet: CliServer) -> None:
    assert "more than 2" in fleet.run("list", "--limit", "2").stderr
    assert "more" not in fleet.run("list", "--limit", "3").stderr
    assert "more" not in fleet.run("list", "--limit", "2", "--all").stderr


def test_list_of_a_kind_has_the_columns_of_the_kind(cli: CliServer) -> None:
    words = ("--set", "address=192.0.2.1", "--label", "team=shop", "--wait")
    cli.json("create", "record", "www", *words)
    titles, row = cli.run("list", "--kind", "record").stdout.splitlines()
    assert titles.split()[-2:] == ["address", "team"]
    assert row.split()[-2:] == ["192.0.2.1", "shop"]
    assert "192.0.2.1" not in cli.run("list").stdout


def test_list_follows_any_number_of_pages(cli: CliServer) -> None:
    async def many() -> None:
        names = [f"p{number:04}" for number in range(1234)]
        await asyncio.gather(*(cli.engine.create(cli.ns, one, PUMP.kind, "build") for one in names))

    cli.ask(many())
    assert len(cli.json("list", "--all")) == 1234
    assert len(cli.json("list")) == 1000


@pytest.mark.parametrize(
    "words", [["--kind", "pomp"], ["--label", "region"], ["--state", "idle,,"], ["--limit", "0"], ["--parent", "/"]]
)
def test_a_listing_that_is_not_understood_exits_with_2(fleet: CliServer, words: list[str]) -> None:
    done = fleet.run("list", *words)
    assert done.exit_code == 2
    assert done.stderr


def test_what_a_terminal_would_obey_is_not_passed_on(cli: CliServer) -> None:
    cli.ask(cli.engine.create(cli.ns, "p1", PUMP.kind, "build", labels={"x": "\x1b[2J\x07"}))
    assert "\x1b" not in cli.run("list").stdout
    assert "\x1b" not in cli.run("get", "p1").stdout


@pytest.mark.parametrize("name", ["", "a/b"])
def test_what_cannot_be_a_namespace_is_told_as_that(cli: CliServer, name: str) -> None:
    told = cli.json("list", "-n", name, code=2)
    assert (told["field"], told["value"]) == ("namespace", name)


def test_a_list_has_the_formats_and_the_order_that_are_asked_for(cli: CliServer) -> None:
    cli.built("a", region="eu")
    cli.built("b", region="as")
    assert cli.run("list", "-o", "name", "--sort", "-id").stdout.split() == ["test.pump/b", "test.pump/a"]
    assert cli.run("list", "-o", "jsonpath=[*].id", "--sort", "label.region").stdout.split() == ["b", "a"]
    assert cli.run("list", "-o", "yaml").stdout.startswith("- ns: ")
    assert "version" in cli.run("list", "-o", "wide").stdout
    assert "did you mean 'since'" in cli.run("list", "--sort", "sinc").stderr


def test_options_may_stand_before_the_command(cli: CliServer) -> None:
    cli.built("a")
    for words in (("--json", "list"), ("-o", "json", "list"), ("--output=json", "list"), ("list", "--json")):
        assert json.loads(cli.run(*words).stdout)[0]["id"] == "a"
    assert cli.run("-n", "no-such", "--json", "list").exit_code == 2
    assert cli.run("--json").exit_code == 2


def test_all_namespaces_are_listed_and_counted_together(cli: CliServer) -> None:
    cli.built("a")
    first, cli.ns = cli.ns, f"{cli.ns}-2"
    cli.built("a")
    both = {(one["ns"], one["id"]) for one in cli.json("list", "-A", "--all")}
    assert {(first, "a"), (cli.ns, "a")} <= both
    counts = cli.json("list", "-A", "--count", "--by", "kind")
    assert counts["by"] == ["namespace", "kind"]
    assert {"values": [cli.ns, "test.pump"], "count": 1} in counts["rows"]
