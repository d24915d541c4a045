"""Output of commands: coloured text for people, or JSON and nothing else with `--json`."""

import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import msgspec
import typer

if TYPE_CHECKING:  # drawing is imported when something is drawn: with `--json` and in `--help`, nothing is
    from rich.console import Console
    from rich.table import Table

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]

NO = 1
"""Exit code: the answer is no, or a check found faults."""

BAD_USAGE = 2
"""Exit code: the command is not valid."""


def out() -> "Console":
    """Return the console for results, without emoji: a name such as `a:b:c` is printed as it is."""
    from stateward.client.result_console import ResultConsole

    return ResultConsole(emoji=False)


def err() -> "Console":
    """Return the console for errors and notes."""
    from rich.console import Console

    return Console(stderr=True, emoji=False)


def plain_table(*titles: str) -> "Table":
    """Return an empty table without borders, as all listings have it; long cells are wrapped, not cut."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def write_data(text: str) -> None:
    """Write a result for a program, in UTF-8 whatever the locale is: JSON and YAML have no other encoding."""
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(encoding="utf-8")
    write_program_output(text, sys.stdout)


def print_json(value: Any) -> None:  # noqa: ANN401 - whatever msgspec can encode
    """Print a value as indented JSON."""
    write_data(msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")


WIDE = 1000


def results() -> "Console":
    """Return the console for results; without a terminal each row is one line, so that `grep` finds whole rows."""
    console = out()
    if not sys.stdout.isatty():
        console.width = WIDE
    return console


def write_program_output(text: str, stream: TextIO) -> None:
    """Write text of others: as it is into a pipe or a file, and without control characters on a terminal."""
    stream.write("\t".join(map(clean, text.split("\t"))) if stream.isatty() else text)
    stream.flush()


def clean(text: str) -> str:
    """Return a text with control characters escaped: the name of an object must not move the cursor."""
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)
