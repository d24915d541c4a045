import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any, Optional
from uuid import UUID

import pytest
from msgspec import Meta, Struct, defstruct

from stateward.engine import Kind
from stateward.engine.typed_values import MASK, MAX_DEPTH, check_depth, value_type
from stateward.errors import BadInput, UnknownName
from stateward.store.records import to_json
from tests.integration.engine.record_kinds import RECORD, SECRET, Change, Check, RecordSpec, RecordWork

Secret = Annotated[str, Meta(extra_json_schema=SECRET)]


class Node(Struct, frozen=True):
    name: str
    key: Secret = "initial"
    below: Optional["Node"] = None


class Circle(Struct, frozen=True, tag="circle", tag_field="shape"):
    radius: float


class Square(Struct, frozen=True, tag="square", tag_field="shape"):
    side: float
    key: Secret | None = None


@dataclass
class Plain:
    x: int = 0


class Drawing(Struct, frozen=True, rename="camel"):
    line_width: int = 1
    shapes: list[Circle | Square] = []
    by_name: dict[str, Square] = {}
    pair: tuple[int, Secret] | None = None
    plain: Plain | None = None


class Loose(Struct):
    anything: Any


class Odd(Struct):
    name: str
    value: complex


class Lost(Struct):
    name: "Nowhere"  # type: ignore[name-defined] # noqa: F821 - a mistake on purpose


def test_a_schema_has_no_references_and_says_what_fields_are() -> None:
    schema = value_type(RecordSpec).schema
    assert "$ref" not in str(schema)
    assert schema["required"] == ["address"]
    fields = schema["properties"]
    assert fields["ttl"] == {"type": "integer", "minimum": 1, "default": 300, "description": "seconds"}
    assert fields["type"] == {"title": "RecordType", "enum": ["A", "TXT"], "default": "A"}
    login = fields["login"]["anyOf"][0]
    assert login["properties"]["password"] == {"type": "string", "minLength": 4, "writeOnly": True}


def test_a_type_that_contains_itself_is_an_object_of_any_form_there() -> None:
    schema = value_type(Node).schema
    assert schema["properties"]["below"]["anyOf"][0] == {"title": "Node", "type": "object"}
    assert "default" not in schema["properties"]["key"]  # a secret is not told, not even the first one


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (
            '{"name":"a","key":"s1","below":{"name":"b","key":"s2","below":null}}',
            '{"name":"a","key":"***","below":{"name":"b","key":"***","below":null}}',
        ),
        ('{"key":{"deep":["s"]}}', '{"key":"***"}'),
        ('{"key":null,"other":"key"}', '{"key":null,"other":"***"}'),  # an earlier type knew it
        ("[1]", "[1]"),
    ],
)
def test_secrets_are_masked_at_any_depth(text: str, masked: str) -> None:
    assert value_type(Node).mask(text) == masked


