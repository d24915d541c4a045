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


def _list(found: list[KindInfo]) -> Table:
    rows = ((one.kind, one.about, "yes" if one.creatable else "", ", ".join(one.actions)) for one in found)
    return filled_table(("kind", "about", "create", "actions"), rows)


def _details(one: KindInfo) -> RenderableType:
    untyped = sorted(set(one.actions) - one.args.keys())
    parts: list[RenderableType] = [Text(f"{one.kind}: {one.about}" if one.about else one.kind)]
    parts += (
        _fields("spec (stateward create --set)", one.spec)
        if one.spec
        else [Text("spec: any JSON that its domain accepts")]
    )
    creating = dict.fromkeys(row.event for row in one.rows if one.initial in row.sources)
    parts.append(Text(f"a spec is taken by: {', '.join(dict.fromkeys((*creating, *one.spec_actions)))}"))
    for action, schema in one.args.items():
        parts += _fields(f"{action} (stateward do {action} --set)", schema)
    takes = "take no arguments" if one.args else "take any arguments"
    parts += [Text(f"{', '.join(untyped)}: {takes}")] if untyped else []
    return Group(*parts)


def _fields(title: str, schema: Schema) -> list[RenderableType]:
    rows = list(field_rows(schema))
    return [Text(f"\n{title}"), filled_table(TITLES, rows) if rows else Text("no fields")]
