"""`stateward kinds`: the kinds of a server, with the fields of their specs and the arguments of their actions."""

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stateward.cli.commands.kind_options import complete_kinds
from stateward.client.field_options import Schema, field_rows
from stateward.client.formatting import filled_table
from stateward.client.session import Session, on_server
from stateward.schemas.kind_info import KindInfo

Kind = Annotated[
    str | None, typer.Argument(metavar="KIND", help="One kind, with its fields.", autocompletion=complete_kinds)
]
TITLES = ("field", "type", "default", "about")


@on_server
def kinds(session: Session, kind: Kind = None) -> None:
    """List the kinds of the server, or the fields and actions of one kind.

    stateward kinds
    stateward kinds ovc.vm
    """
    if kind is None:
        session.show(list(session.kinds.values()), _list)
    else:
        session.show(session.kinds[session.kind(kind)], _details)


def _list(kinds: list[KindInfo]) -> Table:
    rows = ((info.kind, info.about, "yes" if info.creatable else "", ", ".join(info.actions)) for info in kinds)
    return filled_table(("kind", "about", "create", "actions"), rows)


def _details(info: KindInfo) -> RenderableType:
    untyped = sorted(set(info.actions) - info.args.keys())
    parts: list[RenderableType] = [Text(f"{info.kind}: {info.about}" if info.about else info.kind)]
    parts += (
        _fields("spec (stateward create --set)", info.spec)
        if info.spec
        else [Text("spec: any JSON that its domain accepts")]
    )
    creating = dict.fromkeys(row.event for row in info.rows if info.initial in row.sources)
    parts.append(Text(f"a spec is taken by: {', '.join(dict.fromkeys((*creating, *info.spec_actions)))}"))
    for action, schema in info.args.items():
        parts += _fields(f"{action} (stateward do {action} --set)", schema)
    takes = "take no arguments" if info.args else "take any arguments"
    parts += [Text(f"{', '.join(untyped)}: {takes}")] if untyped else []
    return Group(*parts)


def _fields(title: str, schema: Schema) -> list[RenderableType]:
    rows = list(field_rows(schema))
    return [Text(f"\n{title}"), filled_table(TITLES, rows) if rows else Text("no fields")]
