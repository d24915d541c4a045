"""Fields of specs and arguments on the command line: --set, files, and what kinds tells of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.cli_server import CliServer

CREATE = ("create", "dns.record", "www", "--set", "address=192.0.2.1")
FILE = """
kind: dns.record
id: www
spec: {address: 192.0.2.1, tags: [x, no, 2026-01-31], ttl: 5}
labels: {team: shop}
---
kind: record
id: txt
spec:
  address: "1"
  type: TXT
"""


def test_fields_of_a_spec_have_the_types_of_the_kind(cli: CliServer) -> None:
    made = cli.json(
        *CREATE,
        *("--set", "tags=1,y", "--set", "ttl=60", "--set", "login.user=5", "--set", "login.password=hush-hush"),
    )[0]
    assert made["object"]["spec"] == {
        "address": "192.0.2.1",
        "type": "A",
        "ttl": 60,
        "tags": ["1", "y"],
        "login": {"user": "5", "password": "***"},
    }


def test_fields_are_added_to_a_spec_from_a_file(cli: CliServer, tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(
        '{"address": "192.0.2.9", "ttl": 7, "login": {"user": "a", "password": "hush"}}'
    )
    made = cli.json(*CREATE, "--spec", str(tmp_path / "spec.json"), "--set", "login.user=b")[0]["object"]["spec"]
    assert (made["address"], made["ttl"], made["login"]["user"]) == ("192.0.2.1", 7, "b")


def test_a_kind_without_types_takes_json_or_text(cli: CliServer) -> None:
    words = ("--action", "build", "--set", "size=3", "--set", "where.name=yard", "--set", "tags=[1]")
    made = cli.json("create", "test.pump", "p1", *words)[0]
    assert made["object"]["spec"] == {"size": 3, "where": {"name": "yard"}, "tags": [1]}


def test_arguments_have_the_types_of_the_action(cli: CliServer) -> None:
    cli.json(*CREATE, "--wait")
    done = cli.json("do", "change", "www", "--set", "ttl=5", "--set", "token=12345", "--wait")[0]
    assert done["operation"]["args"] == {"ttl": 5, "token": "***"}
    chosen = cli.json("do", "change", "--selector", "kind=record", "--set", "ttl=6", "--arg", "token=t", "--wait")[0]
    assert chosen["operation"]["args"] == {"ttl": 6, "token": "***"}
    assert cli.json("plan", "change", "www", "--set", "ttl=1")[0]["would"] == "accept"
    assert cli.json("plan", "change", "www", "--set", "ttl=0", code=1)[0]["problem"]["field"] == "args.ttl"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((*CREATE, "--set", "ttl=soon"), "--set ttl: 'soon' must be a whole number"),
        ((*CREATE, "--set", "ttl=007"), "--set ttl: '007' must be a whole number"),
        ((*CREATE, "--set", "tll=5"), "unknown field for --set 'tll'; did you mean 'ttl'?"),
        ((*CREATE, "--set", "type=B"), "--set type: 'B' must be one of A, TXT"),
        ((*CREATE, "--set", "login.pasword=x"), "did you mean 'login.password'?"),
        ((*CREATE, "--set", "ttl.x=1"), "unknown field for --set 'ttl.x'"),
        ((*CREATE, "--set", "login=x"), "must be an object: give its fields as NAME.FIELD=VALUE"),
        ((*CREATE, "--set", "ttl=5", "--set", "ttl=6"), "ttl is there twice"),
        ((*CREATE, "--set", "ttl"), "--set: 'ttl' must be of the form key=value"),
        ((*CREATE, "--set", ".=1"), "--set"),
        ((*CREATE, "--set", "ttl=0"), "spec.ttl: must be at least 1"),
        (("create", "dns.record", "www"), "spec.address: must be given"),
        (("create", "dns.record", "www", "-f", "x.yaml"), "--file: 'x.yaml' must be given alone"),
        (("create", "-f", "/nowhere/at/all"), "--file: '/nowhere/at/all' must be a file that can be read"),
        (("create",), "KIND"),
    ],
)
def test_a_field_that_does_not_fit_is_told_with_its_option(cli: CliServer, words: tuple[str, ...], why: str) -> None:
    done = cli.run(*words)
    assert done.exit_code == 2, done.output
    assert why in done.stderr
    assert cli.json("list") == []


def test_a_secret_that_does_not_fit_is_not_repeated(cli: CliServer) -> None:
    done = cli.run(*CREATE, "--set", "login.user=a", "--set", "login.password=h!s")
    assert done.exit_code == 2
    assert "spec.login.password: must be at least 4 characters long" in done.stderr
    assert "h!s" not in done.output


def test_an_action_without_arguments_takes_none(cli: CliServer) -> None:
    cli.json(*CREATE, "--wait")
    done = cli.run("do", "touch", "www", "--set", "x=1")
    assert (done.exit_code, "touch of dns.record takes no arguments" in done.stderr) == (2, True)


def test_a_file_describes_several_objects(cli: CliServer, tmp_path: Path) -> None:
    (tmp_path / "records.yaml").write_text(FILE)
    made = cli.json("create", "-f", str(tmp_path / "records.yaml"))
    assert [one["id"] for one in made] == ["www", "txt"]
    assert made[0]["object"]["spec"]["tags"] == ["x", "no", "2026-01-31"]
    assert made[0]["object"]["labels"] == {"team": "shop"}
    assert (made[1]["object"]["spec"]["type"], made[1]["object"]["spec"]["address"]) == ("TXT", "1")


def test_a_file_may_come_from_standard_input_and_be_json(cli: CliServer) -> None:
    done = cli.run("create", "-f", "-", stdin=json.dumps({"kind": "record", "id": "a", "spec": {"address": "1.1.1.1"}}))
    assert done.exit_code == 0, done.output


def test_a_file_may_be_a_list_of_objects(cli: CliServer) -> None:
    objects = [{"kind": "record", "id": name, "spec": {"address": "1.1.1.1"}} for name in ("a", "b")]
    done = cli.run("create", "-f", "-", stdin=json.dumps(objects))
    assert done.exit_code == 0, done.output
    assert [one["id"] for one in cli.json("list")] == ["a", "b"]


def test_one_object_of_a_file_that_is_refused_does_not_keep_the_others_from_it(cli: CliServer) -> None:
    text = FILE.replace("ttl: 5", "ttl: 0")
    done = cli.run("create", "-f", "-", stdin=text)
    assert done.exit_code == 2
    assert "spec.ttl: must be at least 1" in done.stdout
    assert [one["id"] for one in cli.json("list")] == ["txt"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (FILE.replace("id: txt", "ids: txt"), "unknown field in -, line 8: 'ids'; did you mean 'id'?"),
        (FILE.replace("kind: record", "kind: recrod"), "did you mean"),
        (FILE.replace("id: txt", "id: 5"), "-, line 8: id: 5 must be a text"),
        ("- a", "-, line 1"),
        ("a: b\nc: [", "line 3"),
        ("", "at least one object"),
        ("a: 1\na: 2", "a field must have a plain name of its own"),
        ("kind: dns.record\nid: x\nspec: {n: 1e999}", "a number is out of range"),
        ("x: &a [1, 1, 1]\ny: &b [" + "*a, " * 300 + "]\nz: [" + "*b, " * 300 + "]", "values"),
    ],
)
def test_a_file_that_cannot_be_read_creates_nothing(cli: CliServer, text: str, why: str) -> None:
    done = cli.run("create", "-f", "-", stdin=text)
    assert done.exit_code == 2, done.output
    assert why in done.stderr
    assert cli.json("list") == []


def test_kinds_tells_fields_with_types_defaults_and_descriptions(cli: CliServer) -> None:
    told = " ".join(cli.run("kinds", "record").stdout.split())
    for part in (
        "address string, matching",
        "required the IPv4 address",
        "type A | TXT A",
        "ttl integer, at least 1 300 seconds",
        "tags list of string []",
        "login.password string, length at least 4, secret required",
        "change (stateward do change --set)",
        "check (stateward do check --set) field type default resolver string required",
        "create, delete, touch: take no arguments",
    ):
        assert part in told, told
    assert "test.pump" in cli.run("kinds").stdout
    assert "spec: any JSON" in cli.run("kinds", "pump").stdout
    found: dict[str, Any] = cli.json("kinds", "record")
    assert found["spec"]["properties"]["ttl"]["default"] == 300
    assert cli.run("kinds", "recrod").exit_code == 2
