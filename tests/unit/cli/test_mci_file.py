import json
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as some

from stateward.domains.mci.cli.fleet_file import BadFile, read_fleet
from stateward.domains.mci.fleet_fields import GROUP, HEAD

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("fleet*.yaml"))
GOOD = """
name: shop
label: {team: a, cost: 007}
policy: refine
groups:
  - name: web
    size: 3
    spec: aws+ap-northeast-2+t3.nano
    image: ubuntu22.04
    disk: 30
postCommand:
  command: echo hello
  minutes: 2
"""


def test_short_names_become_those_of_the_wire() -> None:
    assert read_fleet(GOOD, "fleet.yaml") == {
        "name": "shop",
        "label": {"team": "a", "cost": "007"},
        "policyOnPartialFailure": "refine",
        "subGroups": [
            {
                "name": "web",
                "subGroupSize": 3,
                "specId": "aws+ap-northeast-2+t3.nano",
                "imageId": "ubuntu22.04",
                "rootDiskSize": 30,
            }
        ],
        "postCommand": {"command": ["echo hello"], "timeoutMinutes": 2},
    }


def test_the_key_and_the_user_of_vms_are_named_in_short_or_as_on_the_wire() -> None:
    text = "publicKey: ssh-ed25519 AAAA\nname: a\ngroups: [{spec: s, image: i, key: mine, user: bob}]"
    body = read_fleet(text, "fleet.yaml")
    assert body["publicKey"] == "ssh-ed25519 AAAA"
    assert body["subGroups"] == [{"specId": "s", "imageId": "i", "sshKeyId": "mine", "vmUserName": "bob"}]
    assert read_fleet(json.dumps(body), "body.json") == body


@pytest.mark.parametrize("field", ["publicKey: {0}", "groups: [{{spec: s, image: i, key: {0}}}]"])
def test_a_private_key_in_a_field_for_a_public_one_is_refused(field: str) -> None:
    with pytest.raises(BadFile, match="must not be a private key") as refused:
        read_fleet("name: a\n" + field.format('"-----BEGIN RSA PRIVATE KEY-----\\nhidden"'), "fleet.yaml")
    assert "hidden" not in str(refused.value)


def test_the_body_of_a_request_is_a_fleet_file_too() -> None:
    body = read_fleet(GOOD, "fleet.yaml")
    assert read_fleet(json.dumps(body), "body.json") == body


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_the_examples_can_be_read(file: Path) -> None:
    assert read_fleet(file.read_text("utf-8"), file.name)["subGroups"]


@pytest.mark.parametrize(
    ("old", "new", "line", "path", "words"),
    [
        ("size: 3", "size: many", 7, "groups.0.size", "whole number"),
        ("size: 3", "size: 0", 7, "groups.0.size", "whole number"),
        ("size: 3", "size: [3]", 7, "groups.0.size", "whole number"),
        ("size: 3", "sise: 3", 7, "groups.0.sise", "did you mean 'size'?"),
        ("size: 3", "size: 3\n    subGroupSize: 4", 8, "groups.0.subGroupSize", "twice"),
        ("    spec: aws+ap-northeast-2+t3.nano\n", "", 6, "groups.0.spec", "must be given"),
        ("name: shop", "nome: shop", 2, "nome", "did you mean 'name'?"),
        ("name: shop\n", "", 2, "name", "must be given"),
        ("name: shop", "name:", 2, "name", "a text"),
        ("name: shop", "name: {a: b}", 2, "name", "a text"),
        ("policy: refine", "policy: maybe", 4, "policy", "continue, rollback, refine"),
        ("label: {team: a, cost: 007}", "label: [a]", 3, "label", "fields with values"),
        ("label: {team: a, cost: 007}", "label: {[a]: b}", 3, "label", "plain name"),
        ("echo hello", "{}", 12, "postCommand.command", "a text"),
        ("name: shop", "name: 'shop", 13, "", "must be YAML"),
        ("name: shop", "name: *shop", 2, "", "must be YAML"),
        ("name: shop", "name: shop\n--- \nname: other", 3, "", "must be YAML"),
    ],
)
def test_what_is_wrong_is_named_with_its_line_and_field(old: str, new: str, line: int, path: str, words: str) -> None:
    assert old in GOOD
    with pytest.raises(BadFile) as error:
        read_fleet(GOOD.replace(old, new), "fleet.yaml")
    assert error.value.path == path
    assert words in str(error.value)
    if path:
        assert f"fleet.yaml, line {line}, {path}: " in str(error.value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "[]", "shop", "groups: []\nname: x", "{a: &a [*a]}", "\x00"])
def test_what_is_no_fleet_is_refused(text: str) -> None:
    with pytest.raises(BadFile):
        read_fleet(text, "fleet.yaml")


@given(some.recursive(some.none() | some.text() | some.integers(), lambda parts: some.lists(parts) | some.dictionaries(
    some.sampled_from([*HEAD, *GROUP]) | some.text(), parts)))  # fmt: skip
def test_whatever_stands_in_a_file_is_read_or_refused(value: object) -> None:
    with suppress(BadFile):
        assert read_fleet(yaml.safe_dump(value), "fleet.yaml")["subGroups"]
