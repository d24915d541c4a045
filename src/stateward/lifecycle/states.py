"""States: the words an object's status is written in.

A lifecycle's states are an enum whose members carry their class. A state *is* its word: it is stored, compared and
hashed as a plain string, so an object in memory costs one reference and no machine.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Self

from stateward.state_class import StateClass

ABSENT = "absent"  # the mark of a state in which an object does not exist
STABLE = StateClass.STABLE  # an object stays until it is asked to leave
TRANSITIONAL = StateClass.TRANSITIONAL  # work is under way, and must end before a deadline
FINAL = StateClass.FINAL  # the end; only the removal of the record may follow


class State(StrEnum):
    """The base of every lifecycle's enum of states: `RUNNING = "Running", STABLE, "up and reachable"`.

    With `ABSENT` at the end, an object in that state does not exist: its record is removed, and its history stays.
    """

    word: str
    """The state as its design writes it, as a plain string."""
    state_class: StateClass
    about: str
    is_absent: bool

    def __new__(cls, word: str, state_class: StateClass, about: str = "", absent: str = "") -> Self:
        self = str.__new__(cls, word)
        self._value_ = self.word = word
        self.state_class = state_class
        self.about = about
        self.is_absent = absent == ABSENT
        return self

    def __or__(self, other: State | States) -> States:
        return States((self,)) | other


class States(tuple[State, ...]):
    """Several states that share a row; joined with `|`."""

    __slots__ = ()

    def __or__(self, other: State | States) -> States:
        joined = (*self, other) if isinstance(other, State) else (*self, *other)
        return States(dict.fromkeys(joined))

    def __sub__(self, other: State | States) -> States:
        away = (other,) if isinstance(other, State) else other
        return States(state for state in self if state not in away)


class Boundary(State):
    """Where an object comes from before it has a state, and where it goes when its record is removed."""

    NEW = "(new)", STABLE, "does not exist yet"
    GONE = "(gone)", FINAL, "does not exist any more; the journal stays", ABSENT


NEW = Boundary.NEW  # the place that a new object comes from
GONE = Boundary.GONE  # the place of an object whose record was removed


class Back(Enum):
    """The outcome "back to where it was": the state that the action started from."""

    BACK = "back"


BACK = Back.BACK  # the state in which the work began


def every(states: type[State]) -> States:
    """Return all states that an object can leave: those that are not final."""
    return States(state for state in states if state.state_class is not FINAL)


def resting(states: type[State]) -> States:
    """Return the stable states."""
    return States(state for state in states if state.state_class is STABLE)


def moving(states: type[State]) -> States:
    """Return the transitional states."""
    return States(state for state in states if state.state_class is TRANSITIONAL)
