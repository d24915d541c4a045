import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

import stateward
from stateward.domains.ovc.api.schemas import NewNode
from stateward.errors import UnknownField
from stateward.naming import NAME
from stateward.validation_texts import GIVEN, PATTERN_MEANINGS, bad_input, describe_pattern, explain

LETTERS = describe_pattern("^[a-c]+$ - at `", "a text of a, b and c")
RAW = re.compile(r"[Ee]xpected|`|regex|\^|\\|\$|<class|Invalid|RFC3339|\b(str|int|float|bool|datetime|NoneType)\b")


A_TIME = "a time such as 2026-01-31T12:00:00Z with a time zone"
NO_FIELD = "a field of this body; did you mean 'name'? Known: name, colour, count"


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Circle(Struct, tag="circle"):
    size: int


class Square(Struct, tag="square"):
    size: int


class Inner(Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=9)]
    colour: Colour = Colour.RED
    count: Annotated[int, Meta(ge=1, le=20)] = 1


class Outer(Struct, forbid_unknown_fields=True):
    inner: Inner | None = None
    many: list[Inner] = []
    by_name: dict[Annotated[str, Meta(pattern="^x$")], Inner] = {}
    shape: Circle | Square | None = None


def refusal(sort: Any, text: str) -> msgspec.ValidationError:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.json.decode(text, type=sort)
    return raised.value


@pytest.mark.parametrize(
    ("sort", "text", "allowed"),
    [
        (int, '"a"', "a whole number, not a text"),
        (int, "1.5", "a whole number, not one with a point or an exponent"),
        (str, "1", "a text, not a whole number"),
        (bool, "1", "true or false, not a whole number"),
        (list[int], "{}", "a list, not an object"),
        (dict[str, int], "null", "an object, not null"),
        (float | tuple[float, float], '"a"', "a number or a list, not a text"),
        (str | None, "1", "a text or null, not a whole number"),
        (Annotated[int, Meta(le=2147483647)], "2147483648", "at most 2147483647"),
        (Annotated[float, Meta(gt=0.5)], "0.5", "more than 0.5"),
        (Annotated[int, Meta(ge=1, le=20)], "21", "a whole number from 1 to 20"),
        (Annotated[int, Meta(multiple_of=2)], "3", "a multiple of 2"),
        (Annotated[str, Meta(min_length=1)], '""', "at least 1 character long"),
        (Annotated[str, Meta(min_length=1, max_length=3)], '"abcd"', "1 to 3 characters long"),
        (Annotated[list[int], Meta(max_length=1)], "[1, 2]", "a list of at most 1 item"),
        (Annotated[dict[str, int], Meta(max_length=0)], '{"a": 1}', "an object of at most 0 fields"),
        (tuple[int, int], "[1]", "a list of exactly 2 items"),
        (Colour, '"green"', "one of red, blue"),
        (Literal["a", "b"] | None, '"c"', "one of a, b"),
        (datetime, '"soon"', "a time such as 2026-01-31T12:00:00Z"),
        (date, '"soon"', "a date such as 2026-01-31"),
        (timedelta, '"soon"', "a duration such as PT1H"),
        (Annotated[datetime, Meta(tz=True)], '"2026-01-31T12:00:00"', A_TIME),
        (UUID, '"1"', "a UUID"),
        (Decimal, '"x"', "a number"),
        (bytes, '"@"', "a text in base64"),
        (float, "1e999", "a smaller number"),
        (Annotated[str, Meta(pattern="^not registered$")], '"x"', "of the documented form"),
        (Annotated[str, Meta(pattern=NAME)], '"/"', PATTERN_MEANINGS[NAME]),
    ],
)  # fmt: skip
def test_a_refused_value_is_told_what_it_must_be(sort: object, text: str, allowed: str) -> None:
    error = refusal(sort, text)
    assert explain(error, sort) == ("", allowed, None)
    assert not RAW.search(explain(error).allowed), "without the type, too"


