"""Preconditions: ETags of objects, `If-Match` and `If-None-Match`. The ETag of an object is its version in quotes."""

import re

from stateward.engine.errors import VersionMismatch
from stateward.server.service import Service
from stateward.store.records import Key

ANY = "*"
_TAG = re.compile(r'(W/)?"([^"]*)"')
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")

NO_VERSION = 0
"""A version that no object has."""


class TagNeverMatches(VersionMismatch):
    """`If-Match` has no tag that an object could have."""

    text = (
        "object {object!r} is at version {found}, and If-Match names no version: a weak tag, such as W/"
        '"{found}", or one that is not a number never matches'
    )


def etag_of(version: int) -> str:
    """Return the tag of a version."""
    return f'"{version}"'


def is_unchanged(if_none_match: str | None, version: int) -> bool:
    """Return whether `If-None-Match` has this version; tags are compared weakly (RFC 9110), as for reading."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == ANY or any(tag == str(version) for _, tag in _TAG.findall(if_none_match))


def wanted_versions(if_match: str | None) -> tuple[int, ...] | None:
    """Return the versions that `If-Match` lists; None if it allows any version.

    Tags are compared strongly (RFC 9110), as for writing: a weak tag, or one that is not a version, matches nothing.
    """
    if if_match is None or if_match.strip() == ANY:
        return None
    strong = [tag for weak, tag in _TAG.findall(if_match) if not weak]
    return tuple(int(tag) for tag in strong if _NUMBER.fullmatch(tag)) or (NO_VERSION,)


async def required_version(service: Service, key: Key, if_match: str | None) -> int | None:
    """Return the version that an object must have when the request is accepted; None if any version is allowed.

    `If-Match` may list several versions: it is the current one if listed, otherwise any (the request fails with 412).
    """
    wanted = wanted_versions(if_match)
    if wanted is None:
        return None
    if len(wanted) == 1 and wanted != (NO_VERSION,):
        return wanted[0]
    record = await service.engine.record(*key)
    if wanted == (NO_VERSION,):
        raise TagNeverMatches(key.id, NO_VERSION, record.version)
    return record.version if record.version in wanted else wanted[0]
