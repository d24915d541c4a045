"""How long a deploy or a teardown waits for its locks: a timer ends the waiting, and is taken back at the start."""

from stateward.store.records import Timer

GAVE_UP = "gave up"


def patience_of(change: str) -> str:
    """Return the id of the timer of a deploy or a teardown."""
    return f"patience of {change}"


def patience(ns: str, change: str, due: float) -> Timer:
    """Return the timer by which waiting ends."""
    return Timer(ns, patience_of(change), due, 0, change, GAVE_UP, "[]", "{}")