@pytest.mark.parametrize(
    ("text", "place", "allowed"),
    [
        ('{"inner": {}}', "inner.name", GIVEN),
        ('{"many": [{"name": "a", "colour": "x"}]}', "many[0].colour", "one of red, blue"),
        ('{"by_name": {"x": {"name": ""}}}', "by_name[...].name", "1 to 9 characters long"),
        ('{"by_name": {"y": {}}}', "by_name", "an object whose every name is of the documented form"),
        ('{"shape": {"type": "line"}}', "shape.type", "one of circle, square"),
        ('{"many": [{"nam": "a"}]}', "many[0].nam", NO_FIELD),
    ],
)  # fmt: skip
def test_the_place_of_a_refused_value_is_told(text: str, place: str, allowed: str) -> None:
    found = explain(refusal(Outer, text), Outer)
    assert (found.place, found.allowed) == (place, allowed)


def test_a_spec_is_refused_with_the_path_of_its_field() -> None:
    error = bad_input(refusal(Outer, '{"inner": {"name": 1}}'), Outer, "spec", "Running")
    assert (str(error), error.state) == ("spec.inner.name: must be a text, not a whole number", "Running")
    unknown = bad_input(refusal(Outer, '{"iner": 1}'), Outer, "spec")
    assert isinstance(unknown, UnknownField)
    assert str(unknown).startswith("spec.iner: must be a field of this body; did you mean 'inner'? Known: inner, many")
    assert str(bad_input(refusal(Outer, '{"iner": 1}'), None, "spec")) == "spec.iner: must be a field of this body"


def test_the_values_of_an_option_are_listed_in_the_error() -> None:
    error = refusal(NewNode, '{"name": "a", "driver": "foo"}')
    assert explain(error, NewNode)[:2] == ("driver", "one of process, qemu, simulated")


MESSAGES = st.one_of(
    st.text(),
    st.builds("Expected `{}`{}".format, st.sampled_from(["int", "str", "float | array", "SomeClass", ""]), st.text()),
    st.builds("Expected `str` matching regex {!r}".format, st.text()),
    st.builds("Expected `int` {} {}".format, st.sampled_from([">=", "<=", "<", ">"]), st.integers()),
    st.builds("Expected `{}`, got `{}`".format, st.sampled_from(["int", "X"]), st.sampled_from(["str", "Y", "<class"])),
    st.builds("Invalid enum value {!r}".format, st.text()),
    st.builds("Invalid value {!r} - at `$.type`".format, st.text()),
    st.sampled_from(["Invalid MessagePack timestamp", "Input data was truncated", "Unsupported type: <class 'str'>"]),
)


@given(MESSAGES.filter(lambda text: "Object " not in text))
def test_nothing_of_the_validator_is_told_whatever_it_says(message: str) -> None:
    for error in (message, msgspec.ValidationError(message)):
        for expected in (None, Outer):
            assert not RAW.search(explain(error, expected).allowed)


QUOTED = re.compile(r"""pattern=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")


def patterns_in_use() -> Iterator[str]:
    """Yield the patterns of all records and parameters that the modules of the program declare."""
    for module in pkgutil.walk_packages(stateward.__path__, "stateward."):
        if module.name.endswith("__main__"):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            yield from filter(None, (getattr(one, "pattern", None) for one in getattr(value, "__metadata__", ())))
            if isinstance(value, type) and issubclass(value, Struct):
                with suppress(TypeError, NameError):  # a record that is never decoded may have any field
                    shown = repr(msgspec.inspect.type_info(value))
                    yield from (ast.literal_eval(one) for one in QUOTED.findall(shown))


def test_every_pattern_in_use_has_a_sentence() -> None:
    found = set(patterns_in_use())
    assert len(found) > 20
    assert sorted(one for one in found if one not in PATTERN_MEANINGS) == []


def test_no_pattern_stands_in_a_record_without_a_sentence() -> None:
    """A pattern that is written where it is used has none."""
    written = re.compile(r"pattern=r?f?[\"']")
    sources = Path(stateward.__file__).parent.rglob("*.py")
    assert [str(file) for file in sources if written.search(file.read_text())] == []


def test_a_sentence_continues_must_be() -> None:
    for pattern, means in PATTERN_MEANINGS.items():
        assert not RAW.search(means), pattern
        assert not means.endswith("."), pattern
