import re

import pytest
import typer
from typer.testing import CliRunner

from stateward.cli.lazy_commands import LazyGroup, imported_command
from stateward.cli.main import app


def help_of(*words: str) -> str:
    done = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    return done.stdout


def test_examples_stand_on_lines_of_their_own() -> None:
    shown = help_of("list")
    assert "\n    stateward list -A --sort -since -o wide\n" in shown
    assert "\n    stateward list --count --by kind,label.region\n" in shown


def test_options_of_all_commands_have_a_part_of_their_own_and_defaults_are_shown() -> None:
    shown = help_of("list")
    assert shown.index("\nOptions:\n") < shown.index("--limit NUMBER") < shown.index("\nWhere:\n  --server URL")
    assert "[default: 1000; x>=1]" in shown
    assert "[default: id]" in shown
    assert "[default: 8420]" in re.sub(r"\s+", " ", help_of("serve"))


def test_the_list_of_commands_has_those_of_the_program_and_of_the_domains() -> None:
    shown = help_of()
    for line in ("\nObjects and operations:\n  get ", "\nDomains:\n  mci ", "\n  system "):
        assert line in shown


def test_a_mistyped_command_is_answered_with_the_nearest_one() -> None:
    done = CliRunner().invoke(app, ["describ"])
    assert (done.exit_code, "Did you mean 'describe'" in done.stderr) == (2, True)


def every_parameter() -> list[tuple[str, str, str]]:
    """Return the command, the name and the help of each visible parameter."""
    found: list[tuple[str, str, str]] = []

    def walk(command: object, words: str) -> None:
        visible = (one for one in getattr(command, "params", ()) if not getattr(one, "hidden", False))
        found.extend((words, one.name, one.help or "") for one in visible)
        for name, part in getattr(command, "commands", {}).items():
            walk(part, f"{words} {name}")

    root = typer.main.get_command(app)
    assert isinstance(root, LazyGroup)
    for one in root.lazy_commands():
        walk(imported_command(one), one.name)
    return found


def test_every_parameter_has_a_help_text_of_one_sentence() -> None:
    lacking = [(command, name) for command, name, text in every_parameter() if not text or len(text) > 130]
    assert lacking == []


@pytest.mark.parametrize("word", ["so many", "so long", "whoever", "what is there"])
def test_help_texts_are_in_plain_words(word: str) -> None:
    assert [(command, name) for command, name, text in every_parameter() if word in text] == []
