"""Objects are created and removed: create, delete."""

import json
from pathlib import Path

import pytest

from tests.integration.cli.cli_server import CliServer


def test_create_takes_spec_labels_parent_facts_and_arguments(cli: CliServer, tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text('{"size": 3}')
    made = cli.json(
        *("create", "test.pump", "p1", "--action", "build", "--spec", str(tmp_path / "spec.json")),
        *("--label", "a=b", "--parent", "station/s1", "--arg", "speed=7", "--arg", "who=me", "--fact", "force"),
    )[0]
    assert (made["object"]["spec"], made["object"]["labels"]) == ({"size": 3}, {"a": "b"})
    assert (made["object"]["parent"], made["operation"]["args"]) == ("s1", {"speed": 7, "who": "me"})
    assert made["operation"]["facts"] == ["force"]


def test_create_reads_the_spec_from_standard_input(cli: CliServer) -> None:
    done = cli.run("create", "station", "s1", "--spec", "-", stdin='{"a": 1}')
    assert done.exit_code == 0, done.output
    assert cli.json("get", "s1")["object"]["spec"] == {"a": 1}


def test_kind_and_id_may_be_given_as_one_name(cli: CliServer) -> None:
    assert cli.json("create", "test.station/s1")[0]["object"]["id"] == "s1"


def test_what_is_made_at_once_is_done(cli: CliServer) -> None:
    done = cli.run("create", "station", "s1", "--wait")
    assert done.exit_code == 0
    assert "quiet" in done.stdout
    assert "done" in done.stdout


def test_creating_what_exists_is_refused_with_1(cli: CliServer) -> None:
    cli.built("p1")
    done = cli.run("create", "pump", "p1", "--action", "build")
    assert done.exit_code == 1
    assert f"exists in namespace '{cli.ns}' already, and is idle" in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["create", "test.pomp", "p1"], "did you mean"),
        (["create", "pump", "p 1"], "id"),
        (["create", "pump", "p1", "--spec", "/nowhere"], "--spec"),
        (["create", "pump", "p1", "--spec", "-"], "JSON"),
        (["create", "pump", "p1", "--label", "x"], "key=value"),
        (["create", "pump", "p1", "--arg", "=x"], "key=value"),
        (["create", "pump"], "KIND ID"),
        (["create"], "KIND"),
    ],
)
def test_what_cannot_be_made_is_said_clearly_with_2(cli: CliServer, words: list[str], why: str) -> None:
    done = cli.run(*words, stdin="no json")
    assert done.exit_code == 2, done.output
    assert why in done.stderr


def test_delete_does_what_ends_the_object_and_then_what_removes_it(cli: CliServer) -> None:
    cli.built("p1")
    assert cli.json("delete", "pump/p1", "--wait")[0]["operation"]["action"] == "scrap"
    assert cli.json("get", "p1")["object"]["state"] == "scrapped"
    assert cli.run("delete", "p1").exit_code == 0
    assert cli.run("get", "p1").exit_code == 2


def test_delete_with_force_goes_before_what_is_under_way(cli: CliServer) -> None:
    cli.built("p1")
    cli.do(cli.plant.hold)
    cli.json("do", "tune", "p1")
    refused = cli.run("delete", "p1")
    assert refused.exit_code == 2
    assert "scrap (needs force), to scrapped" in refused.stderr
    assert cli.json("delete", "p1", "--force")[0]["object"]["state"] == "scrapping"


def test_where_nothing_removes_an_object_that_is_said(cli: CliServer) -> None:
    cli.run("create", "station", "s1")
    done = cli.run("delete", "s1")
    assert done.exit_code == 2
    assert "no action removes s1 while it is quiet" in done.stderr


def test_an_error_as_json_carries_its_facts(cli: CliServer) -> None:
    cli.run("create", "station", "s1")
    told = json.loads(cli.run("delete", "s1", "--json").stdout)
    assert (told["error"], told["object"], told["state"], told["choices"]) == ("NotClear", "s1", "quiet", [])
