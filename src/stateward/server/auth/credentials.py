"""Tokens in requests: `Authorization: Bearer T`, HTTP Basic with T as the password, or `X-Auth-Token: T`.

The text of a session is not a token: it counts in its cookie only, where the origin of the request is checked.
"""

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Iterable

from stateward.access.sessions import PREFIX

MAX_TOKEN_LENGTH = 200
"""The length of the longest token that is looked up."""

_ID = re.compile(r"s[ws]_([0-9a-f]{12})_")


def token_id(text: str | None) -> str | None:
    """Return the id in a token or a session, by which its record is found; None if the text is neither."""
    match = _ID.match(text) if text is not None else None
    return match[1] if match else None


def presented_token(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the token that a request presents, or None if it presents none."""
    other = None
    for name, value in headers:
        if name == b"authorization":
            token = _authorization(value)
            if token is not None:
                return token
        elif name == b"x-auth-token":
            other = _text(value)
    return other


def _authorization(value: bytes) -> str | None:
    scheme, _, given = value.partition(b" ")
    match scheme.lower():
        case b"bearer":
            return _text(given.strip())
        case b"basic":
            try:
                _, colon, password = b64decode(given.strip(), validate=True).partition(b":")
            except Error:
                return None
            return _text(password) if colon else None
        case _:
            return None


def _text(given: bytes) -> str | None:
    return token_text(given.decode("latin-1")) if given else None


def token_text(given: str) -> str:
    """Return a text that may be a token; one that is too long, or a session, becomes an empty token: not valid."""
    return given if len(given) <= MAX_TOKEN_LENGTH and not given.startswith(f"{PREFIX}_") else ""
