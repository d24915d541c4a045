"""Reports of other parties (agents, controllers) about requests that they work on, guarded by the operation's id."""

from msgspec import Struct

from stateward.engine.endings import advance
from stateward.engine.following import run_end_hooks
from stateward.engine.kinds import Kinds
from stateward.engine.promotion import promote_waiters
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import UnknownName
from stateward.lifecycle import NO_FACTS, Move, decide
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
    counted = [_hear(uow, kinds, word) for word in words]
    await run_end_hooks(uow, kinds)
    await promote_waiters(uow)
    await uow.apply()
    return counted


def _hear(uow: UnitOfWork, kinds: Kinds, word: ExternalReport) -> bool:
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
    journal(uow, found, word.op, word.actor, word.who, f"rejected: {word.event}", reason=why)
    return False
