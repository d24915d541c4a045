"""The five modes of multiple-granularity locking, and their compatibility.

The modes and their matrix are those of Gray, Lorie, Putzolu and Traiger (1975). A lock on a node covers everything
below it; an intention on a node says that something below it is locked.
"""

from enum import StrEnum

from stateward.errors import BadInput


class Mode(StrEnum):
    """The mode of a lock."""

    IS = "IS"  # something below is being read
    IX = "IX"  # something below is being changed
    S = "S"  # all of it is being read
    SIX = "SIX"  # all of it is being read, and something below changed
    X = "X"  # all of it is being changed


IS, IX, S, SIX, X = Mode.IS, Mode.IX, Mode.S, Mode.SIX, Mode.X

# fmt: off
COMPATIBLE: dict[Mode, dict[Mode, bool]] = {
    IS:  {IS: True,  IX: True,  S: True,  SIX: True,  X: False},
    IX:  {IS: True,  IX: True,  S: False, SIX: False, X: False},
    S:   {IS: True,  IX: False, S: True,  SIX: False, X: False},
    SIX: {IS: True,  IX: False, S: False, SIX: False, X: False},
    X:   {IS: False, IX: False, S: False, SIX: False, X: False},
}

INTENTION: dict[Mode, Mode] = {
    IS:  IS,
    IX:  IX,
    S:   IS,
    SIX: IX,
    X:   IX,
}
# fmt: on


def compatible(a: Mode, b: Mode) -> bool:
    """Return whether two owners may hold one node in these modes at the same time."""
    return COMPATIBLE[a][b]


def intention(mode: Mode) -> Mode:
    """Return the intention mode that a lock in this mode takes on every ancestor of its node."""
    return INTENTION[mode]


def as_mode(value: object) -> Mode:
    """Return the mode of a name; raises with the known modes."""
    if isinstance(value, Mode):
        return value
    if isinstance(value, str):
        try:
            return Mode(value)
        except ValueError:
            pass
    raise BadInput("mode", value, f"one of {', '.join(Mode)}")
