"""A lifecycle as tables, in Markdown and on a terminal."""

import re
from io import StringIO

from hypothesis import given
from rich.console import Console

from stateward.lifecycle import Lifecycle
from stateward.lifecycle.render import markdown, text
from tests.unit.lifecycle.render.samples import INSTANCE, MACHINE, any_lifecycle


def printed(lifecycle: Lifecycle, *, colours: bool = False) -> str:
    console = Console(file=StringIO(), width=160, force_terminal=colours, color_system="standard", legacy_windows=False)
    with console.capture() as capture:
        console.print(text(lifecycle))
    return capture.get()


def test_markdown_has_a_line_for_every_row() -> None:
    lines = markdown(MACHINE).splitlines()
    assert lines[0] == "| From | Action or event | By | Through | To | On error | Within | Needs |"
    assert "| Running | suspend | user | Suspending | Suspended | Failed | 5 min |  |" in lines
    assert "| any state not final | terminate | user | Terminating | Terminated | Failed | 5 min | force |" in lines
    assert "| Terminated | forget | clock |  | (gone) |  |  |  |" in lines
    assert len(lines) == 2 + len(MACHINE.rows) + 1 + 2 + len(MACHINE.declaration.states)


def test_markdown_says_where_work_goes_back_or_does_not_show() -> None:
    lines = markdown(INSTANCE).splitlines()
    assert "| Ready | update | user | Updating | back | back | 5 min |  |" in lines
    assert "| Ready | migrate | admin |  | stays |  | 5 min |  |" in lines


def test_markdown_has_a_line_for_every_state() -> None:
    assert "| Running | stable | up and reachable |" in markdown(MACHINE).splitlines()


@given(any_lifecycle)
def test_no_word_can_break_a_markdown_table(lifecycle: Lifecycle) -> None:
    rows, _, states = markdown(lifecycle).partition("\n\n")
    columns = [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in rows.split("\n")]
    assert columns == [9] * (2 + len(lifecycle.rows))
    assert [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in states.split("\n")[:-1]] == [4] * 7


def test_a_terminal_shows_each_state_in_the_colour_of_its_class() -> None:
    shown = printed(MACHINE, colours=True)
    assert "\x1b[32mRunning\x1b[0m" in shown
    assert "\x1b[33mSuspending\x1b[0m" in shown
    assert "\x1b[34mTerminated\x1b[0m" in shown


def test_a_terminal_shows_no_column_that_would_be_empty() -> None:
    assert "Needs" in printed(MACHINE)
    assert "Needs" not in printed(INSTANCE)


@given(any_lifecycle)
def test_any_words_can_be_printed(lifecycle: Lifecycle) -> None:
    assert lifecycle.kind in printed(lifecycle)
