"""Arguments that name kinds and actions; the shell completes them from the declared lifecycles."""

from typing import Annotated

import typer


def complete_kinds(incomplete: str) -> list[str]:
    """Offer the kinds that are declared."""
    from stateward.plugin.registry import installed  # only the shell's completion and `lifecycle` need the tables

    return [one.kind for one in installed().lifecycles if incomplete in one.kind]


def complete_actions(incomplete: str) -> list[str]:
    """Offer the actions that any lifecycle has."""
    from stateward.plugin.registry import installed

    return sorted({action for one in installed().lifecycles for action in one.actions if action.startswith(incomplete)})


Action = Annotated[str, typer.Argument(metavar="ACTION", help="What is to be done.", autocompletion=complete_actions)]
Kind = Annotated[
    str,
    typer.Argument(metavar="KIND", help="A kind, such as mci.vm (or vm, if clear).", autocompletion=complete_kinds),
]
OnlyKind = Annotated[
    str | None,
    typer.Option("--kind", "-k", metavar="KIND", help="Only of this kind.", autocompletion=complete_kinds),
]
