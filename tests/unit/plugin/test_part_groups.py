"""Parts of a group of entry points: those that can be used, the faults of the others, and those of a checkout."""

from pathlib import Path
from typing import Any

import pytest

from stateward.errors import BadInput
from stateward.plugin.entry_points import _parts_of_checkout, find_parts, load_group
from tests.installed_package import install_package

GROUP = "acme.parts"


def text(declared: Any) -> str:
    if not isinstance(declared, str):
        raise BadInput("part", type(declared).__name__, "a text")
    return declared


def test_faulty_parts_do_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "good, bad = 'x', 1"
    parts = {"good": "acme_parts:good", "bad": "acme_parts:bad", "lost": "acme_parts:lost"}
    install_package(tmp_path, monkeypatch, "acme_parts", source, {GROUP: parts})
    group = load_group(GROUP, text)
    assert group.usable == {"good": "x"}
    assert set(group.faults) == {"bad", "lost"}
    assert "part: 'int' must be a text" in str(group.faults["bad"])


def test_of_two_parts_with_one_name_the_first_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package, value in (("acme_b", "'b'"), ("acme_a", "'a'")):
        install_package(tmp_path, monkeypatch, package, f"part = {value}", {GROUP: {"part": f"{package}:part"}})
    group = load_group(GROUP, text)
    assert (group.usable, group.faults) == ({"part": "a"}, {})


@pytest.mark.parametrize("kind", ["domains", "drivers", "lease_resources", "lease_filters"])
def test_a_checkout_whose_metadata_is_older_than_a_group_has_its_parts(kind: str) -> None:
    group = f"stateward.{kind}"
    own = {(one.name, one.value) for one in find_parts(group) if one.is_own}
    assert own
    assert own == {(one.name, one.value) for one in _parts_of_checkout(group)}
