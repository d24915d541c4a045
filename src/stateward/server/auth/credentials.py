"""Tokens in requests: `Authorization: Bearer T`, HTTP Basic with T as the password, or `X-Auth-Token: T`."""

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Iterable

MAX_TOKEN_LENGTH = 200
"""The length of the longest token that is looked up."""

_ID = re.compile(r"sw_([0-9a-f]{12})_")


def token_id(text: str | None) -> str | None:
    """Return the id in a token, by which its record is found; None if the text is not a token."""
    found = _ID.match(text) if text is not None else None
    return found[1] if found else None


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
            return _password(given.strip())
        case _:
            return None


def _password(given: bytes) -> str | None:
    try:
        _, colon, password = b64decode(given, validate=True).partition(b":")
    except Error:
        return None
    return _text(password) if colon else None


def _text(given: bytes) -> str | None:
    """Return a text that may be a token; a text that is too long becomes an empty token, which is not valid."""
    if not given:
        return None
    return given.decode("latin-1") if len(given) <= MAX_TOKEN_LENGTH else ""
