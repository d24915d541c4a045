"""What commands print, for people and for scripts: text in colour, or JSON and nothing else with `--json`."""

import sys
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]

NO = 1
"""The exit code of a question answered with no, or of a check that found faults."""

BAD_USAGE = 2
"""The exit code of a call that could not be understood."""


def out() -> Console:
    """Return the console for results."""
    return Console(soft_wrap=False)


def err() -> Console:
    """Return the console for complaints."""
    return Console(stderr=True)


def print_json(value: Any) -> None:  # noqa: ANN401 - whatever msgspec can encode
    """Print a value as indented JSON."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")
