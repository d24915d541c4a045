"""Output of commands: coloured text for people, or JSON and nothing else with `--json`."""

import os
import re
import sys
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]

NO = 1
"""Exit code: the answer is no, or a check found faults."""

BAD_USAGE = 2
"""Exit code: the command is not valid."""

PADDING = re.compile(r" +$", re.MULTILINE)


class _Output(Console):
    """A console that writes no trailing spaces into pipes and files: scripts that compare lines do not expect them."""

    def print(self, *objects: Any, **how: Any) -> None:  # noqa: ANN401 - as in the base class
        """Print to the terminal, or print lines without the padding of their last column."""
        if self.is_terminal:
            super().print(*objects, **how)
            return
        with self.capture() as captured:
            super().print(*objects, **how)
        try:
            self.file.write(PADDING.sub("", captured.get()))
            self.file.flush()
        except BrokenPipeError:
            self.on_broken_pipe()


def out() -> Console:
    """Return the console for results, without emoji: a name such as `a:b:c` is printed as it is."""
    return _Output(emoji=False)


def err() -> Console:
    """Return the console for errors and notes."""
    return Console(stderr=True, emoji=False)


def plain_table(*titles: str) -> Table:
    """Return an empty table without borders, as all listings have it; long cells are wrapped, not cut."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def print_json(value: Any) -> None:  # noqa: ANN401 - whatever msgspec can encode
    """Print a value as indented JSON."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")


WIDE = 1000


def results() -> Console:
    """Return the console for results; without a terminal each row is one line, so that `grep` finds whole rows."""
    console = out()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDE
    return console


def clean(text: str) -> str:
    """Return a text with control characters escaped: the name of an object must not move the cursor."""
    return "".join(one if one.isprintable() or one == "\n" else repr(one)[1:-1] for one in text)
