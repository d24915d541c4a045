"""The horizon: how far back the journal is whole.

Behind it lies what was pruned. Up to the horizon's number lines may be missing, and so may those from before its time;
whatever follows is all there. It is raised before anything is dropped, and kept in an object of the deployment, so that
every process knows it: whoever reads old lines asks for it afterwards, and then knows what it may have missed.
"""

import msgspec
from msgspec import Struct

from stateward.errors import StatewardError
from stateward.lifecycle import CONTROLLER, GONE, NEW, STABLE, State, declare, step
from stateward.store.port import Reader
from stateward.store.records import Key, Object


class HistoryState(State):
    """The states of the deployment's history."""

    KEPT = "kept", STABLE, "reaches back to the horizon that its spec tells"


ROWS = (
    #    from               event    by          to
    step(NEW,               "prune", CONTROLLER, HistoryState.KEPT),
    step(HistoryState.KEPT, "prune", CONTROLLER, HistoryState.KEPT),
    step(HistoryState.KEPT, "end",   CONTROLLER, GONE),
)  # fmt: skip

HISTORY = declare("engine.history", HistoryState, ROWS, CONTROLLER, about="how far back the history reaches")
HISTORY_KEY = Key("(system)", "history")
"""Where it is kept: beside the tokens, in the namespace that only administrators see."""


class Horizon(Struct, frozen=True):
    """Lines up to this number, which are all older than this time, may have been dropped."""

    seq: int = 0
    before: float = 0.0


class EntriesPruned(StatewardError):
    """Lines of the journal are asked for, some of which were pruned."""

    code = "lines_gone"

    def __init__(self, after: int, horizon: int) -> None:
        super().__init__(after, horizon)
        self.after, self.horizon = after, horizon

    def __str__(self) -> str:
        return f"of the lines from {self.after + 1} to {self.horizon} some were pruned"


async def horizon(reader: Reader) -> Horizon:
    """Return how far back the journal is whole."""
    return horizon_in(await reader.object(HISTORY_KEY))


def horizon_in(found: Object | None) -> Horizon:
    """Return the horizon that an object tells; without one, nothing was ever pruned."""
    return Horizon() if found is None else msgspec.json.decode(found.spec, type=Horizon)


async def require_entries(reader: Reader, after: int) -> None:
    """Raise `EntriesPruned` if some of the lines that follow a number were pruned; to be asked when they were read."""
    kept = await horizon(reader)
    if after < kept.seq:
        raise EntriesPruned(after, kept.seq)
