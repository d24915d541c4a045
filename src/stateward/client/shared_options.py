"""Options and arguments that several commands share, and the completion of object names in the shell."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stateward.client.arguments import ObjectSelector
from stateward.client.session import connect
from stateward.client.target import Secret, TargetOptions, choose_target

if TYPE_CHECKING:
    from stateward.client.api import ApiClient

MOST = 50


def complete_objects(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the objects of the namespace whose id contains the typed text; on any error, offer nothing."""
    try:
        return list(_objects(ctx, incomplete))
    except Exception:  # the Tab key must not print a traceback
        return []


def _objects(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    kind, slash, id_ = incomplete.rpartition("/")
    with completing_client(ctx) as client:
        for one in client.objects(namespace_of(ctx), ObjectSelector(q=id_ or None), MOST):
            yield f"{kind}{slash}{one.id}"


def completing_client(ctx: typer.Context) -> AbstractContextManager["ApiClient"]:
    """Open a client to the server of a command that is being typed."""
    token, file, data = (ctx.params.get(name) for name in ("token", "token_file", "data"))
    url = ctx.params.get("server")
    given = TargetOptions(url, Secret(token) if token else None, file, Path(data) if data else None)
    return connect(choose_target(given, os.environ), ctx.obj)


def namespace_of(ctx: typer.Context) -> str:
    """Return the namespace of a command that is being typed."""
    return str(ctx.params.get("namespace") or os.environ.get("STATEWARD_NAMESPACE") or "default")


Object = Annotated[
    str,
    typer.Argument(metavar="OBJECT", help="An object: its id, or kind/id.", autocompletion=complete_objects),
]
Objects = Annotated[
    list[str] | None,
    typer.Argument(metavar="OBJECT", help="Objects: id or kind/id.", autocompletion=complete_objects),
]
Labels = Annotated[list[str] | None, typer.Option("--label", "-l", metavar="KEY=VALUE", help="Repeatable.")]
Force = Annotated[bool, typer.Option("--force", help="Force the action: the fact `force`, for rows that ask for it.")]
Facts = Annotated[list[str] | None, typer.Option("--fact", metavar="FACT", help="A fact that a row asks for.")]
Args = Annotated[
    list[str] | None, typer.Option("--arg", metavar="KEY=VALUE", help="An argument: JSON, or text where it is not.")
]
