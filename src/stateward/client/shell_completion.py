"""Completion of object names in the shell. On any error it offers nothing and prints nothing."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from stateward.client.arguments import ObjectSelector
from stateward.client.session import InProcessServer, connect
from stateward.client.target import Secret, TargetOptions, choose_target

MOST = 50


def complete_objects(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the objects of the namespace whose name holds what was typed."""
    try:
        return list(_objects(ctx.params, incomplete, ctx.obj))
    except Exception:  # a Tab must not end in a traceback, whatever it is
        return []


def _objects(params: dict[str, Any], incomplete: str, in_process: InProcessServer | None) -> Iterator[str]:
    token, file, data = params.get("token"), params.get("token_file"), params.get("data")
    given = TargetOptions(params.get("server"), Secret(token) if token else None, file, Path(data) if data else None)
    ns = params.get("namespace") or os.environ.get("STATEWARD_NAMESPACE") or "default"
    kind, slash, id_ = incomplete.rpartition("/")
    with connect(choose_target(given, os.environ), in_process) as client:
        for one in client.objects(ns, ObjectSelector(q=id_ or None), MOST):
            yield f"{kind}{slash}{one.id}"
