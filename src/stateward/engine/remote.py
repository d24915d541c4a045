"""Reports of other parties (agents, controllers) about requests that they work on, guarded by the operation's id."""

from msgspec import Struct

from stateward.engine.change import journal
from stateward.engine.desk import Desk
from stateward.engine.endings import advance
from stateward.engine.following import follow
from stateward.engine.kinds import Kinds
from stateward.engine.promotion import bring_forward
from stateward.errors import UnknownName
from stateward.lifecycle import NO_FACTS, Move, decide
from stateward.store.port import Tx
from stateward.store.records import Key, Object


class Word(Struct, frozen=True):
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


async def hear(tx: Tx, kinds: Kinds, words: list[Word]) -> list[bool]:
    """Take a batch of reports; tells for each whether it counted. One that does not is journaled as rejected."""
    desk = Desk(tx)
    await desk.load({Key(word.ns, word.object) for word in words})
    await desk.load_operations({Key(word.ns, word.op) for word in words})
    trees = {Key(one.ns, one.tree) for one in desk.operations.values() if one.tree is not None}
    await desk.load_locks(trees)
    counted = [_hear(desk, kinds, word) for word in words]
    await follow(desk, kinds)
    await bring_forward(desk)
    await desk.apply()
    return counted


def _hear(desk: Desk, kinds: Kinds, word: Word) -> bool:
    found = desk.objects.get(Key(word.ns, word.object))
    if found is None:
        return False
    operation = desk.operations.get(Key(word.ns, word.op))
    if operation is None or found.op != word.op:
        return _reject(desk, found, word, "it is about an operation that is not the current one")
    if word.generation != operation.generation:
        return _reject(desk, found, word, f"it is about generation {word.generation}, not {operation.generation}")
    lifecycle = kinds[found.kind].lifecycle
    try:
        verdict = decide(lifecycle, found.state, word.event, word.actor, word.facts, operation.origin)
    except UnknownName as unknown:
        return _reject(desk, found, word, str(unknown))
    if not isinstance(verdict, Move):
        return _reject(desk, found, word, str(verdict))
    if verdict.begins:
        return _reject(desk, found, word, "it would begin something, and a report only tells")
    advance(desk, found, operation, verdict, word.who, word.result, word.error, word.seen)
    return True


def _reject(desk: Desk, found: Object, word: Word, why: str) -> bool:
    journal(desk, found, word.op, word.actor, word.who, f"rejected: {word.event}", reason=why)
    return False