def test_secrets_are_masked_in_lists_mappings_tuples_and_unions() -> None:
    text = '{"shapes":[{"shape":"square","side":1,"key":"s"}],"byName":{"a":{"side":1,"key":"s"}},"pair":[1,"s"]}'
    assert '"s"' not in value_type(Drawing).mask(text)
    assert value_type(Change).mask('{"ttl":1}') == '{"ttl":1}'


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('{"lineWidth":"x"}', "spec.lineWidth: must be a whole number, not a text"),
        ('{"line_width":1}', "spec.line_width: must be a field of this body; did you mean 'lineWidth'"),
        ('{"shapes":[{"shape":"circle","radius":1,"side":1}]}', r"spec.shapes\[0\].side: must be a field"),
        ('{"byName":{"a":{"shape":"square","side":1,"sid":1}}}', "spec.byName.a.sid: must be a field.*'side'"),
        ('{"plain":{"y":1}}', "spec.plain.y: must be a field"),
        ('{"shapes":[{"shape":"line"}]}', r"spec.shapes\[0\].shape: must be one of circle, square"),
        ('{"pair":[1,"***"]}', r"spec.pair\[1\]: must be the secret itself: \*\*\* only stands for it"),
        ("[]", "spec: must be an object"),
    ],
)
def test_a_wrong_value_is_told_with_its_field(given: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        value_type(Drawing).normalize(given, "spec")


def test_a_message_does_not_repeat_a_secret() -> None:
    with pytest.raises(BadInput) as raised:
        value_type(RecordSpec).normalize('{"address":"0.0.0.0","login":{"user":"ann","password":"hush-hush"}}', "spec")
    assert str(raised.value) == "spec: must be an address that ann/*** may use"
    with pytest.raises(BadInput) as raised:
        value_type(RecordSpec).normalize('{"address":"1.1.1.1","login":{"user":"ann","password":"h!s"}}', "spec")
    assert str(raised.value) == "spec.login.password: must be at least 4 characters long"


class Faulty(Struct):
    """A struct whose own check fails."""

    name: str

    def __post_init__(self) -> None:
        raise LookupError(self.name)


def test_a_check_that_fails_itself_refuses_the_value() -> None:
    with pytest.raises(BadInput, match="spec: must be of a form that Faulty can check: LookupError"):
        value_type(Faulty).normalize('{"name": "x"}', "spec")


def test_a_value_that_is_nested_too_deeply_is_refused() -> None:
    deep: Any = []
    for _ in range(MAX_DEPTH + 2):
        deep = [deep]
    with pytest.raises(BadInput, match="spec: must be nested at most 100 levels deep"):
        value_type(Loose).normalize(to_json({"anything": deep}), "spec")


@pytest.mark.parametrize("text", ["[" * 100 + "]" * 100, "[" + "[]," * 300 + "1]", to_json({"a": '\\"[{' * 300})])
def test_a_text_with_many_brackets_need_not_be_deep(text: str) -> None:
    check_depth("spec", text)


@pytest.mark.parametrize("text", ["[" * 101 + "]" * 101, '["]",{"}":' * 51 + "1" + "}]" * 51])
def test_a_text_that_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="spec: must be nested at most 100 levels deep"):
        check_depth("spec", text)


S = Meta(extra_json_schema=SECRET)


class Account(Struct):
    user: str
    pin: int = 0


class Whole(Struct):
    account: Annotated[Account | None, S] = None
    others: list[Annotated[Account, S]] = []


def test_a_struct_can_be_secret_as_a_whole() -> None:
    text = '{"account":{"user":"ann","pin":1},"others":[{"user":"bob","pin":2}]}'
    assert value_type(Whole).mask(text) == '{"account":"***","others":["***"]}'


@pytest.mark.parametrize(
    "hint",
    [
        Annotated[Account, S] | None,
        Annotated[Account, S] | str,
        list[Annotated[Account, S] | None],
        dict[str, Annotated[Plain, S] | None],
        dict[Annotated[str, S], int],
    ],
)
def test_a_secret_that_a_schema_cannot_tell_is_an_error_of_the_declaration(hint: Any) -> None:
    inner = defstruct("Inner", [("login", hint)])
    outer = defstruct("Outer", [("inner", inner)])
    with pytest.raises(BadInput, match=r"spec of kind dns.record, field inner.login: must be .*secret as a whole"):
        Kind(RECORD, spec=outer)


class Defaults(Struct):
    password: Secret | None = "default-1"
    square: Square = Square(1.0, "default-2")
    pair: tuple[int, Secret] = (1, "default-3")
    node: Node = Node("a", below=Node("b", "default-4"))
    squares: list[Square] = []
    name: str = "shown"


def test_no_default_at_or_above_a_secret_is_in_a_schema() -> None:
    schema = value_type(Defaults).schema
    assert "default-" not in str(schema)
    assert "initial" not in str(schema)
    assert schema["properties"]["name"]["default"] == "shown"
    assert schema["properties"]["squares"]["default"] == []


class Keys(Struct):
    pem: Secret = ""
    raw: Annotated[bytes, S] = b""
    at: Annotated[datetime | None, S] = None
    by_name: Annotated[dict[str, str], S] = {}


PEM = """-----BEGIN-----
it's "quoted" \\ and h\u00e9re
second line
-----END-----"""
KEYS = Keys(PEM, b"raw\x00bytes", datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC), {"private": "value-of-it"})


@pytest.mark.parametrize(
    "message",
    [
        PEM,
        repr(PEM),
        repr(repr(PEM)),
        str(KeyError(PEM)),
        json.dumps(PEM),
        to_json(PEM),
        repr(KEYS),
        str(KEYS.raw),
        str(KEYS.at),
        "bad line: second line",
    ],
)
def test_a_message_has_no_secret_in_any_printed_form(message: str) -> None:
    masked = value_type(Keys).mask_in(f"failed: {message}!", to_json(KEYS))
    assert masked.startswith("failed: ")
    assert masked.endswith("!")
    assert MASK in masked
    for part in ("BEGIN", "quoted", "second", "raw\\", "bytes'", "2026", "private", "value-of"):
        assert part not in masked


