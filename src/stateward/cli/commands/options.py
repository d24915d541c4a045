"""Options and arguments that several commands share."""

from typing import Annotated

import typer

from stateward.cli.completion import complete_actions, complete_kinds, complete_objects

Object = Annotated[
    str,
    typer.Argument(metavar="OBJECT", help="An object: its id, or kind/id.", autocompletion=complete_objects),
]
Objects = Annotated[
    list[str] | None,
    typer.Argument(metavar="OBJECT", help="Objects: id or kind/id.", autocompletion=complete_objects),
]
Action = Annotated[str, typer.Argument(metavar="ACTION", help="What is to be done.", autocompletion=complete_actions)]
Kind = Annotated[
    str,
    typer.Argument(metavar="KIND", help="A kind, such as mci.vm (or vm, if clear).", autocompletion=complete_kinds),
]
OnlyKind = Annotated[
    str | None,
    typer.Option("--kind", "-k", metavar="KIND", help="Only of this kind.", autocompletion=complete_kinds),
]
Labels = Annotated[list[str] | None, typer.Option("--label", "-l", metavar="KEY=VALUE", help="Repeatable.")]
Force = Annotated[bool, typer.Option("--force", help="Say the fact `force`: skip what force may skip.")]
Facts = Annotated[list[str] | None, typer.Option("--fact", metavar="FACT", help="A fact that a row asks for.")]
Args = Annotated[
    list[str] | None, typer.Option("--arg", metavar="KEY=VALUE", help="An argument: JSON, or text where it is not.")
]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait until it has ended, and say how.")]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", min=0, metavar="SECONDS", help="Wait no longer than this; the work goes on."),
]
