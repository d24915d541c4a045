"""Values of options and arguments, converted without a library.

The parser checks every value with a validation library, also those that were not given; its import takes 0.1 s. Texts,
numbers in their range, choices, paths and defaults need no library. Everything else, and every value that is wrong, is
left to the parser, so that its error messages stay as they are.
"""

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

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
        return _number(value, wanted, info)
    if wanted == list[str]:  # not `is`: each mention of it makes another one
        return list(value) if not isinstance(value, str) and all(type(part) is str for part in value) else NOT_PLAIN
    if wanted is Path and not (info.exists or info.writable or info.resolve_path):
        return Path(value)
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return next((member for member in wanted if value in (member, member.value)), NOT_PLAIN)
    return value if isinstance(wanted, type) and type(value) is wanted else NOT_PLAIN


def _number(value: Any, wanted: Any, info: Any) -> Any:  # noqa: ANN401
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = wanted(value)
    too_small = info.min is not None and value < info.min if type(value) is wanted else True
    return NOT_PLAIN if too_small or (info.max is not None and value > info.max) else value