class Renamed(Struct, rename="camel"):
    api_key: Secret = ""
    by_name: Annotated[dict[str, list[str]], S] = {}


def test_the_names_of_a_secret_are_those_in_json_and_in_python() -> None:
    assert value_type(Renamed).secret_names == {"api_key", "apiKey", "by_name", "byName"}
    types = Kind(RECORD, spec=Renamed).types
    assert types is not None
    assert types.show_other('{"api_key":"s","apiKey":"s"}') == '{"api_key":"***","apiKey":"***"}'


@pytest.mark.parametrize("given", ['{"byName":{"a":["b","***"]}}', '{"byName":{"***":[]}}'])
def test_a_mask_inside_a_secret_is_refused(given: str) -> None:
    with pytest.raises(BadInput, match=r"spec.byName: must be the secret itself"):
        value_type(Renamed).normalize(given, "spec")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class OtherKeys(Struct):
    numbers: dict[int, str] = {}
    colours: dict[Colour, dict[UUID, int]] = {}


def test_keys_of_mappings_need_not_be_texts() -> None:
    found = value_type(OtherKeys)
    some = "00000000-0000-4000-8000-000000000001"
    text = f'{{"numbers":{{"10":"b","2":"a"}},"colours":{{"blue":{{"{some}":1}},"red":{{}}}}}}'
    stored = found.normalize(text, "spec")
    assert stored == f'{{"colours":{{"blue":{{"{some}":1}},"red":{{}}}},"numbers":{{"10":"b","2":"a"}}}}'
    assert found.read(stored, "spec") == OtherKeys({10: "b", 2: "a"}, {Colour.BLUE: {UUID(some): 1}, Colour.RED: {}})


def test_fields_may_have_names_of_the_words_of_schemas() -> None:
    names = ("properties", "items", "anyOf", "default", "writeOnly", "additionalProperties", "prefixItems", "type")
    words = defstruct(
        "Words", [(name, str, "a") for name in names] + [("required", Secret, "b"), ("enum", Whole | None, None)]
    )
    found = value_type(words)
    assert set(found.schema["properties"]) == {*names, "required", "enum"}
    assert all(found.schema["properties"][name]["default"] == "a" for name in names)
    assert found.secret_names == {"required", "account", "others"}
    assert found.mask('{"properties":"a","items":"b","required":"c"}') == (
        '{"properties":"a","items":"b","required":"***"}'
    )


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"spec": Odd}, r"spec of kind dns.record, field value: must be of a type that has a JSON schema: .*complex"),
        ({"args": {"check": Odd}}, r"args of check of kind dns.record, field value: must be of a type"),
        ({"spec": Lost}, r"spec of kind dns.record: must be of a type that has a JSON schema: .*Nowhere"),
        ({"spec": dict}, r"spec of kind dns.record: .* must be a subclass of msgspec.Struct"),
        ({"columns": ("spec",)}, r"columns of kind dns.record: 'spec' must be spec., seen. or labels. with a field"),
        ({"columns": "id"}, r"columns of kind dns.record: 'id' must be a sequence"),
    ],
)
def test_a_type_that_cannot_be_used_is_an_error_of_the_declaration(how: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Kind(RECORD, **how)


def test_unknown_names_of_a_declaration_are_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="'chek'; did you mean 'check'"):
        Kind(RECORD, args={"chek": Check})
    with pytest.raises(UnknownName, match="'adress'; did you mean 'address'"):
        Kind(RECORD, spec=RecordSpec, columns=["spec.adress"])
    with pytest.raises(BadInput, match=r"args of change of kind dns.record, field value"):
        Kind(RECORD).handles("change", args=Odd)(RecordWork().work)


def test_types_stay_with_other_handlers() -> None:
    kind = RecordWork().kind()
    types = kind.with_handlers(dict(kind.handlers)).types
    assert types is not None
    assert types.spec is value_type(RecordSpec)
    assert types.args == {"check": value_type(Check), "change": value_type(Change)}
    assert Kind(RECORD).types is None
