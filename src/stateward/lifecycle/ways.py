"""Which ways lead from one state to another: the question that `validate` asks of a table."""

from stateward.lifecycle.moves import Allowed
from stateward.lifecycle.rows import BEGINNINGS, Meaning
from stateward.lifecycle.table import Lifecycle

PLAIN = (BEGINNINGS - {Meaning.HIDDEN}) | {Meaning.STEP}
"""The rows that bring an object from one state to another; hidden work leaves it where it is."""


def ways(lifecycle: Lifecycle, start: str, end: str) -> tuple[Allowed, ...]:
    """Return what can be asked for in the first state that is to end in the second; raises on unknown states."""
    wanted = lifecycle.state(end)
    here = lifecycle.allowed[lifecycle.state(start)]
    return tuple(one for one in here if one.meaning in PLAIN and (one.desired or one.target) == wanted)
