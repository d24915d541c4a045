"""Recasting: a lifecycle has changed between two versions, and what is stored is brought along by a checked mapping.

A state that was renamed or given up is in no table any more, and an object that is left in it could never move again.
So an engine refuses to work on such a database, and says which states it does not know. A mapping of old words to new
ones mends that. All of it is checked before anything is written: who works stays in a transitional state, who rests
stays at rest, and no operation under way may be left with a state that does not exist.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

from msgspec.structs import replace

from stateward.engine.kinds import Kinds
from stateward.errors import BadInput, StatewardError
from stateward.lifecycle import CONTROLLER, TRANSITIONAL, Lifecycle
from stateward.store.changes import Changes
from stateward.store.filters import Page, Selector
from stateward.store.port import Reader, Store, Tx
from stateward.store.records import JournalEntry, Key, Object, Operation

StateMapping = Mapping[str, Mapping[str, str]]
"""For each kind, what its old states are called now."""

UnknownState = tuple[str, str]
"""A kind and a state that it does not have."""

MIGRATION_BATCH = 500
STATE_FIELDS = ("origin", "via", "desired", "failing")
"""What an operation remembers of its lifecycle."""


class UnknownStates(StatewardError):
    """Objects, or operations under way, are in states that their lifecycles do not have."""

    code = "stranded"

    def __init__(self, counts: Mapping[UnknownState, int]) -> None:
        super().__init__(counts)
        self.strays = {f"{kind}:{state}": number for (kind, state), number in sorted(counts.items())}

    def __str__(self) -> str:
        told = ", ".join(f"{number} in {stray}" for stray, number in self.strays.items())
        how = f"stateward migrate --map {next(iter(self.strays))}=NEW"
        return f"states that this version does not have: {told}; say what each of them is now, as in {how}"


class WorkersRunning(StatewardError):
    """Workers, perhaps of the former version, would write the old states again."""

    code = "still_at_work"

    def __init__(self, workers: Sequence[str]) -> None:
        super().__init__(workers)
        self.workers = tuple(workers)

    def __str__(self) -> str:
        return f"stop all workers first; still at work: {', '.join(self.workers)}"


async def unknown_states(reader: Reader, kinds: Kinds) -> Counter[UnknownState]:
    """Count the objects whose states are not in their lifecycles; kinds that nobody knows here are left alone."""
    known = {kind.name: _state_words(kind.lifecycle) for kind in kinds}
    found = Counter[UnknownState]()
    for ns in await reader.namespaces():
        for (kind, state), number in (await reader.count_states(Selector(ns))).items():
            if kind in known and state not in known[kind]:
                found[kind, state] += number
    return found


async def refuse_unknown_states(reader: Reader, kinds: Kinds) -> None:
    """Refuse to work on what could never move again."""
    found = await unknown_states(reader, kinds)
    if found:
        raise UnknownStates(found)


async def migrate_states(store: Store, kinds: Kinds, mapped: StateMapping, who: str = "") -> Counter[UnknownState]:
    """Give objects, and the operations under way on them, their new states; returns how many there were of each."""
    _check_mapping(kinds, mapped)
    await _refuse_workers(store.reader)
    left = {
        stray: number
        for stray, number in (await unknown_states(store.reader, kinds)).items()
        if not _is_mapped(mapped, stray)
    }
    if left:
        raise UnknownStates(left)
    async for keys in _pages(store.reader, mapped):
        await store.transact(lambda tx, keys=keys: _check(tx, kinds, mapped, keys))  # type: ignore[misc]
    done = Counter[UnknownState]()
    async for keys in _pages(store.reader, mapped):
        done += await store.transact(lambda tx, keys=keys: _write(tx, mapped, keys, who))  # type: ignore[misc]
    return done


# --- what is allowed -------------------------------------------------------------------------------------------------


def _state_words(lifecycle: Lifecycle) -> frozenset[str]:
    return frozenset(state.word for state in lifecycle.states)


def _is_mapped(mapped: StateMapping, stray: UnknownState) -> bool:
    return stray[1] in mapped.get(stray[0], {})


def _check_mapping(kinds: Kinds, mapped: StateMapping) -> None:
    for kind, words in mapped.items():
        known = _state_words(kinds[kind].lifecycle)
        for old, new in words.items():
            if old in known:
                raise BadInput(f"{kind}:{old}", new, "a state that the kind does not have any more")
            if new not in known:
                raise BadInput(f"{kind}:{old}", new, f"one of {', '.join(sorted(known))}")


async def _refuse_workers(reader: Reader) -> None:
    now = await reader.time()
    alive = [one.id for one in await reader.workers() if one.is_alive(now)]
    if alive:
        raise WorkersRunning(alive)


async def _check(tx: Tx, kinds: Kinds, mapped: StateMapping, keys: Sequence[Key]) -> None:
    objects, operations = await _load_with_operations(tx, keys)
    for found in objects:
        lifecycle, new = kinds[found.kind].lifecycle, mapped[found.kind].get(found.state)
        if new is None:
            continue
        works = found.op is not None
        if works != (lifecycle.state(new).state_class is TRANSITIONAL):
            allowed = (
                "a transitional state, for it is under way" if works else "a state at rest, for nothing is under way"
            )
            raise BadInput(f"{found.kind}:{found.state}", new, f"{allowed} on {found.id!r}")
    words = {kind: _state_words(kinds[kind].lifecycle) for kind in mapped}
    left = Counter(
        (one.kind, word)
        for one in operations
        for word in _remembered_states(_migrate_operation(one, mapped))
        if word not in words[one.kind]
    )
    if left:
        raise UnknownStates(left)


# --- what is written -------------------------------------------------------------------------------------------------


async def _pages(reader: Reader, mapped: StateMapping) -> AsyncIterator[list[Key]]:
    """Yield all objects of the kinds, a batch at a time: whatever state they are in, their operations may remember."""
    for ns in await reader.namespaces():
        for kind in mapped:
            after: str | None = None
            while found := await reader.list_objects(Selector(ns, kind), Page(after, MIGRATION_BATCH)):
                yield [one.key for one in found]
                after = found[-1].id


async def _load_with_operations(tx: Tx, keys: Sequence[Key]) -> tuple[list[Object], list[Operation]]:
    objects = list((await tx.objects(keys)).values())
    names = {one.key for one in objects}
    work = await tx.queues({Key(one.ns, one.queue) for one in objects})
    mine = {one.key for one in work if Key(one.ns, one.object) in names}
    return objects, list((await tx.operations(mine)).values()) if mine else []


async def _write(tx: Tx, mapped: StateMapping, keys: Sequence[Key], who: str) -> Counter[UnknownState]:
    objects, operations = await _load_with_operations(tx, keys)
    strange = [one for one in objects if one.state in mapped[one.kind]]
    changed = [(one, _migrate_operation(one, mapped)) for one in operations]
    moved = [replace(one, state=mapped[one.kind][one.state], version=one.version + 1) for one in strange]
    lines = [_migration_entry(old, new, tx.now, who) for old, new in zip(strange, moved, strict=True)]
    recasted = [new for old, new in changed if new != old]
    if moved or recasted:
        await tx.apply(Changes(objects=moved, journal=lines, renamed_states=recasted))
    return Counter((one.kind, one.state) for one in strange)


def _migration_entry(old: Object, new: Object, now: float, who: str) -> JournalEntry:
    why = "the state has another name in this version"
    return JournalEntry(
        old.ns, old.id, old.kind, old.op, now, CONTROLLER, who, "recast", old.state, new.state, why, None
    )


def _remembered_states(operation: Operation) -> Iterable[str]:
    return (getattr(operation, name) for name in STATE_FIELDS)


def _migrate_operation(operation: Operation, mapped: StateMapping) -> Operation:
    words = mapped[operation.kind]
    return replace(
        operation,
        **{name: words.get(word, word) for name, word in zip(STATE_FIELDS, _remembered_states(operation), strict=True)},
    )
