"""Patterns of names and of idempotency keys, and their check.

The server, the domains, the engine and the command line accept names. A second copy of a pattern differs after a while:
one part then accepts a name that another part cannot address. So every pattern of a name stands here and nowhere else.

A name never holds a character that cannot be seen: two names that look the same would be two objects, and a terminal
obeys control characters. The patterns are valid in Python, in ECMA-262 and in Rust, because the OpenAPI document
publishes them.
"""

import re
from os import urandom
from time import time_ns

from stateward.errors import BadInput
from stateward.validation_texts import describe_pattern

# In Python, `$` also matches before a line end at the end of the text; the look-ahead closes that gap.
END = r"$(?!\n)"

INVISIBLE = (
    r"\x00-\x1f\x7f-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""The characters of Unicode's categories Cc, Cf, Zl and Zp, those of its property Default_Ignorable_Code_Point, and the
empty braille pattern, which is a blank in most fonts; for a character class.

Characters beyond U+FFFF stand as they are: the three dialects have no escape for them in common. Surrogates (Cs) are
missing: no request can carry one, and Rust's dialect has no word for them. `check_text` refuses them.
"""

NOT_OURS = "(?!sw_[0-9a-f]{12}_)"  # a token that was given as a name would become readable for everybody
NAME = rf"^{NOT_OURS}[A-Za-z0-9][A-Za-z0-9._:@+~-]{{0,199}}{END}"
NAME_MEANS = "letters, digits and . _ : @ + ~ -, at most 200 of them"
describe_pattern(NAME, f"a name of {NAME_MEANS}, that begins with a letter or digit and is no token")
"""A name that is given to a new object, and the name of a namespace."""

OWN_NAMESPACE = r"\([a-z]+\)"
"""A namespace of the program's own objects, such as tokens: no request names it."""

DEFAULT_NAMESPACE = "default"
"""The namespace of commands that name none; it is known even while it holds nothing."""

IDEMPOTENCY_HEADER = "Idempotency-Key"
IDEMPOTENCY_KEY = describe_pattern(rf"^[\x21-\x7e]{{1,200}}{END}", "1 to 200 visible ASCII characters, without spaces")
"""The header with the idempotency key of a request, and the pattern of its value."""

MAX_URL_PATH = 500
URL_PATH_FORM = (
    f"a path that begins with /, of at most {MAX_URL_PATH} visible ASCII characters, without # and empty parts"
)


def is_url_path(text: str) -> bool:
    """Tell whether a text is the path of a request, with or without a query: the form of new definitions.

    Stored ones may be longer, and have empty parts.
    """
    parts = text.partition("?")[0].split("/")
    is_whole = parts[0] == "" and len(parts) > 1 and all(parts[1:-1])
    return (
        is_whole
        and len(text) <= MAX_URL_PATH
        and "#" not in text
        and " " not in text
        and text.isascii()
        and text.isprintable()
    )


_REPOSITORY = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
IMAGE_REFERENCE = re.compile(
    rf"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{{1,5}})?/)?{_REPOSITORY}(?:/{_REPOSITORY})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
IMAGE_FORM = (
    "an image, such as registry.example:5000/team/name:tag or name@sha256: and 64 hexadecimal digits: a name of small "
    "letters, digits and . _ - between them, and a tag of at most 128 letters, digits and . _ -"
)
"""The reference of an image in new definitions; engines refuse all others, with worse words."""

KERNEL_FOLDERS, SHARED_MEMORY = ("dev", "proc", "sys"), ["dev", "shm"]
VOLUME_PATH_FORM = "a path below /, and not in /dev (except /dev/shm), /proc or /sys"


def is_volume_path(path: str) -> bool:
    """Tell whether a container can have a volume at a path: those of the kernel would be hidden, or opened."""
    folders = [folder for folder in path.split("/") if folder not in ("", ".")]
    return bool(folders) and (folders[0] not in KERNEL_FOLDERS or folders == SHARED_MEMORY)


PORT_RANGES = describe_pattern(
    r"^[0-9]{1,5}(-[0-9]{1,5})?(, ?[0-9]{1,5}(-[0-9]{1,5})?)*\Z",
    "ports and ranges of ports with commas between them, such as 80,8000-8999",
)
ADDRESS_PORTS = "1024-65535"
"""The ports of a host that tenants can name, unless an administrator chooses others."""

MAX_OBJECT_NAME = 250
PATH_PART = describe_pattern(
    rf"^[^\x00-\x1f\x7f/]{{1,{MAX_OBJECT_NAME}}}{END}",
    f"1 to {MAX_OBJECT_NAME} characters long, without a slash and control characters",
)
"""A name by which an existing object is looked up: also one that could not be given any more."""

SCRIPT = rf"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]*{END}"
SCRIPT_MEANS = "a text without control characters, but for tabs and line ends"
"""Commands: they may have several lines. A terminal shows them, and no process can be given a NUL."""

CREDENTIAL_REFERENCE = rf"^(env:[A-Za-z_][A-Za-z0-9_]*|file:(?!#)[^\ud800-\udfff{INVISIBLE}]+){END}"
CREDENTIAL_REFERENCE_MEANS = "env:PREFIX, file:PATH or file:PATH#PROFILE"
"""Where a credential is: a prefix of environment variables, or a file and a profile in it."""

TEXT_MEANS = "without control characters and invisible characters"


def text_pattern(least: int, most: int, *, without: str = "") -> str:
    """Return the pattern of free text in one line, without invisible characters and without some others."""
    pattern = rf"^[^{INVISIBLE}{without}]{{{least},{most}}}{END}"
    return describe_pattern(pattern, _text_form(least, most))


def title_pattern() -> str:
    """Return the pattern of free text that begins and ends with a visible character and has no slash."""
    pattern = rf"^[^\s/{INVISIBLE}](?:[^/{INVISIBLE}]*[^\s/{INVISIBLE}])?{END}"
    return describe_pattern(pattern, f"a text {TEXT_MEANS}, without a slash and without a space at its ends")


def check_script(field: str, text: str) -> str:
    """Return a command of one or several lines; raises BadInput for what a terminal would obey."""
    if re.match(SCRIPT, text) is None:
        raise BadInput(field, text, SCRIPT_MEANS)
    return text


def check_text(field: str, text: str, least: int, most: int, *, without: str = "") -> str:
    """Return free text that can be a name; raises BadInput otherwise."""
    surrogate = any("\ud800" <= char <= "\udfff" for char in text)
    if surrogate or re.match(text_pattern(least, most, without=re.escape(without)), text) is None:
        besides = f" and without {' '.join(without)}" if without else ""
        raise BadInput(field, text, f"{_text_form(least, most)}{besides}")
    return text


def check_new_object(ns: str, name: str) -> None:
    """Raise BadInput for the name of a new object, or for its namespace, if no request could address it."""
    for field, text in (("id", name), ("ns", ns)):
        is_plain = text.isascii() and text.isprintable() and "/" not in text and 1 <= len(text) <= MAX_OBJECT_NAME
        if text in (".", "..") or not (is_plain or check_text(field, text, 1, MAX_OBJECT_NAME, without="/")):
            raise BadInput(field, text, "a name that can be a part of a URL, so not . or ..")
    if re.match(NAME, ns) is None and re.fullmatch(OWN_NAMESPACE, ns) is None:
        raise BadInput("ns", ns, f"a name of {NAME_MEANS}, that begins with a letter or digit")


def port_ranges(text: str) -> list[range]:
    """Return the ranges of ports that a text of the form `PORT_RANGES` names."""
    parted = (part.strip().partition("-") for part in text.split(","))
    return [range(int(first), int(last or first) + 1) for first, _, last in parted]


def is_credential_reference(text: str) -> bool:
    """Tell whether a text says where a credential is."""
    return len(text) <= 500 and re.match(CREDENTIAL_REFERENCE, text) is not None


def check_credential_reference(field: str, text: object) -> str:
    """Return a reference to a credential, or an empty text; the error does not repeat what may be the secret itself."""
    if isinstance(text, str) and (not text or is_credential_reference(text)):
        return text
    hidden = "what was given is not shown, as it may be a secret"
    raise BadInput(field, None, f"{CREDENTIAL_REFERENCE_MEANS}; {hidden}")


def _text_form(least: int, most: int) -> str:
    return f"a text of {least} to {most} characters, {TEXT_MEANS}"


def new_id() -> str:
    """Return a new id: 32 hexadecimal digits, the first of which tell the time.

    Later ids sort behind earlier ones. New rows then come to stand at the end of an index, on pages that are in memory
    and are written together, however many rows there are already.
    """
    return f"{time_ns() // 1_000_000:012x}{urandom(10).hex()}"
