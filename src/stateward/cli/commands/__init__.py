"""The commands that talk to a server, or to a local data folder."""

import typer

from stateward.cli.commands import doing, healing, lanes, making, objects, pruning, tokens, top, waiting, watching, why

PANEL = "Objects and operations"


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for name, command in (
        ("get", objects.get),
        ("list", objects.list_),
        ("create", making.create),
        ("delete", making.delete),
        ("do", doing.do),
        ("plan", doing.plan),
        ("wait", waiting.wait),
        ("cancel", waiting.cancel),
        ("watch", watching.watch),
        ("history", watching.history),
        ("why", why.why),
        ("heal", healing.heal),
        ("prune", pruning.prune),
        ("top", top.top),
    ):
        app.command(name, rich_help_panel=PANEL)(command)
    app.add_typer(tokens.app, name="token", rich_help_panel=PANEL)
    app.add_typer(lanes.app, name="lanes", rich_help_panel=PANEL)
