"""Paths of requests, built from parts that are checked and quoted.

The HTTP library resolves `.` and `..` before it sends a request, and an empty last part is the path of the collection.
With such a name a command would act on another object, on all objects of a kind, or on the namespace. `HttpConnection`
takes no plain text as a path: every path is built by `url_path`, so no command can leave the check out.
"""

import re
from typing import NewType
from urllib.parse import quote

from stateward.errors import BadInput
from stateward.naming import PATH_PART

UrlPath = NewType("UrlPath", str)
"""A path of a request. Only `url_path` makes one."""

NamedPart = tuple[str, str]
"""The name of an argument, for the error message, and its value."""

NAME_RULE = "a name of 1 to 250 characters, without / and control characters, and not . or .."


def url_path(*parts: str | NamedPart) -> UrlPath:
    """Return the path of some parts; raises `BadInput` if one of them cannot be a name."""
    named = (("name", part) if isinstance(part, str) else part for part in parts)
    return UrlPath("".join(f"/{quote(check_part(field, text), safe='')}" for field, text in named))


def check_part(field: str, text: str) -> str:
    """Return a text that can be a part of a path; raises `BadInput` otherwise."""
    if text in (".", "..") or re.match(PATH_PART, text) is None:
        raise BadInput(field, text, NAME_RULE)
    return text
