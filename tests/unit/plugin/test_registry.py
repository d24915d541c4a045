"""How plug-ins are found, chosen and refused. Packages are folders with the metadata that an installed one has."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stateward.errors import BadInput, UnknownName
from stateward.plugin import ProcessContext
from stateward.plugin.entry_points import PluginFault
from stateward.plugin.registry import Plugins, find_plugins

BUILT_IN = ("mci", "edge", "ovc", "leases", "systems")
LAMP = """
from msgspec import Struct
from stateward.lifecycle import GONE, MINUTE, NEW, STABLE, TRANSITIONAL, USER, State, action, declare
from stateward.plugin import DomainPlugin, Kind

class Lamp(State):
    MAKING = "making", TRANSITIONAL
    ON = "on", STABLE
    GOING = "going", TRANSITIONAL

class Settings(Struct, frozen=True):
    bright: bool = False

def kind(name):
    return Kind(declare(name, Lamp, [
        action(NEW, "make", USER, Lamp.MAKING, Lamp.ON, Lamp.ON, MINUTE),
        action(Lamp.ON, "delete", USER, Lamp.GOING, GONE, Lamp.ON, MINUTE),
    ], USER))

domain = """

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return a function that installs a package with a plug-in: its entry point, and the expression that makes it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def write(name: str, made: str, *, package: str | None = None, body: str = LAMP) -> None:
        module = package or f"acme_{name}"
        (tmp_path / f"{module}.py").write_text(body + made)
        metadata = tmp_path / f"{module}-1.5.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.5\n")
        (metadata / "entry_points.txt").write_text(f"[stateward.domains]\n{name} = {module}:domain\n")

    known = set(sys.modules)
    yield write
    for module in set(sys.modules) - known:
        if Path(getattr(sys.modules[module], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[module]


def plugins(domain: str = "", only: str = "") -> Plugins:
    return find_plugins.__wrapped__(domain, only)


def test_the_built_in_domains_are_found_like_all_others() -> None:
    found = plugins()
    assert found.names == BUILT_IN
    assert found.faults == ()
    assert {one.part.package.partition(" ")[0] for one in found.domains} == {"stateward"}


def test_an_installed_plugin_is_found_after_the_built_in_ones(install: Install) -> None:
    install("lamp", 'DomainPlugin("lamp", [kind("lamp.lamp")], settings=Settings)')
    found = plugins()
    assert found.names == (*BUILT_IN, "lamp")
    assert found.domains[-1].version == "1.5"
    assert found.lifecycle_of("lamp.lamp").kind == "lamp.lamp"
    assert found.sections["lamp"].__struct_fields__ == ("bright",)


def test_only_the_chosen_ones_are_loaded(install: Install) -> None:
    install("lamp", 'DomainPlugin("lamp", [kind("lamp.lamp")])')
    install("broken", "1 / 0")
    found = plugins(only="mci, lamp")
    assert (found.names, found.faults) == (("mci", "lamp"), ())
    assert {"edge", "broken"} <= found.unchosen


def test_an_unknown_choice_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UnknownName, match=r"'mcy'.*did you mean 'mci'"):
        plugins(only="mcy")


def test_a_named_domain_is_found_in_the_working_folder(install: Install, tmp_path: Path) -> None:
    (tmp_path / "by_hand.py").write_text(f'{LAMP}DomainPlugin("lamp", [kind("lamp.lamp")])')
    found = plugins("by_hand:domain", "mci")
    assert found.names == ("mci", "lamp")
    assert found.domains[-1].part.place == "by_hand:domain"


def test_a_named_domain_replaces_the_installed_one(install: Install, tmp_path: Path) -> None:
    install("lamp", 'DomainPlugin("lamp", [kind("lamp.old")])')
    (tmp_path / "newer.py").write_text(f'{LAMP}DomainPlugin("lamp", [kind("lamp.new")])')
    assert [one.kind for one in plugins("newer:domain", "mci").lifecycles][-1] == "lamp.new"


def lamp(more: str, kinds: str = '[kind("lamp.a")]') -> str:
    return f'DomainPlugin("lamp", {kinds}{", " if more else ""}{more})'


ROW = 'action(NEW, "make", USER, Lamp.ON, Lamp.ON, Lamp.ON, MINUTE)'
BROKEN = [
    ("1 / 0", r"ZeroDivisionError: division by zero \(.*acme_lamp.py, line 20\)"),
    ("(", r"syntax error in .*acme_lamp.py, line 20"),
    ("3", "'int' must be a DomainPlugin"),
    ('DomainPlugin("torch", [kind("torch.a")])', "name: 'torch' must be the name of its entry point, lamp"),
    ('DomainPlugin("La mp", [kind("lamp.a")])', "name: 'La mp' must be 2 to 31 lower-case letters"),
    ('DomainPlugin("stateward", [kind("stateward.a")])', "name: 'stateward' must be"),
    (lamp("", '[kind("light.a")]'), r"kinds: 'light.a' must be a name of its own that begins with lamp\."),
    (lamp("", '[kind("lamp.a"), kind("lamp.a")]'), "kinds: 'lamp.a' must be a name of its own"),
    (lamp("", "[]"), "kinds: must be given: the domain lamp has none"),
    (lamp("", f'[Kind(declare("lamp.a", Lamp, [{ROW}], USER))]'), r"not transitional in row .*acme_lamp.py, line 20"),
    (
        lamp('settings=type("Wish", (Struct,), {"__annotations__": {"size": int}})'),
        "'size' must be a setting with a def",
    ),
    (lamp('requires=">=9"'), "requires: '>=9' must be a range that holds this version"),
    (lamp('requires="nine"'), "requires: 'nine' must be a range of versions"),
    (lamp('console="lamp.js"'), "console: 'lamp.js' must be package:file"),
    (lamp('console="nowhere:a.js"'), "console: 'nowhere:a.js' cannot be loaded"),
    (lamp('docs="stateward:none.md"'), r"docs: .* there is no such file"),
    (lamp('cli="acme_lamp:app", command="mci"'), r"must be a name and a command that .* does not have"),
]


@pytest.mark.parametrize(("made", "told"), BROKEN)
def test_a_broken_plugin_is_told_with_its_reason_and_the_others_go_on(install: Install, made: str, told: str) -> None:
    install("lamp", made)
    found = plugins()
    assert found.names == BUILT_IN
    (fault,) = found.faults
    assert (fault.plugin, fault.place) == ("lamp", "acme_lamp:domain of acme_lamp 1.5")
    assert re.search(told, str(fault))


@pytest.mark.parametrize(("made", "told"), BROKEN)
def test_a_broken_plugin_that_was_asked_for_is_an_error(install: Install, made: str, told: str) -> None:
    install("lamp", made)
    with pytest.raises(PluginFault, match=told):
        plugins(only="mci,lamp")


def test_two_packages_with_one_name_are_told(install: Install) -> None:
    install("lamp", 'DomainPlugin("lamp", [kind("lamp.a")])', package="acme_one")
    install("lamp", 'DomainPlugin("lamp", [kind("lamp.b")])', package="acme_two")
    found = plugins()
    assert [one.kind for one in found.lifecycles][-1] == "lamp.a"
    (fault,) = found.faults
    assert "another package has a plug-in of this name: acme_one:domain" in str(fault)


@pytest.mark.parametrize("place", ["acme_lamp", "acme_lamp:", ":domain", "../x:domain", "a b:c", "a:b:c", "os;x:y"])
def test_a_place_that_is_none_is_refused(install: Install, place: str) -> None:
    with pytest.raises(BadInput, match=r"domain: .* must be module:attribute, such as acme_lamp:domain"):
        plugins(place)


def test_a_module_that_is_not_there_is_told() -> None:
    with pytest.raises(PluginFault, match=r"plug-in no_such:domain .* ModuleNotFoundError: No module named 'no_such'"):
        plugins("no_such:domain")


def test_a_domain_that_cannot_be_created_does_not_show_its_secret_settings(install: Install, tmp_path: Path) -> None:
    made = 'DomainPlugin("lamp", lifecycles=[kind("lamp.a").lifecycle], settings=Keyed, create=fails)'
    install("lamp", made, body=KEYED)
    found = plugins(only="mci,lamp")
    settings = found.sections["lamp"](key="s3cret-key")
    with pytest.raises(PluginFault, match=r"RuntimeError: no use for Keyed\(key='\*\*\*'\)") as raised:
        found.create_runtimes(ProcessContext(tmp_path, settings={"lamp": settings}))
    assert "s3cret" not in str(raised.value)


KEYED = (
    LAMP.removesuffix("domain = ")
    + """
from typing import Annotated
from stateward.plugin import about

class Keyed(Struct, frozen=True):
    key: Annotated[str, about("a key", secret=True)] = ""

def fails(context):
    raise RuntimeError(f"no use for {context.settings['lamp']}")

domain = """
)
