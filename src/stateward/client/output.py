"""What commands print, for people and for scripts: text in colour, or JSON and nothing else with `--json`."""

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
"""The exit code of a question answered with no, or of a check that found faults."""

BAD_USAGE = 2
"""The exit code of a call that could not be understood."""

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
    """Return the console for results; a name such as `a:b:c` is told as it is, and not with a picture in it."""
    return _Output(emoji=False)


def err() -> Console:
    """Return the console for complaints."""
    return Console(stderr=True, emoji=False)


def plain_table(*titles: str) -> Table:
    """Return an empty table without lines, in the look of all our listings; no cell is cut, however narrow it is."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def print_json(value: Any) -> None:  # noqa: ANN401 - whatever msgspec can encode
    """Print a value as indented JSON."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")


WIDE = 1000


def results() -> Console:
    """Return the console for results; where no terminal sets a width, a row is one line, for whoever searches it."""
    console = out()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDE
    return console


def clean(text: str) -> str:
    """Return a text without what a terminal would obey: whoever named an object must not move our cursor."""
    return "".join(one if one.isprintable() or one == "\n" else repr(one)[1:-1] for one in text)
