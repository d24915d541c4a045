"""Reports of other parties (agents, controllers) about requests that they work on, guarded by the operation's id."""

from collections.abc import Sequence

from msgspec import Struct

from stateward.engine.finish.completion import advance
from stateward.engine.kinds import Kinds, run_end_hooks
from stateward.engine.transitions import change_state, journal_rejection
from stateward.engine.unit_of_work import UnitOfWork, promote_waiters
from stateward.errors import UnknownName
from stateward.lifecycle import NO_FACTS, PROVIDER, Move, decide
from stateward.store.port import Tx
from stateward.store.records import Key, Object


class ExternalReport(Struct, frozen=True):
    """What another party says about an operation that it works on."""

    ns: str
    object: str
    op: str
    generation: int
    event: str
    actor: str
    who: str = ""
    facts: frozenset[str] = NO_FACTS
    error: str | None = None
    result: str | None = None
    seen: str | None = None


async def record_external_reports(tx: Tx, kinds: Kinds, words: list[ExternalReport]) -> list[bool]:
    """Take a batch of reports; tells for each whether it counted. One that does not is journaled as rejected."""
    uow = UnitOfWork(tx)
    await uow.load({Key(word.ns, word.object) for word in words})
    await uow.load_operations({Key(word.ns, word.op) for word in words})
    trees = {Key(one.ns, one.tree) for one in uow.operations.values() if one.tree is not None}
    await uow.load_locks(trees)
    counted = [_record_report(uow, kinds, word) for word in words]
    await run_end_hooks(uow, kinds)
    await promote_waiters(uow)
    await uow.apply()
    return counted


def _record_report(uow: UnitOfWork, kinds: Kinds, word: ExternalReport) -> bool:
    found = uow.objects.get(Key(word.ns, word.object))
    if found is None:
        return False
    operation = uow.operations.get(Key(word.ns, word.op))
    if operation is None or found.op != word.op:
        return _reject(uow, found, word, "it is about an operation that is not the current one")
    if word.generation != operation.generation:
        return _reject(uow, found, word, f"it is about generation {word.generation}, not {operation.generation}")
    lifecycle = kinds[found.kind].lifecycle
    try:
        verdict = decide(lifecycle, found.state, word.event, word.actor, word.facts, operation.origin)
    except UnknownName as unknown:
        return _reject(uow, found, word, str(unknown))
    if not isinstance(verdict, Move):
        return _reject(uow, found, word, str(verdict))
    if verdict.begins:
        return _reject(uow, found, word, "it would begin something, and a report only tells")
    advance(uow, found, operation, verdict, word.who, word.result, word.error, word.seen)
    return True


def _reject(uow: UnitOfWork, found: Object, word: ExternalReport, why: str) -> bool:
    journal_rejection(uow, found, word.op, word.actor, word.who, word.event, why)
    return False


class Sighting(Struct, frozen=True, gc=False):
    """An event that a provider's listing shows; `at` is the store's time from which on the listing is true."""

    ns: str
    object: str
    event: str
    at: float
    seen: str | None = None  # what was seen of the object, as JSON
    reason: str | None = None  # for the journal, and for the object


async def record_sightings(tx: Tx, kinds: Kinds, sightings: Sequence[Sighting]) -> list[bool]:
    """Change objects to what is shown; tells for each sighting whether it counted."""
    uow = UnitOfWork(tx)
    await uow.load({Key(one.ns, one.object) for one in sightings})
    counted = [_record_sighting(uow, kinds, one) for one in sightings]
    await uow.apply()
    return counted


def _record_sighting(uow: UnitOfWork, kinds: Kinds, one: Sighting) -> bool:
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
