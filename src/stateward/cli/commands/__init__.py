"""The commands that talk to a server, or to a local data folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from stateward.cli.commands import create, do, get, heal, lanes, prune, token, top, wait, watch, why

if TYPE_CHECKING:
    import httpx

PANEL = "Objects and operations"


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for name, command in (
        ("get", get.get),
        ("list", get.list_),
        ("create", create.create),
        ("delete", create.delete),
        ("do", do.do),
        ("plan", do.plan),
        ("wait", wait.wait),
        ("cancel", wait.cancel),
        ("watch", watch.watch),
        ("history", watch.history),
        ("why", why.why),
        ("heal", heal.heal),
        ("prune", prune.prune),
        ("top", top.top),
    ):
        app.command(name, rich_help_panel=PANEL)(command)
    app.add_typer(token.app, name="token", rich_help_panel=PANEL)
    app.add_typer(lanes.app, name="lanes", rich_help_panel=PANEL)


@contextmanager
def serve_folder(path: Path) -> "Iterator[httpx.BaseTransport]":
    """Run the server's application on a data folder, in this process; yields the transport to it."""
    from stateward.cli.in_process import in_process  # only a folder without a server needs the whole server

    with in_process(path) as transport:
        yield transport
