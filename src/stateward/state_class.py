"""The classes of states.

Responses name them, so every command reads them; a command must not wait for the import of the lifecycle tables.
"""

from enum import StrEnum


class StateClass(StrEnum):
    """Whether an object may stay in a state."""

    STABLE = "stable"  # stays until asked to leave
    TRANSITIONAL = "transitional"  # work is under way; must end before a deadline
    FINAL = "final"  # the end; only the record's removal may follow
