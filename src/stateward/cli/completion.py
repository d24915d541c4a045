"""What the shell offers when Tab is pressed. Whatever goes wrong, it offers nothing and says nothing."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from stateward.cli.names import Selector
from stateward.cli.secret import Secret
from stateward.cli.target import Given, choose, opened
from stateward.domains.registry import lifecycles

MOST = 50


def complete_kinds(incomplete: str) -> list[str]:
    """Offer the kinds that are declared."""
    return [one.kind for one in lifecycles() if incomplete in one.kind]


def complete_actions(incomplete: str) -> list[str]:
    """Offer the actions that any lifecycle has."""
    return sorted({action for one in lifecycles() for action in one.actions if action.startswith(incomplete)})


def complete_objects(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the objects of the namespace whose name holds what was typed."""
    try:
        return list(_objects(ctx.params, incomplete))
    except Exception:  # a Tab must not end in a traceback, whatever it is
        return []


def _objects(params: dict[str, Any], incomplete: str) -> Iterator[str]:
    token, file, data = params.get("token"), params.get("token_file"), params.get("data")
    given = Given(params.get("server"), Secret(token) if token else None, file, Path(data) if data else None)
    ns = params.get("namespace") or os.environ.get("STATEWARD_NAMESPACE") or "default"
    kind, slash, id_ = incomplete.rpartition("/")
    with opened(choose(given, os.environ)) as client:
        for one in client.objects(ns, Selector(q=id_ or None), MOST):
            yield f"{kind}{slash}{one.id}"
