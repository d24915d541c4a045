"""The command that a group runs if none is named, as `stateward lanes` does."""

import inspect
from collections.abc import Callable
from typing import Any

import typer


def set_default_command(app: typer.Typer, command: Callable[..., None]) -> None:
    """Let a group run a command, with its options, if none is named."""

    def run(ctx: typer.Context, **given: Any) -> None:  # noqa: ANN401 - whatever the command takes
        if ctx.invoked_subcommand is None:
            command(ctx=ctx, **given)
        elif any(_was_typed(ctx, name) for name in given):
            raise typer.BadParameter(f"options go after the word {ctx.invoked_subcommand!r}")

    parameters = inspect.signature(command).parameters
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    run.__doc__ = app.info.help
    app.callback(invoke_without_command=True)(run)


def _was_typed(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
