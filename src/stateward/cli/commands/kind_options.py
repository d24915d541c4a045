"""Arguments that name kinds, actions and fields; the shell completes them.

The server knows the kinds of all its plug-ins. Where none can be asked, the tables of the installed plug-ins answer.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from stateward.client.arguments import parse_ref
from stateward.client.shared_options import completing_client, namespace_of

if TYPE_CHECKING:
    from stateward.schemas.kind_info import KindInfo


def complete_kinds(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the kinds of the server, or of the installed plug-ins."""
    return [info.kind for info in _kinds(ctx) if incomplete in info.kind]


def complete_actions(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the actions that any kind has."""
    return sorted({action for info in _kinds(ctx) for action in info.actions if action.startswith(incomplete)})


def complete_spec_fields(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the fields of the specs of the named kind."""
    from stateward.client.arguments import full_kind
    from stateward.client.field_options import complete_fields

    try:
        kinds = {info.kind: info for info in _kinds(ctx)}
        named = (_arguments_before(ctx, "kind") or [""])[0].partition("/")[0]
        return complete_fields(kinds[full_kind(named, list(kinds))].spec or {}, incomplete)
    except Exception:  # the Tab key must not print a traceback
        return []


def complete_arguments(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the arguments of the named action, for the kind of the first named object, or for any kind."""
    from stateward.client.field_options import complete_fields

    try:
        action, *named = _arguments_before(ctx, "action", "objects") or [""]
        with completing_client(ctx) as client:
            only = {client.object(namespace_of(ctx), parse_ref(text).id).kind for text in named[:1]}
            kinds = [info for info in client.kinds() if not only or info.kind in only]
    except Exception:
        return []
    schemas = (schema for info in kinds if (schema := info.args.get(action)) is not None)
    return list(dict.fromkeys(name for schema in schemas for name in complete_fields(schema, incomplete)))


def _arguments_before(ctx: typer.Context, *names: str) -> list[str]:
    """Return the arguments that are typed already.

    The parser stops at an option without a value, before it gives the arguments their names: all of them are left over.
    """
    given = [ctx.params.get(name) for name in names]
    return [text for value in given if value for text in ([value] if isinstance(value, str) else value)] or ctx.args


def _kinds(ctx: typer.Context) -> "Iterator[KindInfo]":
    try:
        with completing_client(ctx) as client:
            yield from client.kinds()
            return
    except Exception:  # noqa: S110 - no server, or none that can be asked
        pass
    from stateward.lifecycle.describe import describe
    from stateward.plugin.registry import installed  # only the shell's completion and `lifecycle` need the tables
    from stateward.schemas.kind_info import KindInfo

    for lifecycle in installed().lifecycles:
        told = describe(lifecycle)
        yield KindInfo(*(getattr(told, name) for name in told.__struct_fields__))


Action = Annotated[
    str,
    typer.Argument(
        metavar="ACTION",
        help="The action, such as suspend; `stateward kinds KIND` lists them.",
        autocompletion=complete_actions,
    ),
]
OnlyKind = Annotated[
    str | None,
    typer.Option("--kind", "-k", metavar="KIND", help="Only of this kind.", autocompletion=complete_kinds),
]
SpecFields = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="A field of the spec, such as size=4 or login.user=ann. Repeatable.",
        autocompletion=complete_spec_fields,
    ),
]
ArgFields = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="An argument of the action, such as size=4. Repeatable.",
        autocompletion=complete_arguments,
    ),
]
