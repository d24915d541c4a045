"""The `stateward` command; its exit codes are in docs/cli.md."""

import sys
from typing import Annotated

import typer

from stateward import __version__
from stateward.cli import edge, leases, mci, ovc, systems
from stateward.cli.commands import lifecycle, register, serve, serve_folder
from stateward.cli.commands.agent import agent
from stateward.cli.commands.backup import backup, restore
from stateward.cli.commands.migrate import migrate
from stateward.client.errors import exit_code_for
from stateward.client.output import clean, err, print_json
from stateward.errors import StatewardError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"obj": serve_folder},
)
app.add_typer(lifecycle.app, name="lifecycle")
app.command()(lifecycle.validate)
app.command()(migrate)
for command in (serve.serve, serve.worker, serve.config, agent, backup, restore):
    app.command()(command)
register(app)
app.add_typer(mci.app, name="mci", rich_help_panel="Domains")
app.add_typer(edge.app, name="edge", rich_help_panel="Domains")
app.add_typer(ovc.app, name="ovc", rich_help_panel="Domains")
app.add_typer(leases.app, name="lease", rich_help_panel="Domains")
app.add_typer(systems.app, name="system", rich_help_panel="Domains")


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
    """Run the command line; an error of ours becomes one clear line, or JSON where JSON was asked for."""
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
