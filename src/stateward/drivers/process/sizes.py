"""Sizes of machines: a few names, and any other as `{processors}c{memory}m` or `...g`."""

import re

from msgspec import Struct

FORM = re.compile(r"([1-9][0-9]{0,2})c([1-9][0-9]{0,6})([mg])")


class Size(Struct, frozen=True):
    """How large a machine is."""

    processors: int
    mib: int


NAMED = {
    "tiny":   Size(1, 8),
    "small":  Size(1, 64),
    "medium": Size(2, 256),
    "large":  Size(4, 1024),
}  # fmt: skip


def size_of(spec: str) -> Size | None:
    """Return the size that a spec means, if it means one."""
    if spec in NAMED:
        return NAMED[spec]
    if not (match := FORM.fullmatch(spec)):
        return None
    return Size(int(match[1]), int(match[2]) * (1024 if match[3] == "g" else 1))
