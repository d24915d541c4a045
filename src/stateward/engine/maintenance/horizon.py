"""The horizon: the oldest point from which the journal is complete; entries before it may have been pruned.

The horizon is raised before entries are dropped, and stored in an object of the deployment, so that every process knows
it. A reader of old entries asks for the horizon after it has read them, and so learns whether it may have missed some.
"""

import msgspec
from msgspec import Struct

from stateward.errors import StatewardError
from stateward.lifecycle import CONTROLLER, GONE, NEW, STABLE, State, declare, step
from stateward.store.port import Reader
from stateward.store.records import Key, Object


class HistoryState(State):
    """The states of the deployment's history."""

    KEPT = "kept", STABLE, "reaches back to the horizon in its spec"


ROWS = (
    #    from               event    by          to
    step(NEW,               "prune", CONTROLLER, HistoryState.KEPT),
    step(HistoryState.KEPT, "prune", CONTROLLER, HistoryState.KEPT),
    step(HistoryState.KEPT, "end",   CONTROLLER, GONE),
)  # fmt: skip

HISTORY = declare("engine.history", HistoryState, ROWS, CONTROLLER, about="how far back the history reaches")
HISTORY_KEY = Key("(system)", "history")
"""The object that stores the horizon, in the namespace that only administrators see."""


class Horizon(Struct, frozen=True):
    """Entries up to this number, all of them older than this time, may have been pruned.

    Pruning has walked the journal up to the number `walked`, and last from its very beginning at the time `whole_at`.
    """

    seq: int = 0
    before: float = 0.0
    walked: int = 0
    whole_at: float = 0.0


class EntriesPruned(StatewardError):
    """Some of the requested journal entries were pruned."""

    code = "lines_gone"

    after: int
    horizon: int

    def __str__(self) -> str:
        return f"of the lines from {self.after + 1} to {self.horizon} some were pruned"


async def horizon(reader: Reader) -> Horizon:
    """Return the point from which the journal is complete."""
    return horizon_in(await reader.object(HISTORY_KEY))


def horizon_in(record: Object | None) -> Horizon:
    """Return the horizon that is stored in an object; without an object, nothing was ever pruned."""
    return Horizon() if record is None else msgspec.json.decode(record.spec, type=Horizon)


async def require_entries(reader: Reader, after: int) -> None:
    """Raise `EntriesPruned` if some of the lines that follow a number were pruned; to be asked when they were read."""
    kept = await horizon(reader)
    if after < kept.seq:
        raise EntriesPruned(after, kept.seq)
