"""Sightings: what a provider shows of objects at rest, taken over as a set.

A provider changes objects behind our back. Whoever lists them tells the engine; many may do so at the same time, with
listings of different age. One transaction takes all sightings of a listing, however many objects it shows.

Invariant: a sighting changes no object that an operation holds, and none that has changed since the provider was asked.
"""

from collections.abc import Sequence

from msgspec import Struct

from stateward.engine.kinds import Kinds
from stateward.engine.transitions import change_state
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import PROVIDER, Move, decide
from stateward.store.port import Tx
from stateward.store.records import Key, Object


class Sighting(Struct, frozen=True, gc=False):
    """An event that a provider's listing shows; `at` is the store's time from which on the listing is true."""

    ns: str
    object: str
    event: str
    at: float
    seen: str | None = None  # what was seen of the object, as JSON
    reason: str | None = None  # for the journal, and for the object


async def take_sightings(tx: Tx, kinds: Kinds, sightings: Sequence[Sighting]) -> list[bool]:
    """Change objects to what is shown; tells for each sighting whether it counted."""
    uow = UnitOfWork(tx)
    await uow.load({Key(one.ns, one.object) for one in sightings})
    counted = [_take(uow, kinds, one) for one in sightings]
    await uow.apply()
    return counted


def _take(uow: UnitOfWork, kinds: Kinds, one: Sighting) -> bool:
    found = uow.objects.get(Key(one.ns, one.object))
    if found is None or found.removed or not _is_newer(one, found):
        return False
    move = decide(kinds[found.kind].lifecycle, found.state, one.event, PROVIDER)
    if not isinstance(move, Move):
        return False
    change_state(uow, found, move, "", None, seen=one.seen, error=one.reason)
    return True


def _is_newer(one: Sighting, found: Object) -> bool:
    """Tell whether the provider was asked after the object came to rest: an older sighting tells of what was before."""
    return found.op is None and found.since <= one.at
