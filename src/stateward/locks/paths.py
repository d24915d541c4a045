"""Paths: what is locked, compared by segment and never as strings, so that `/a` and `/ab` are unrelated.

What a person reads as one path is one path; what cannot be read for certain is refused.

    /a/b   a//b   /a/b/   //a/b     all are `/a/b`: there is no current folder, and slashes only separate
    /   //                          the whole tree
    (empty)                         refused: more often a forgotten value than a wish to lock everything
    /a/.   /a/../b                  refused: what they point at depends on who reads them
    é written in one or two signs   one path: segments are kept in Unicode's composed form (NFC)
    NUL, line ends, invisible signs refused, as are halves of surrogate pairs, which no store can write
    deep paths                      up to 1,000 levels; refused beyond

Upper and lower case differ, and blanks count.
"""

from __future__ import annotations

from unicodedata import category, normalize

from stateward.errors import BadInput
from stateward.locks.modes import Mode, compatible, intention

MAX_LEVELS = 1_000
"""How deep a path may be."""

MAX_SHOWN_CHARS = 200  # how much of a refused path an error repeats
INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
JOINERS = frozenset("\u200c\u200d")  # unseen by themselves, but Persian, Hindi and emoji are not written without them


class Path(tuple[str, ...]):
    """A path that has been read: the tuple of its segments; `str()` gives its one spelling. Made by `parse_path`."""

    __slots__ = ()

    def __str__(self) -> str:
        return "/" + "/".join(self)

    def __repr__(self) -> str:
        return f"<Path {self}>"


ROOT = Path()


def parse_path(text: object, field: str = "path") -> Path:
    """Read a path, or raise `BadInput` with the name of the field it came in."""
    if isinstance(text, Path):
        return text
    if not isinstance(text, str):
        raise BadInput(field, text, "a path such as /a/b")
    if not text:
        raise BadInput(field, text, "a path such as /a/b (the whole tree is /)")
    if not text.isprintable():
        for sign in text:
            if category(sign) in INVISIBLE_CATEGORIES and sign not in JOINERS:
                raise BadInput(
                    field, _shown(text), f"a path that can be read: U+{ord(sign):04X} is a control character"
                )
    path = Path(filter(None, (text if text.isascii() else normalize("NFC", text)).split("/")))
    if "." in path or ".." in path:
        raise BadInput(field, _shown(text), "a path without . and .. in it")
    if len(path) > MAX_LEVELS:
        raise BadInput(field, _shown(text), f"a path of at most {MAX_LEVELS:,} levels (it has {len(path):,})")
    return path


def conflict_between(path: Path, mode: Mode, other_path: Path, other_mode: Mode) -> bool:
    """Return whether two owners cannot hold these two locks of a tree at the same time."""
    if path == other_path:
        return not compatible(mode, other_mode)
    if other_path[: len(path)] == path:
        return not compatible(mode, intention(other_mode))
    if path[: len(other_path)] == other_path:
        return not compatible(intention(mode), other_mode)
    return False  # they share common ancestors only, where both have intentions, which never conflict


def _shown(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}..."
