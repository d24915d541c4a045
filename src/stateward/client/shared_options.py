"""Options and arguments that several commands share."""

from typing import Annotated

import typer

from stateward.client.session import Timeout as Timeout
from stateward.client.session import Wait as Wait
from stateward.client.shell_completion import complete_objects

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
