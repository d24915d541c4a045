"""Options and arguments that several commands share, and the completion of object names in the shell."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from stateward.client.arguments import ObjectSelector
from stateward.client.session import InProcessServer, connect
from stateward.client.target import Secret, TargetOptions, choose_target

MOST = 50


def complete_objects(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the objects of the namespace whose id contains the typed text; on any error, offer nothing."""
    try:
        return list(_objects(ctx.params, incomplete, ctx.obj))
    except Exception:  # the Tab key must not print a traceback
        return []


def _objects(params: dict[str, Any], incomplete: str, in_process: InProcessServer | None) -> Iterator[str]:
    token, file, data = params.get("token"), params.get("token_file"), params.get("data")
    given = TargetOptions(params.get("server"), Secret(token) if token else None, file, Path(data) if data else None)
    ns = params.get("namespace") or os.environ.get("STATEWARD_NAMESPACE") or "default"
    kind, slash, id_ = incomplete.rpartition("/")
    with connect(choose_target(given, os.environ), in_process) as client:
        for one in client.objects(ns, ObjectSelector(q=id_ or None), MOST):
            yield f"{kind}{slash}{one.id}"


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
