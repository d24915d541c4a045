import re
from pathlib import Path

import pytest

from stateward.domains.mci.cli import app, connection_commands
from stateward.domains.mci.cli.commands import Action
from stateward.domains.mci.cli.fleet_file import POLICIES
from stateward.domains.mci.deployment_records import DEFAULT_LIMIT, LIMITS
from stateward.domains.mci.fleet_fields import GROUP, HEAD
from stateward.domains.mci.lifecycle import VM, VmState
from stateward.domains.mci.service import GROUP_ACTIONS
from stateward.lifecycle import USER, Move, decide

PAGE = (Path(__file__).parents[3] / "docs" / "mci.md").read_text("utf-8")


def names(typer_app: object) -> list[str]:
    found = getattr(typer_app, "registered_commands", [])
    return [str(one.name or one.callback.__name__) for one in found]


@pytest.mark.parametrize("name", names(app) + [f"connection {name}" for name in names(connection_commands.app)])
def test_every_command_is_documented(name: str) -> None:
    assert re.search(rf"^\|.*`mci {name}[ `]", PAGE, re.MULTILINE)


@pytest.mark.parametrize("action", Action)
def test_every_action_is_documented(action: Action) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| `mci do"))
    assert re.search(rf"\b{action}\b", row)


def test_the_limits_are_those_that_hold() -> None:
    for name, limit in {**LIMITS, "any other": DEFAULT_LIMIT}.items():
        assert f"\n| {name} | {limit.regions} | {limit.vms} |\n" in PAGE


def test_the_matrix_is_that_of_the_table() -> None:
    for state in VmState:
        row = next(line for line in PAGE.splitlines() if re.match(rf"\| ([A-Za-z, ]+, )?{state}(,[^|]*)? \|", line))
        said = [cell.strip() == "yes" for cell in row.split("|")[2:-1]]
        assert said == [isinstance(decide(VM, state, action, USER), Move) for action in GROUP_ACTIONS], state


@pytest.mark.parametrize("word", [*POLICIES, *sorted(set(HEAD) | set(GROUP))])
def test_every_field_of_a_file_is_documented_by_its_short_name(word: str) -> None:
    wire = {name for name, on_wire in (*HEAD.items(), *GROUP.items()) if name == on_wire}
    assert f"`{word}`" in PAGE or word in wire
