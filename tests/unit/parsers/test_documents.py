"""YAML that is small and stands for much: refused before anything is expanded, by every reader."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from stateward.documents import DEEPEST, MOST, compose, load_all
from stateward.domains.mci.cli.fleet_file import read_fleet
from stateward.domains.systems.definition import read
from stateward.errors import StatewardError


def bomb(levels: int = 9, each: int = 10) -> str:
    """Return aliases to aliases: a text of a few hundred bytes that stands for each ** levels values."""
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * each)}]" for n in range(1, levels)]
    return "\n".join(lines)


BOMBS = {
    "lists": bomb(),
    "mappings": "a0: &a0 {x: y}\n" + "\n".join(f"a{n}: &a{n} {{p: *a{n - 1}, q: *a{n - 1}}}" for n in range(1, 30)),
    "keys": "a0: &a0 x\n" + "\n".join(f"a{n}: &a{n} {{? *a{n - 1} : *a{n - 1}}}" for n in range(1, 30)),
    "itself": "&a [*a, *a]",
    "its parent": "&a {b: &b [*a, *b]}",
}
READERS: dict[str, Callable[[str], Any]] = {
    "definition": read,
    "fleet": lambda text: read_fleet(text, "fleet.yaml"),
}


@pytest.fixture
def nothing_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where nodes are put together."""

    def compose_nodes(*_: object, **__: object) -> None:
        raise AssertionError("it was composed")

    monkeypatch.setattr(yaml, "compose", compose_nodes)
    monkeypatch.setattr(yaml, "compose_all", compose_nodes)


@pytest.mark.usefixtures("nothing_composed")
@pytest.mark.parametrize("what", BOMBS)
def test_what_expands_without_measure_is_refused_before_anything_is_composed(what: str) -> None:
    assert len(BOMBS[what]) < 1_000
    with pytest.raises(yaml.MarkedYAMLError, match=r"more than 100000 values|part of what it stands for"):
        compose(BOMBS[what])
    with pytest.raises(yaml.MarkedYAMLError, match=r"more than 100000 values|part of what it stands for"):
        load_all(BOMBS[what])


@pytest.mark.usefixtures("nothing_composed")
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("what", BOMBS)
def test_every_reader_refuses_it_with_its_own_error(reader: str, what: str) -> None:
    with pytest.raises(StatewardError):
        READERS[reader](BOMBS[what])


@pytest.mark.usefixtures("nothing_composed")
def test_many_values_without_aliases_are_refused_as_well() -> None:
    with pytest.raises(yaml.MarkedYAMLError, match="more than 100000 values"):
        compose("[" + "1," * MOST + "]")


def test_the_limits_are_exact() -> None:
    half = MOST // 2
    assert compose("[&a [" + "1," * (half - 2) + "], *a]") is not None  # twice half - 1 values, and the list itself
    with pytest.raises(yaml.MarkedYAMLError):
        compose("[&a [" + "1," * (half - 1) + "], *a]")
    assert compose("[" * DEEPEST + "]" * DEEPEST) is not None
    with pytest.raises(yaml.MarkedYAMLError, match="nested more than"):
        compose("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1))


def test_documents_are_plain_json() -> None:
    text = "a: [1, -2.5, 1e3, 007, yes, true, ~, null, '1', 2026-01-31, 1:30, 0x10]\n--- |\n  5\n---\n"
    numbers = [1, -2.5, 1000.0]
    texts = ["007", "yes", True, None, None, "1", "2026-01-31", "1:30", "0x10"]
    assert load_all(text) == [{"a": [*numbers, *texts]}, "5\n", None]
    assert load_all("") == []
    assert load_all("!!python/object:os.system {}") == [{}]  # no tag makes anything else of it
    assert load_all("a: &x {b: 1}\nc: *x") == [{"a": {"b": 1}, "c": {"b": 1}}]
    for wrong in (
        "<<: {a: 1}",
        "{a: 1, a: 2}",
        "? [1]\n: 2",
        "a: 1e999",
        f"a: {'9' * 5_000}",
    ):
        with pytest.raises(yaml.MarkedYAMLError):
            load_all(wrong)


def test_honest_aliases_are_read() -> None:
    text = "services: {a: &s {command: x, env: {K: v}}, b: *s}"
    services = read(text).services
    assert services["/a"] == services["/b"]
