"""Commands that are imported when they are called.

Importing all commands takes several times as long as running most of them. So the program knows only the names of its
commands and where they are; `--help`, completion and a mistyped name import them all.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import typer
from msgspec import Struct
from typer.core import TyperGroup


class LazyCommand(Struct, frozen=True):
    """A command: its name, `module:attribute` of its function or application, and its panel in `--help`."""

    name: str
    target: str
    panel: str | None = None


class LazyGroup(TyperGroup):
    """A group that imports its commands when they are called or listed. Subclasses yield its commands."""

    def lazy_commands(self) -> Iterator[LazyCommand]:
        """Yield the commands in the order of `--help`."""
        raise NotImplementedError

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - the parser's classes are private to its library
        """Return the names of all commands, and import the commands."""
        self.commands = {one.name: self.commands.get(one.name) or _imported(ctx, one) for one in self.lazy_commands()}
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        """Return a command; for an unknown name, all are imported, so that the nearest ones can be suggested."""
        if cmd_name not in self.commands:
            found = next((one for one in self.lazy_commands() if one.name == cmd_name), None)
            if found is None:
                self.list_commands(ctx)
            else:
                self.commands[cmd_name] = _imported(ctx, found)
        return super().get_command(ctx, cmd_name)


def _imported(ctx: Any, command: LazyCommand) -> Any:  # noqa: ANN401
    module, _, attribute = command.target.partition(":")
    found = getattr(import_module(module), attribute)
    holder = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False, add_completion=False)
    holder.callback()(lambda: None)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=command.name, rich_help_panel=command.panel)
    else:
        holder.command(command.name, rich_help_panel=command.panel)(found)
    group = typer.main.get_command(holder)
    assert isinstance(group, TyperGroup)
    return group.get_command(ctx, command.name)
