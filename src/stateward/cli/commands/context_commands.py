"""`stateward config ...`: the settings of servers, and the contexts of the command line."""

import os
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct
from msgspec.structs import replace

from stateward.cli.commands.serve import Domain, File, Only, config
from stateward.client.contexts import (
    CONTEXT_VARIABLE,
    ClientContext,
    ClientFile,
    check_reference,
    client_file_path,
    read_client_file,
    write_client_file,
)
from stateward.client.output import Json, print_json, results
from stateward.client.session import Context, Data, Namespace, Server, Token, TokenFile
from stateward.client.target import Secret, TargetOptions, check_address, find_context
from stateward.client.url_paths import check_part
from stateward.data_folder import DEFAULT_FOLDER, PREFIX
from stateward.errors import BadInput
from stateward.naming import DEFAULT_NAMESPACE

app = typer.Typer(
    help="Choose the server of commands, or show the settings of servers.\n\n"
    "Without a command, it shows every setting of servers and workers: its value, its source and its meaning.\n\n"
    "  stateward config set-context shop --server https://stateward.example --token-ref file:shop.token\n"
    "  stateward config use-context shop\n"
    "  stateward config view"
)


def complete_contexts(incomplete: str) -> list[str]:
    """Offer the contexts of the client file."""
    try:
        return [name for name in _read().contexts if name.startswith(incomplete)]
    except Exception:  # the Tab key must not print a traceback
        return []


Name = Annotated[str, typer.Argument(metavar="NAME", help="The context.", autocompletion=complete_contexts)]
Reference = Annotated[
    str | None,
    typer.Option(
        "--token-ref", metavar="REFERENCE", help="Where its token is: file:PATH, env:NAME or command:COMMAND."
    ),
]
ServerOf = Annotated[str | None, typer.Option("--server", metavar="URL", help="The server's address.")]
NamespaceOf = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="The namespace of commands.")
]


@app.callback(invoke_without_command=True)
def show_settings(
    ctx: typer.Context, file: File = None, domain: Domain = None, only: Only = None, json: Json = False
) -> None:
    """Show every setting of servers, unless a command follows."""
    if ctx.invoked_subcommand is None:
        config(file, domain, only, json)


class ContextRow(Struct, frozen=True):
    """A context as it is listed."""

    name: str
    is_current: bool
    server: str
    token: str
    namespace: str


@app.command("get-contexts")
def get_contexts(json: Json = False) -> None:
    """List the contexts; the one in use has a star."""
    from stateward.client.formatting import filled_table

    file, chosen = _read(), _current()
    contexts = [
        ContextRow(name, name == chosen, context.server, context.token, context.namespace)
        for name, context in file.contexts.items()
    ]
    if json:
        print_json(contexts)
    elif not contexts:
        results().print("There are no contexts: see stateward login.")
    else:
        rows = (
            ("*" if context.is_current else " ", context.name, context.server, context.token, context.namespace)
            for context in contexts
        )
        results().print(filled_table(("", "name", "server", "token", "namespace"), rows))


@app.command("current-context")
def current_context() -> None:
    """Print the name of the context in use; the exit code is 1 if there is none."""
    if not (name := _current()):
        raise typer.Exit(1)
    typer.echo(name)


@app.command("use-context")
def use_context(name: Name) -> None:
    """Use a context from now on."""
    file = _read()
    file.find(name)
    write_client_file(_path(), replace(file, current=name))
    typer.echo(f"Commands use the context {name}.")


@app.command("set-context")
def set_context(
    name: Name, server: ServerOf = None, token_ref: Reference = None, namespace: NamespaceOf = None
) -> None:
    """Create a context, or change what is given of it; the first one is used at once.

    stateward config set-context shop --server https://stateward.example --token-ref "command:pass show shop"
    """
    file = _read()
    given = {
        "server": None if server is None else check_address(server),
        "token": None if token_ref is None else check_reference(token_ref),
        "namespace": None if namespace is None else check_part("namespace", namespace),
    }
    former = file.contexts.get(check_part("context", name), ClientContext())
    changed = replace(former, **{field: value for field, value in given.items() if value is not None})
    if not changed.server:
        raise BadInput("--server", None, "given for a new context")
    store_context(name, changed, use=not file.current)
    typer.echo(f"Context {name}: {changed.server}, namespace {changed.namespace or DEFAULT_NAMESPACE}.")


@app.command("delete-context")
def delete_context(name: Name) -> None:
    """Delete a context; a token file stays."""
    file = _read()
    file.find(name)
    left = {other: context for other, context in file.contexts.items() if other != name}
    write_client_file(_path(), ClientFile("" if file.current == name else file.current, left))
    typer.echo(f"The context {name} is deleted.")


class InForce(Struct, frozen=True):
    """A value that commands use, and where it comes from."""

    name: str
    value: str
    source: str


@app.command("view")
def view(
    server: Server = None,
    token: Token = None,
    token_file: TokenFile = None,
    data: Data = None,
    context: Context = None,
    namespace: Namespace = None,
    json: Json = False,
) -> None:
    """Show the server, token and namespace that commands use, and where each comes from.

    An option goes before the environment, the environment before the context, the context before the default. A token
    is never shown.
    """
    from stateward.client.formatting import filled_table

    given = TargetOptions(server, None if token is None else Secret(token), token_file, data, context)
    settings = list(_in_force(given, namespace))
    if json:
        print_json(settings)
    else:
        results().print(
            filled_table(
                ("setting", "value", "from"), ((setting.name, setting.value, setting.source) for setting in settings)
            )
        )


def _in_force(given: TargetOptions, namespace: str | None) -> list[InForce]:
    chosen = find_context(given, os.environ)
    name, context = chosen or ("", ClientContext())
    source = f"context {name}"
    return [
        InForce("client file", str(_path()), ""),
        _first("context", ("--context", given.context), _env("CONTEXT"), ("client file", name)),
        _first(
            "server",
            ("--server", given.server),
            ("--data", str(given.data or "")),
            *(() if chosen else (_env("SERVER"), _env("DATA"))),
            (source, context.server),
            ("default", DEFAULT_FOLDER),
        ),
        _first(
            "token",
            ("--token", "***" if given.token else ""),
            ("--token-file", str(given.token_file or "")),
            (f"{PREFIX}TOKEN", os.environ.get(f"{PREFIX}TOKEN") and "***"),
            (source, context.token),
        ),
        _first(
            "namespace",
            ("--namespace", namespace),
            _env("NAMESPACE"),
            (source, context.namespace),
            ("default", DEFAULT_NAMESPACE),
        ),
    ]


def _env(name: str) -> tuple[str, str | None]:
    return f"{PREFIX}{name}", os.environ.get(f"{PREFIX}{name}")


def _first(name: str, *values: tuple[str, str | None]) -> InForce:
    source, value = next(((where, value) for where, value in values if value), ("", ""))
    return InForce(name, value or "", source)


def store_context(name: str, context: ClientContext, *, use: bool) -> None:
    """Write a context into the client file; with `use`, commands use it from now on."""
    file = _read()
    write_client_file(_path(), ClientFile(name if use else file.current, {**file.contexts, name: context}))


def _current() -> str:
    return os.environ.get(CONTEXT_VARIABLE) or _read().current


def _read() -> ClientFile:
    return read_client_file(_path())


def _path() -> Path:
    return client_file_path(os.environ)
