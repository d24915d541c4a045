"""Lenient reading of JSON bodies: the clients of this API send many dialects.

Keys are case-insensitive and of any release, unknown keys are ignored, numbers may be texts of plain digits, and a
single value may stand for a list. Anything else is bad input, and the error names the path of the field.
"""

import math
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import msgspec

from stateward.domains.mci.api.release_names import OLDER_FIELDS
from stateward.errors import BadInput, UnknownField

MAX_TEXT_CHARS = 10_000
"""Maximal length of a text."""

MAX_ITEMS = 10_000
MISSPELT = 0.85
"""How similar a field must be to a known one to be taken for a mistake, from 0 to 1."""

NUMBER_TEXT = re.compile(r"\s*[-+]?[0-9]{1,20}(\.[0-9]{1,20})?\s*")
"""A number as a text. Python reads more: `1e3`, `1_0` and digits of other scripts would be a surprise in a size."""

YES, NO = frozenset({"true", "yes", "y", "on", "1"}), frozenset({"false", "no", "n", "off", "0", ""})


class Fields:
    """A JSON object; `path` is its place in the body."""

    def __init__(self, value: object, path: str = "") -> None:
        if not isinstance(value, dict):
            raise BadInput(path or "body", value, "an object")
        self.path = path
        self._values = {}
        for key, member in value.items():
            lower = str(key).lower()
            self._values[OLDER_FIELDS.get(lower, lower)] = member

    def require_known(self, *names: str) -> None:
        """Refuse unknown fields: native routes read strictly, so that no field is ignored by mistake."""
        known = {name.lower() for name in names}
        for name in self._values:
            if name not in known:
                raise UnknownField(self.field(name), names)

    def refuse_misspelt(self, *names: str) -> None:
        """Refuse fields that are nearly one of these: they are of this server alone, so that no client means others."""
        known = {field.lower(): field for field in names}
        for name in self._values:
            near = get_close_matches(name, known, n=1, cutoff=MISSPELT)
            if near and name not in known:
                raise UnknownField(self.field(name), [known[near[0]]])

    def field(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def raw(self, *names: str) -> Any:  # noqa: ANN401 - any JSON
        """Return the value of the first name that is present, or None."""
        return next((value for name in names if (value := self._values.get(name.lower())) is not None), None)

    def text(self, *names: str, default: str = "") -> str:
        """Return a text; a number is converted to its digits."""
        return _parse_text(self.field(names[0]), self.raw(*names), default)

    def string(self, name: str) -> str:
        """Return a text that is one in JSON, too: a number is refused, where it would be searched for in vain."""
        value = self.raw(name)
        if value is not None and not isinstance(value, str):
            raise BadInput(self.field(name), value, "a text")
        return self.text(name).strip()

    def number(self, *names: str, default: int, low: int, high: int) -> int:
        """Return an integer within limits; an empty text counts as missing."""
        value = self.raw(*names)
        if value is None or value == "":
            return default
        return parse_int(self.field(names[0]), value, low, high)

    def real(self, *names: str, default: float, low: float, high: float) -> float:
        """Return a number within limits."""
        value = self.raw(*names)
        if value is None or value == "":
            return default
        read = parse_number(value)
        if read is None or not low <= read <= high:
            raise BadInput(self.field(names[0]), value, f"a number from {low:g} to {high:g}")
        return read

    def texts(self, *names: str) -> tuple[str, ...]:
        """Return texts; a single text counts as a list of one, and empty texts are dropped."""
        value, field = self.raw(*names), self.field(names[0])
        texts = [
            _parse_text(f"{field}[{number}]", element, "") for number, element in enumerate(_parse_list(field, value))
        ]
        return tuple(text for text in texts if text)

    def objects(self, *names: str) -> list["Fields"]:
        """Return objects; a single object counts as a list of one."""
        value, field = self.raw(*names), self.field(names[0])
        return [Fields(element, f"{field}[{number}]") for number, element in enumerate(_parse_list(field, value))]

    def object(self, *names: str) -> "Fields | None":
        """Return an object, or None if it is missing."""
        value = self.raw(*names)
        return None if value is None or value == "" else Fields(value, self.field(names[0]))

    def labels(self, *names: str) -> dict[str, str]:
        """Return labels from a map, or from a text such as `a=b,c=d`; a word without a value is a label too."""
        value, field = self.raw(*names), self.field(names[0])
        if value is None:
            return {}
        pairs: Iterable[tuple[str, object]]
        if isinstance(value, dict):
            pairs = ((str(name), label) for name, label in value.items())
        else:
            words = (pair.partition("=") for pair in _parse_text(field, value, "").split(","))
            pairs = ((name.strip(), label.strip()) for name, _, label in words)
        return dict(_parse_label(field, name, label) for name, label in pairs if name)


def parse_body(body: bytes) -> Fields:
    """Parse a body; an empty body is an object without fields."""
    try:
        return Fields(msgspec.json.decode(body) if body.strip() else {})
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadInput("body", None, "JSON") from None
    except RecursionError:
        raise BadInput("body", None, "JSON of a sensible depth") from None


def parse_flag(field: str, text: str | None) -> bool:
    """Parse a flag such as `force=true`."""
    word = (text or "").strip().lower()
    if word not in YES | NO:
        raise BadInput(field, text, "true or false")
    return word in YES


def parse_int(field: str, value: object, low: int, high: int) -> int:
    """Parse an integer within limits."""
    read = parse_number(value)
    if read is None or not read.is_integer() or not low <= read <= high:
        raise BadInput(field, value, f"a whole number from {low} to {high}")
    return int(read)


def parse_number(value: object) -> float | None:
    """Parse a finite number; a text has plain digits. Returns None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and NUMBER_TEXT.fullmatch(value) is None:
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _parse_text(field: str, value: object, default: str) -> str:
    if value is None:
        return default
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, int | float | str):
        raise BadInput(field, value, "a text")
    text = value if isinstance(value, str) else repr(value)
    if len(text) > MAX_TEXT_CHARS or "\x00" in text:
        raise BadInput(field, None, f"a text of at most {MAX_TEXT_CHARS} characters without NUL")
    return text


def _parse_list(field: str, value: object) -> list[object]:
    if value is None or value == "":
        return []
    items = value if isinstance(value, list) else [value]
    if len(items) > MAX_ITEMS:
        raise BadInput(field, len(items), f"a list of at most {MAX_ITEMS} items")
    return items


def _parse_label(field: str, name: str, value: object) -> tuple[str, str]:
    text = _parse_text(f"{field}.{name}", value, "")
    if not _in_one_line(name, 250) or not _in_one_line(text, 250):
        raise BadInput(f"{field}.{name[:50]}", text, "a label of up to 250 characters in one line")
    return name, text


def _in_one_line(text: str, most: int) -> bool:
    return len(text) <= most and not any(sign < " " or sign == "\x7f" for sign in text)
