"""Commands that are imported when they are called.

Importing all commands takes several times as long as running most of them. So the program has a table of its commands:
where each is, and its line in the list of commands. `--help`, completion and a mistyped name need no more than that.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from msgspec import Struct
from typer.core import TyperCommand, TyperGroup

from stateward.cli.help_text import write_help

# Values of options and arguments, converted without a library.
#
# The parser checks every value with a validation library, also those that were not given; its import takes 0.1 s.
# Texts, numbers in their range, choices, paths and defaults need no library. Everything else, and every value that is
# wrong, is left to the parser, so that its error messages stay as they are.

NOT_PLAIN = object()


def with_plain_values(parameters: list[Any]) -> list[Any]:
    """Let parameters convert plain values without the library; returns them."""
    for parameter in parameters:
        if hasattr(parameter, "get_runtime_param") and "get_runtime_param" not in vars(parameter):
            parameter.get_runtime_param = PlainValues(parameter.get_runtime_param).converter
    return parameters


class PlainValues:
    """Converts plain values; `library` returns the parser's own converter for all others."""

    def __init__(self, library: Callable[[], Any]) -> None:
        self._library = library

    def converter(self) -> "PlainValues":
        """Return itself, where the parser asks a parameter for its converter."""
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401 - the parser's classes are private
        """Return a value as the parameter's type."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        converted = _converted(value, param.type_descriptor.annotation, param.type_descriptor.parameter_info)
        return self._library().coerce(value, param=param, ctx=ctx) if converted is NOT_PLAIN else converted


def _converted(value: Any, wanted: Any, info: Any) -> Any:  # noqa: ANN401
    if info.parser is not None:
        return NOT_PLAIN
    if wanted in (int, float):
        if isinstance(value, str) and value.isascii() and value.isdecimal():
            value = wanted(value)
        too_small = info.min is not None and value < info.min if type(value) is wanted else True
        return NOT_PLAIN if too_small or (info.max is not None and value > info.max) else value
    if wanted == list[str]:  # not `is`: each mention of it makes another one
        return list(value) if not isinstance(value, str) and all(type(part) is str for part in value) else NOT_PLAIN
    if wanted is Path and not (info.exists or info.writable or info.resolve_path):
        return Path(value)
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return next((member for member in wanted if value in (member, member.value)), NOT_PLAIN)
    return value if isinstance(wanted, type) and type(value) is wanted else NOT_PLAIN


class LazyCommand(Struct, frozen=True):
    """A command: its name, `module:attribute` of its function or application, its line and its panel in `--help`."""

    name: str
    target: str
    about: str
    panel: str


class LazyGroup(TyperGroup):
    """A group that imports a command when it is called. Subclasses yield its commands."""

    def lazy_commands(self) -> Iterator[LazyCommand]:
        """Yield the commands in the order of `--help`."""
        raise NotImplementedError

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - the parser's classes are private
        """Return the names of all commands; those that are not imported are placeholders with their line of help."""
        self.commands = {lazy.name: self.commands.get(lazy.name) or _listed(lazy) for lazy in self.lazy_commands()}
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        """Return a command; an unknown name fills the list, so that the nearest names can be suggested."""
        if cmd_name not in self.commands:
            command = next((lazy for lazy in self.lazy_commands() if lazy.name == cmd_name), None)
            if command is None:
                self.list_commands(ctx)
            else:
                self.commands[cmd_name] = imported_command(command)
        return super().get_command(ctx, cmd_name)

    def get_params(self, ctx: Any) -> Any:  # noqa: ANN401
        """Return the parameters of the group itself."""
        return with_plain_values(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """Parse the words; options of commands may also stand before the name of the command."""
        return super().parse_args(ctx, moved_behind_command(args))

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """Write the help as plain text."""
        write_help(self, ctx, formatter)


FLAGS = frozenset({"--json"})
WITH_VALUE = frozenset({"--server", "--token-file", "--data", "--context", "--namespace", "-n", "--output", "-o"})
"""Options of commands that may stand before the name of the command, as in `stateward -n shop list`."""


def moved_behind_command(words: list[str]) -> list[str]:
    """Return the words with such options at the end of the options of the command."""
    at = 0
    while at < len(words):
        name, equals, _ = words[at].partition("=")
        if words[at] in FLAGS or (name in WITH_VALUE and equals):
            at += 1
        elif name in WITH_VALUE:
            at += 2
        else:
            break
    moved, rest = words[:at], words[at:]
    if not rest:
        return words
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *moved, *rest[end:]]


def _listed(command: LazyCommand) -> TyperCommand:
    return TyperCommand(command.name, help=command.about, rich_help_panel=command.panel)


@cache  # bounded by: the commands there are
def imported_command(command: LazyCommand) -> Any:  # noqa: ANN401
    """Import a command, or a group of them, once: to build a large group takes 50 ms."""
    module, _, attribute = command.target.partition(":")
    imported = getattr(import_module(module), attribute)
    holder = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    holder.callback()(lambda: None)
    if isinstance(imported, typer.Typer):
        holder.add_typer(imported, name=command.name)
    else:
        holder.command(command.name)(imported)
    group = typer.main.get_command(holder)
    assert isinstance(group, TyperGroup)
    whole = group.commands[command.name]
    _lighten(whole)
    return whole


def _lighten(command: Any) -> None:  # noqa: ANN401
    """Let a command, and those in it, write plain help and read plain values without the libraries for more.

    The import of the one that draws boxes takes 0.1 s, that of the one that checks values 0.1 s.
    """
    command.rich_markup_mode = None
    command.format_help = lambda ctx, formatter: write_help(command, ctx, formatter)
    for parameter in command.params:
        if parameter.param_type_name == "argument" and parameter.required:
            parameter._usage_display_name = parameter._rich_display_name  # noqa: SLF001 - `{NAME}` would look like a choice
    own = command.get_params
    command.get_params = lambda ctx: with_plain_values(own(ctx))
    for subcommand in getattr(command, "commands", {}).values():
        _lighten(subcommand)
