"""Parts of a group of entry points: those that can be used, the faults of the others; those that domains bring."""

from pathlib import Path
from typing import Any

import pytest

from stateward.drivers.simulated import SimulatedCloud
from stateward.errors import BadInput, UnknownName
from stateward.lifecycle import GONE, MINUTE, NEW, STABLE, TRANSITIONAL, USER, State, action, declare
from stateward.plugin import DomainPlugin, DomainRuntime, Kind, ProcessContext
from stateward.plugin.domain import MissingPart, part_file
from stateward.plugin.driver_factory import DriverFactory
from stateward.plugin.entry_points import FoundPart, load_group
from stateward.plugin.registry import InstalledDomain, Plugins
from tests.installed_package import install_package

GROUP = "acme.parts"


class Lamp(State):
    MAKING = "making", TRANSITIONAL
    ON = "on", STABLE
    GOING = "going", TRANSITIONAL


LAMP = declare(
    "acme.lamp",
    Lamp,
    [
        action(NEW, "make", USER, Lamp.MAKING, Lamp.ON, Lamp.ON, MINUTE),
        action(Lamp.ON, "delete", USER, Lamp.GOING, GONE, Lamp.ON, MINUTE),
    ],
    USER,
)
CONTEXTS: list[ProcessContext] = []


def recording_context(context: ProcessContext) -> DomainRuntime:
    CONTEXTS.append(context)
    return DomainRuntime([Kind(LAMP)])


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


def test_a_domain_brings_parts_beside_those_of_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "own, brought = 'x', 'y'"
    install_package(tmp_path, monkeypatch, "acme_more", source, {GROUP: {"own": "acme_more:own"}})
    more = [FoundPart("brought", "acme_more:brought", "acme 1"), FoundPart("own", "none:none")]
    group = load_group(GROUP, text, more)
    assert group.usable == {"brought": "y", "own": "x"}


def test_a_domain_brings_a_driver(tmp_path: Path) -> None:
    place = {"stateward.drivers": {"acme": "stateward.drivers.builtin_drivers:simulated"}}
    plugin = DomainPlugin("acme", lifecycles=[LAMP], create=recording_context, parts=place)
    Plugins((InstalledDomain(plugin, FoundPart("acme", "here:domain", "acme 1")),)).create_runtimes(
        ProcessContext(tmp_path)
    )
    (context,) = CONTEXTS
    assert [one.name for one in context.parts["stateward.drivers"]] == ["acme"]
    factory = DriverFactory(tmp_path, SimulatedCloud, more=context.parts["stateward.drivers"])
    assert "acme" in factory.names


def test_a_group_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"'stateward.driver'.*did you mean 'stateward.drivers'"):
        DomainPlugin("acme", lifecycles=[LAMP], parts={"stateward.driver": {}})


def test_a_file_beside_a_module_needs_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_package(tmp_path, monkeypatch, "acme_single", "", {})
    with pytest.raises(MissingPart, match="acme_single is a module in one file: a file beside it needs a package"):
        part_file("console", "acme_single:console.js")
