"""The pages of the command line, from the declarations that it parses its arguments with."""

from collections.abc import Iterator, Mapping
from typing import Any

from typer.main import get_command

from stateward.cli.lazy_commands import LazyGroup, imported_command
from stateward.cli.main import app
from tools.reference.markdown import code, joined, table

PROGRAM = "stateward"
GENERAL = "general"
WHERE = "Where"
ABOUT = """How commands find their server, and what their exit codes mean, is told in [cli.md](../../cli.md). Commands
that talk to a server also take `--server`, `--token`, `--token-file`, `--data` and `--namespace`."""

# The parser's classes are the library's own affair; what is read of them here is what `--help` prints.
Command = Any
Parameter = Any


def pages() -> Iterator[tuple[str, str]]:
    """Yield a page for the commands at the top, and one for each group of commands."""
    root = get_command(app)
    own = {name: one for name, one in _commands(root).items() if not _commands(one)}
    yield GENERAL, joined("# stateward", ABOUT, *(_section(f"{PROGRAM} {name}", one) for name, one in own.items()))
    for name, one in _commands(root).items():
        if _commands(one):
            leaves = list(_leaves(f"{PROGRAM} {name}", one))
            yield name, joined(f"# stateward {name}", one.help or "", *(_section(path, leaf) for path, leaf in leaves))


def _commands(command: Command) -> Mapping[str, Command]:
    """Return the commands below one, by their names; those of the program itself are imported."""
    if isinstance(command, LazyGroup):  # its own list has placeholders
        return {one.name: imported_command(one) for one in command.lazy_commands()}
    names = command.list_commands(None) if hasattr(command, "list_commands") else []
    return {name: command.get_command(None, name) for name in names}


def _leaves(path: str, command: Command) -> Iterator[tuple[str, Command]]:
    """Yield the commands below one; one that is called by itself too comes first."""
    if not _commands(command) or getattr(command, "invoke_without_command", False):
        yield path, command
    for name, one in _commands(command).items():
        yield from _leaves(f"{path} {name}", one)


def _section(path: str, command: Command) -> str:
    shown = [one for one in command.params if not one.hidden and "--help" not in one.opts and not _says_where(one)]
    given = [one for one in shown if one.param_type_name == "argument"]
    usage = " ".join([path, *(_place(one) for one in given)])
    rows = [(_names(one), _told(one)) for one in shown]
    return joined(f"## {usage}", _paragraphs(command.help or ""), table(("given", "meaning"), rows))


def _says_where(parameter: Parameter) -> bool:
    return getattr(parameter, "rich_help_panel", None) == WHERE


def _place(argument: Parameter) -> str:
    word = argument.metavar or argument.name.upper().strip("_")
    word = word.strip("[]{}.") + ("..." if argument.nargs != 1 else "")
    return word if argument.required else f"[{word}]"


def _names(parameter: Parameter) -> str:
    if parameter.param_type_name == "argument":
        return code(_place(parameter))
    return ", ".join(code(one) for one in (*parameter.opts, *parameter.secondary_opts))


def _told(parameter: Parameter) -> str:
    told = [parameter.help or ""]
    if parameter.param_type_name == "option" and parameter.required:
        told.append("Required.")
    if parameter.default not in (None, False, (), [], "", ...) and not callable(parameter.default):
        told.append(f"Default: {code(parameter.default)}.")
    return " ".join(told)


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.replace("\b", "").split("\n\n"))
