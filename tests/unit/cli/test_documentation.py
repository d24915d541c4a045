import re
from pathlib import Path

import pytest
import typer

from stateward.cli.main import app
from stateward.client.errors import NOT_ALLOWED, UNREACHABLE
from stateward.client.output import BAD_USAGE, NO
from stateward.client.session import INTERRUPTED

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text("utf-8")


def commands() -> list[str]:
    whole = typer.main.get_command(app)
    assert isinstance(whole, typer.core.TyperGroup)
    return sorted(whole.list_commands(typer.Context(whole)))


@pytest.mark.parametrize("name", commands())
def test_every_command_is_documented(name: str) -> None:
    assert re.search(rf"^\| (`[^`]*`, )*`{name}[ `]", PAGE, re.MULTILINE)


@pytest.mark.parametrize("code", [0, NO, BAD_USAGE, UNREACHABLE, NOT_ALLOWED, INTERRUPTED])
def test_every_exit_code_is_documented(code: int) -> None:
    assert f"\n| {code} |" in PAGE
