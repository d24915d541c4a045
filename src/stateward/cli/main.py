"""The `stateward` command; its exit codes are in docs/cli.md."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stateward import __version__
from stateward.cli.lazy_commands import LazyCommand, LazyGroup
from stateward.client.errors import exit_code_for
from stateward.client.output import clean, err, print_json
from stateward.errors import StatewardError

if TYPE_CHECKING:
    import httpx

OBJECTS, DOMAINS = "Objects and operations", "Domains"


def _own(panel: str | None, module: str, *names: str) -> Iterator[LazyCommand]:
    """Yield commands of one module; `name=attribute` where the function has another name than the command."""
    for name, _, attribute in (one.partition("=") for one in names):
        yield LazyCommand(name, f"stateward.cli.commands.{module}:{attribute or name}", panel)


COMMANDS = (
    *_own(None, "lifecycle", "validate"),
    *_own(None, "migrate", "migrate"),
    *_own(None, "serve", "serve", "worker", "config"),
    *_own(None, "agent", "agent"),
    *_own(None, "backup", "backup", "restore"),
    *_own(None, "new", "new=app"),
    *_own(OBJECTS, "get", "get", "list=list_"),
    *_own(OBJECTS, "kind_list", "kinds"),
    *_own(OBJECTS, "create", "create", "delete"),
    *_own(OBJECTS, "do", "do", "plan"),
    *_own(OBJECTS, "wait", "operation", "wait", "cancel", "signal"),
    *_own(OBJECTS, "watch", "watch", "history"),
    *_own(OBJECTS, "why", "why"),
    *_own(OBJECTS, "maintenance", "heal", "prune", "forget"),
    *_own(OBJECTS, "top", "top"),
    *_own(None, "lifecycle", "lifecycle=app"),
    *_own(None, "plugins", "plugins"),
    *_own(OBJECTS, "token", "token=app"),
    *_own(OBJECTS, "lanes", "lanes=app"),
)


class Commands(LazyGroup):
    """All commands of the program: its own, and those of the domains."""

    def lazy_commands(self) -> Iterator[LazyCommand]:
        """Yield the commands in the order of `--help`."""
        yield from COMMANDS
        from stateward.plugin.registry import installed  # most commands do not need the domains' tables

        for name, target in installed().command_lines.items():
            yield LazyCommand(name, target, DOMAINS)


@contextmanager
def serve_folder(path: Path) -> "Iterator[httpx.BaseTransport]":
    """Run the server's application on a data folder, in this process; yields the transport to it."""
    from stateward.cli.in_process import in_process  # only a folder without a server needs the whole server

    with in_process(path) as transport:
        yield transport


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"obj": serve_folder},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Stateward keeps cloud objects in known states."""


def run() -> None:
    """Run the command line; an error of Stateward becomes one line, or JSON with `--json`."""
    try:
        app()
    except StatewardError as error:
        if "--json" in sys.argv:
            print_json({"error": type(error).__name__, "message": str(error), **error.facts()})
        else:
            err().print(clean(f"error: {error}"), style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(exit_code_for(error))
    except typer.Abort:
        sys.exit(130)
