"""The `stateward` command; its exit codes are in docs/cli.md."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stateward import __version__
from stateward.cli.lazy_commands import LazyCommand, LazyGroup
from stateward.client.errors import exit_code_for
from stateward.client.output import clean, err, print_json
from stateward.errors import StatewardError

if TYPE_CHECKING:
    from stateward.client.transport import Transport

OBJECTS, SIGN_IN, RUNNING, TABLES, DOMAINS = (
    "Objects and operations",
    "Sign-in and settings",
    "Servers and databases",
    "Lifecycles and plug-ins",
    "Domains",
)
C = "stateward.cli.commands"

COMMANDS = tuple(
    LazyCommand(name, f"{C}.{target}", about, panel)
    for panel, name, target, about in (
        (OBJECTS, "get", "get:get", "Show an object, and the operation that works on it."),
        (OBJECTS, "list", "get:list_", "List the objects of a namespace, or count them."),
        (OBJECTS, "describe", "describe_object:describe", "Show all about an object, as its page in the console does."),
        (OBJECTS, "kinds", "kind_list:kinds", "List the kinds of the server, or the fields and actions of one kind."),
        (OBJECTS, "create", "create:create", "Create an object, or all objects of a file."),
        (OBJECTS, "delete", "create:delete", "Remove an object, by the action of its kind that does so."),
        (
            OBJECTS,
            "apply",
            "apply:apply",
            "Make objects as files describe them: create what is missing, update what differs.",
        ),
        (OBJECTS, "diff", "apply:diff", "Show what `apply` would change."),
        (
            OBJECTS,
            "edit",
            "edit:edit",
            "Change the spec and the labels of an object in an editor: $VISUAL, $EDITOR, or else vi.",
        ),
        (OBJECTS, "do", "do:do", "Request an action on objects, or on all that match a selector."),
        (OBJECTS, "plan", "do:plan", "Tell whether an action would be accepted; nothing is changed."),
        (OBJECTS, "protect", "protection_commands:protect", "Protect objects or a namespace against deletion."),
        (
            OBJECTS,
            "unprotect",
            "protection_commands:unprotect",
            "Lift the deletion protection of objects or of a namespace.",
        ),
        (OBJECTS, "operations", "operation_commands:app", "List operations, show one, or follow it."),
        (OBJECTS, "logs", "operation_commands:logs", "Print the steps and the progress of an operation, line by line."),
        (OBJECTS, "operation", "wait:operation", "Show an operation: its steps, and its result or error."),
        (OBJECTS, "wait", "wait:wait", "Wait until an operation, or all work on an object, has ended."),
        (OBJECTS, "cancel", "wait:cancel", "Cancel an operation."),
        (OBJECTS, "signal", "wait:signal", "Send a signal to an operation that waits for one."),
        (OBJECTS, "watch", "watch:watch", "Show the journal as it grows, line by line, until Ctrl-C."),
        (OBJECTS, "history", "watch:history", "Show what has happened to an object, also to a removed one."),
        (OBJECTS, "why", "why:why", "Explain what an object waits for."),
        (OBJECTS, "top", "top:top", "Show states, lanes, workers and the newest journal entries, live."),
        (SIGN_IN, "login", "login:login", "Sign in to a server, and use it from now on."),
        (SIGN_IN, "logout", "login:logout", "Sign out: delete the stored token of a context."),
        (SIGN_IN, "config", "context_commands:app", "Choose the server of commands, or show the settings of servers."),
        (RUNNING, "serve", "serve:serve", "Serve the API and the console, with a worker in the same process."),
        (RUNNING, "worker", "serve:worker", "Run a worker without a server."),
        (RUNNING, "token", "token:app", "Create, list and revoke API tokens."),
        (RUNNING, "lanes", "lanes:app", "Show the lanes, or set their limits."),
        (RUNNING, "heal", "maintenance:heal", "Requeue the work of dead workers, and resolve overdue work, now."),
        (RUNNING, "prune", "maintenance:prune", "Delete the history of what ended long ago."),
        (RUNNING, "forget", "maintenance:forget", "Remove the records of objects whose plug-in is gone."),
        (RUNNING, "backup", "backup:backup", "Copy the embedded database into a file, while it is in use."),
        (RUNNING, "restore", "backup:restore", "Put a copy of the embedded database back."),
        (RUNNING, "migrate", "migrate:migrate", "Migrate a database to this version."),
        (TABLES, "lifecycle", "lifecycle:app", "Show, check and explain the declared lifecycles."),
        (
            TABLES,
            "validate",
            "lifecycle:validate",
            "Tell whether an object can get from one state to another, and how.",
        ),
        (TABLES, "plugins", "plugins:plugins", "List the domains of the server, and those that could not be loaded."),
        (TABLES, "new", "new:app", "Write the package of a domain of your own."),
    )
)


class Commands(LazyGroup):
    """All commands of the program: its own, and those of the domains."""

    def lazy_commands(self) -> Iterator[LazyCommand]:
        """Yield the commands in the order of `--help`."""
        yield from COMMANDS
        from stateward.plugin.registry import command_of, installed  # most commands do not need the plug-ins

        for plugin in installed():
            for name, (about, target) in plugin.programs.items():
                yield LazyCommand(name, target, about, RUNNING)
        for plugin in installed().with_commands:
            about = plugin.about or f"commands of the domain {plugin.name}"
            yield LazyCommand(command_of(plugin), plugin.cli, f"{about[0].upper()}{about[1:].rstrip('.')}.", DOMAINS)


@contextmanager
def serve_folder(path: Path) -> "Iterator[Transport]":
    """Run the server's application on a data folder, in this process; yields the transport to it."""
    from stateward.cli.in_process import in_process  # only a folder without a server needs the whole server

    with in_process(path) as transport:
        yield transport


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"obj": serve_folder, "max_content_width": 110},
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
    """Stateward keeps cloud objects in known states.

      stateward serve --demo                run a server with a demo fleet
      stateward list -n demo                list objects
      stateward describe mci/shop -n demo   show all about one
      stateward COMMAND --help              more about a command

    -n, -o, --json, --server, --data and --context may also stand before the command.
    """


def run() -> None:
    """Run the command line; an error of Stateward becomes one line, or JSON with `--json`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a locale without a letter prints a question mark for it
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
