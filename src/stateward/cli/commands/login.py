"""`stateward login` and `stateward logout`: sign in to a server, and out again."""

import os
import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from msgspec.structs import replace

from stateward.cli.commands.context_commands import complete_contexts, store_context
from stateward.client.contexts import FILE, ClientContext, client_file_path, read_client_file, write_private
from stateward.client.session import connect
from stateward.client.target import RemoteServer, check_address, checked_token
from stateward.client.url_paths import check_part
from stateward.errors import BadInput

Address = Annotated[
    str | None, typer.Argument(metavar="[SERVER]", help="The server's address; asked for if not given.")
]
ContextName = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        show_default="the server's name",
        help="The name of the context.",
        autocompletion=complete_contexts,
    ),
]
InNamespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="The namespace of commands in this context.")
]


def login(server: Address = None, context: ContextName = None, namespace: InNamespace = None) -> None:
    """Sign in to a server, and use it from now on.

    The token is asked for without being shown, checked, and stored in a file that only you can read. In a script, it is
    read from standard input.

      stateward login https://stateward.example --namespace shop
      stateward login http://127.0.0.1:8420 < stateward-data/admin-token
    """
    url = check_address(server or _ask("Server", hidden=False))
    name = check_part("context", context or urlsplit(url).netloc.replace(":", "-"))
    token = checked_token("token", _ask("Token", hidden=True))
    with connect(RemoteServer(url, token), None) as client:
        caller = client.me()
    if namespace is not None and not {namespace, "*"} & set(caller.namespaces):
        raise BadInput("--namespace", namespace, f"a namespace that the token opens: {', '.join(caller.namespaces)}")
    file = _token_file(name)
    write_private(file, f"{token.text}\n".encode())
    store_context(name, ClientContext(url, f"{FILE}:{file}", namespace or _only(caller.namespaces)), use=True)
    typer.echo(f"Signed in to {url} as {caller.name} ({caller.role}); commands use the context {name}.")


def logout(context: ContextName = None) -> None:
    """Sign out: delete the stored token of a context.

    Without --context, it is the context in use.

    The context stays, without a token. The token itself stays valid: `stateward token revoke` ends it.
    """
    file = read_client_file(client_file_path(os.environ))
    name = context or file.current
    if not name:
        raise BadInput("context", None, "given: none is in use")
    entry, stored = file.find(name), _token_file(name)
    if entry.token == f"{FILE}:{stored}":
        stored.unlink(missing_ok=True)
    store_context(name, replace(entry, token=""), use=file.current == name)
    typer.echo(f"Signed out of {entry.server}: the context {name} has no token.")


def _ask(what: str, *, hidden: bool) -> str:
    if sys.stdin.isatty():
        return str(typer.prompt(what, hide_input=hidden, err=True))
    if not hidden:
        raise BadInput("server", None, "given, because standard input is not a terminal")
    return sys.stdin.readline()


def _token_file(name: str) -> Path:
    return client_file_path(os.environ).absolute().parent / "tokens" / name


def _only(namespaces: list[str]) -> str:
    """Return the namespace of a token that opens a single one."""
    return namespaces[0] if len(namespaces) == 1 and namespaces[0] != "*" else ""
