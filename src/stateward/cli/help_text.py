"""The text of `--help`: usage, description, arguments and options by panel, commands by panel.

The parser's library draws boxes with a library of its own, whose import alone takes longer than most commands. This is
plain text, which also reads well in a pipe. A paragraph of commands, which are examples, is not wrapped.
"""

import inspect
import re
from collections.abc import Iterator
from typing import Any

ARGUMENTS, OPTIONS, COMMANDS = "Arguments", "Options", "Commands"
LONG = 1000
"""More characters than the first sentence of a description has: a line that is too long is wrapped, not cut."""

DEFAULT = r"default: \((.*?)\)(?=[;\]])"
"""A default that is described: the parser puts it in parentheses."""

EXAMPLE = "stateward "
TYPES = {
    "str": "TEXT",
    "int": "NUMBER",
    "float": "NUMBER",
    "int range": "NUMBER",
    "float range": "NUMBER",
    "Path": "FILE",
    "list[str]": "TEXT",
}
Row = tuple[str, str]


def write_help(command: Any, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - the parser's classes are private
    """Write the help of a command, or of a group of commands."""
    command.format_usage(ctx, formatter)
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        formatter.write_paragraph()
        if paragraph.lstrip().startswith(EXAMPLE):
            formatter.write("".join(f"    {line.strip()}\n" for line in paragraph.splitlines()))
        else:
            with formatter.indentation():
                formatter.write_text(paragraph)
    panels: dict[str, list[Row]] = {}
    for panel, row in (*_parameters(command, ctx), *_commands(command, ctx)):
        panels.setdefault(panel, []).append(row)
    for panel, rows in panels.items():
        with formatter.section(panel):
            formatter.write_dl(rows)


def _parameters(command: Any, ctx: Any) -> Iterator[tuple[str, Row]]:  # noqa: ANN401
    """Yield the parameters with their panels: arguments, options of the command, then those that commands share."""
    shown = [
        (parameter, record)
        for parameter in command.get_params(ctx)
        if (record := parameter.get_help_record(ctx)) is not None
    ]
    for parameter, record in sorted(shown, key=lambda pair: _place(pair[0])):
        panel = ARGUMENTS if parameter.param_type_name == "argument" else OPTIONS
        yield (
            getattr(parameter, "rich_help_panel", None) or panel,
            (_named(record[0], panel), re.sub(DEFAULT, r"default: \1", record[1])),
        )


def _named(name: str, panel: str) -> str:
    """Return the name of a parameter without the types of the programming language."""
    if panel == ARGUMENTS:
        return name.partition(" <")[0]
    for word, shown in TYPES.items():
        name = name.replace(f" <{word}>", f" {shown}")
    return name


def _place(parameter: Any) -> int:  # noqa: ANN401
    if parameter.param_type_name == "argument":
        return 0
    return 2 if getattr(parameter, "rich_help_panel", None) else 1


def _commands(command: Any, ctx: Any) -> Iterator[tuple[str, Row]]:  # noqa: ANN401
    for name in command.list_commands(ctx) if hasattr(command, "list_commands") else ():
        subcommand = command.get_command(ctx, name)
        if not subcommand.hidden:
            yield getattr(subcommand, "rich_help_panel", None) or COMMANDS, (name, subcommand.get_short_help_str(LONG))
