"""Options and arguments that several commands share, and the completion of object names in the shell."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stateward.client.arguments import ObjectSelector
from stateward.client.session import connect
from stateward.client.target import Secret, TargetOptions, choose_namespace, choose_target

if TYPE_CHECKING:
    from stateward.client.api import ApiClient

MOST = 50
COMPLETION_LIMIT_S = 1.0


def complete_objects(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the objects of the namespace whose id contains the typed text; on any error, offer nothing."""
    try:
        return list(_objects(ctx, incomplete))
    except Exception:  # the Tab key must not print a traceback
        return []


def _objects(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    kind, slash, id_ = incomplete.rpartition("/")
    with completing_client(ctx) as client:
        for view in client.objects(namespace_of(ctx), ObjectSelector(q=id_ or None), MOST):
            yield f"{kind}{slash}{view.id}"


def completing_client(ctx: typer.Context) -> AbstractContextManager["ApiClient"]:
    """Open a client to the server of a command that is being typed; the Tab key does not wait for a slow one."""
    return connect(choose_target(_target_options(ctx), os.environ), ctx.obj, timeout=COMPLETION_LIMIT_S)


def namespace_of(ctx: typer.Context) -> str:
    """Return the namespace of a command that is being typed."""
    options = _target_options(ctx)
    return choose_namespace(ctx.params.get("namespace"), options, os.environ, choose_target(options, os.environ))


def _target_options(ctx: typer.Context) -> TargetOptions:
    token, file, data, url, context = (
        ctx.params.get(name) for name in ("token", "token_file", "data", "server", "context")
    )
    return TargetOptions(url, Secret(token) if token else None, file, Path(data) if data else None, context)


Object = Annotated[
    str,
    typer.Argument(metavar="OBJECT", help="An object: its id, or kind/id.", autocompletion=complete_objects),
]
Objects = Annotated[
    list[str] | None,
    typer.Argument(metavar="OBJECT", help="Objects: id or kind/id.", autocompletion=complete_objects),
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", "-l", metavar="KEY=VALUE", help="A label. Repeatable; in a filter, all must match."),
]
Everywhere = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces that the token opens, not only of one.")
]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Request the forced form of the action, if the kind has one (the same as --fact force)."
    ),
]
Facts = Annotated[
    list[str] | None,
    typer.Option(
        "--fact",
        metavar="FACT",
        help="A condition that you vouch for, and that the action needs; a refusal names it. Repeatable.",
    ),
]
Args = Annotated[
    list[str] | None,
    typer.Option(
        "--arg", metavar="KEY=VALUE", help="An argument of the action; the value is JSON, or else text. Repeatable."
    ),
]
