"""What commands print, for people and for scripts: text in colour, or JSON and nothing else with `--json`."""

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


def out() -> Console:
    """Return the console for results; a name such as `a:b:c` is told as it is, and not with a picture in it."""
    return Console(emoji=False)


def err() -> Console:
    """Return the console for complaints."""
    return Console(stderr=True, emoji=False)


def plain_table(*titles: str) -> Table:
    """Return an empty table without lines, in the look of all our listings."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in titles:
        table.add_column(title)
    return table


def print_json(value: Any) -> None:  # noqa: ANN401 - whatever msgspec can encode
    """Print a value as indented JSON."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")
