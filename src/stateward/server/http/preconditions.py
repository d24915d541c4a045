"""Entity tags: an object's version in quotation marks, and what the caller makes depend on it."""

import re

from stateward.server.service import Service
from stateward.store.records import Key

ANY = "*"
_TAG = re.compile(r'(W/)?"([^"]*)"')
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")

NO_VERSION = 0
"""A version that no object has."""


def etag_of(version: int) -> str:
    """Return the tag of a version."""
    return f'"{version}"'


def is_unchanged(if_none_match: str | None, version: int) -> bool:
    """Tell whether the caller has seen this version already; tags are compared weakly, as for reading."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == ANY or any(tag == str(version) for _, tag in _TAG.findall(if_none_match))


def wanted_versions(if_match: str | None) -> tuple[int, ...] | None:
    """Return the versions of which the object must have one; None if any will do.

    Tags are compared strongly, as for writing: a weak one fits nothing, and neither does one that is not ours.
    """
    if if_match is None or if_match.strip() == ANY:
        return None
    strong = [tag for weak, tag in _TAG.findall(if_match) if not weak]
    return tuple(int(tag) for tag in strong if _NUMBER.fullmatch(tag)) or (NO_VERSION,)


async def required_version(service: Service, key: Key, if_match: str | None) -> int | None:
    """Return the version that an object must have when the request is accepted; None if any will do.

    Of several versions it is the one that the object has now; if it has none of them, it may as well be the first.
    """
    wanted = wanted_versions(if_match)
    if wanted is None:
        return None
    if len(wanted) == 1:
        return wanted[0]
    found = await service.engine.get(*key)
    return found.version if found.version in wanted else wanted[0]
