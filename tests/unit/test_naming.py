import re
from pathlib import Path
from unicodedata import category

import msgspec
import pytest

import stateward
from stateward.domains.mci.api.tumblebug_params import check_record_name, check_reference
from stateward.domains.ovc.api.schemas import NewAccount
from stateward.errors import BadInput
from stateward.naming import IDEMPOTENCY_KEY, INVISIBLE, NAME, check_text, text_pattern, title_pattern
from stateward.schemas.request_bodies import NewLabels, NewToken

SOURCES = Path(stateward.__file__).parent
ZERO_WIDTH, RIGHT_TO_LEFT, NEXT_LINE = "\u200b", "\u202e", "\x85"


IGNORABLE = (
    range(0x00AD, 0x00AE), range(0x034F, 0x0350), range(0x061C, 0x061D), range(0x115F, 0x1161), range(0x17B4, 0x17B6),
    range(0x180B, 0x1810), range(0x200B, 0x2010), range(0x202A, 0x202F), range(0x2060, 0x2070), range(0x3164, 0x3165),
    range(0xFE00, 0xFE10), range(0xFEFF, 0xFF00), range(0xFFA0, 0xFFA1), range(0xFFF0, 0xFFF9),
    range(0x1BCA0, 0x1BCA4), range(0x1D173, 0x1D17B), range(0xE0000, 0xE1000),
)  # fmt: skip
"""Unicode's property Default_Ignorable_Code_Point."""
BLANKS = {0x2800, *(number for span in IGNORABLE for number in span)}


def test_every_control_and_format_and_ignorable_character_is_refused_and_no_other() -> None:
    refused = re.compile(f"[{INVISIBLE}]")
    for number in range(0x110000):
        found, sort = refused.match(chr(number)) is not None, category(chr(number))
        if sort != "Cn":  # what a later Unicode may make a format character is refused already
            assert found == (sort in {"Cc", "Cf", "Zl", "Zp"} or number in BLANKS), hex(number)
        assert found or number not in BLANKS, hex(number)


@pytest.mark.parametrize(
    "sign",
    [
        "\0",
        "\n",
        "\x1b",
        NEXT_LINE,
        "\u00ad",
        ZERO_WIDTH,
        RIGHT_TO_LEFT,
        "\u2028",
        "\ud800",
        "\u3164",
        "\u2800",
        "\U000e0100",
    ],
)
def test_a_text_with_a_character_that_cannot_be_seen_is_refused_with_its_field(sign: str) -> None:
    with pytest.raises(BadInput, match="without control characters and invisible characters") as refusal:
        check_text("name", f"web{sign}1", 1, 200)
    assert refusal.value.field == "name"


@pytest.mark.parametrize("text", ["Müller & Söhne", "数据库", "web 1", "🚀"])
def test_a_text_in_any_language_is_a_name(text: str) -> None:
    assert check_text("name", text, 1, 200) == text
    assert re.match(title_pattern(), text)


@pytest.mark.parametrize("text", ["", "x" * 201, "a/b"])
def test_a_text_of_the_wrong_length_or_with_what_is_excluded_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        check_text("name", text, 1, 200, without="/")


@pytest.mark.parametrize("text", [" web", "web ", "a/b", "web\n", f"web{ZERO_WIDTH}", ""])
def test_a_title_begins_and_ends_with_a_visible_character(text: str) -> None:
    assert re.match(title_pattern(), text) is None


@pytest.mark.parametrize("pattern", [NAME, IDEMPOTENCY_KEY, text_pattern(1, 9), title_pattern()])
def test_no_pattern_lets_a_line_end_pass(pattern: str) -> None:
    assert re.match(pattern, "web")
    assert re.match(pattern, "web\n") is None


def test_a_token_is_no_name() -> None:
    assert re.match(NAME, "sw_0123456789ab_secret") is None


def test_no_other_module_writes_the_pattern_of_a_name_or_of_a_key_again() -> None:
    written = ("._:@+~-]", r"[\x21-\x7e]{", "sw_[0-9a-f]{12}_)")
    copies = [
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if path.name != "naming.py" and any(one in path.read_text() for one in written)
    ]
    assert copies == []


@pytest.mark.parametrize("sign", ["\0", ZERO_WIDTH, RIGHT_TO_LEFT, NEXT_LINE])
def test_no_domain_takes_a_name_with_a_character_that_cannot_be_seen(sign: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"name": f"web{sign}1"}, NewAccount)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"labels": {"tier": f"web{sign}"}}, NewLabels)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"name": f"ci{sign}", "role": "viewer", "namespaces": ["a"]}, NewToken)
    with pytest.raises(BadInput):
        check_reference("zone", f"a{sign}")
    with pytest.raises(BadInput):
        check_record_name("name", f"a{sign}")
