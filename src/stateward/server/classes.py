"""The class of every state of every kind, looked up once per answer."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from stateward.engine import Kind
from stateward.lifecycle import StateClass

StateClasses: TypeAlias = Mapping[tuple[str, str], StateClass]
"""By kind and state; a state of a kind that this process does not know is not there."""


def state_classes(kinds: Iterable[Kind]) -> StateClasses:
    """Return the classes of all states of these kinds."""
    return {(kind.name, state.word): state.state_class for kind in kinds for state in kind.lifecycle.states}
