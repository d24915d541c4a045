"""State migration: stored states that a new version does not have any more are mapped to new ones.

An object in a state that was renamed or removed could never move again. So an engine refuses to start on such a
database, and names the unknown states. A mapping of old states to new ones migrates them. All of it is checked before
anything is written: an object with a running operation must map to a transitional state, any other to a stable one, and
no running operation may keep a state that does not exist.
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
from stateward.store.records import STATE_FIELDS, JournalEntry, Key, Object, Operation

StateMapping = Mapping[str, Mapping[str, str]]
"""For each kind, the new state of each old one."""

UnknownState = tuple[str, str]
"""A kind and a state that it does not have."""

MIGRATION_BATCH = 500
RECAST_REASON = "the state has another name in this version"


class UnknownStates(StatewardError):
    """Objects or running operations have states that are not in their lifecycles."""

    code = "stranded"

    def __init__(self, counts: Mapping[UnknownState, int]) -> None:
        super().__init__(counts)
        self.counts = {f"{kind}:{state}": number for (kind, state), number in sorted(counts.items())}

    def __str__(self) -> str:
        counts = ", ".join(f"{number} in {state}" for state, number in self.counts.items())
        command = f"stateward migrate --map {next(iter(self.counts))}=NEW"
        return f"states that this version does not have: {counts}; say what each of them is now, as in {command}"


class WorkersRunning(StatewardError, code="still_at_work"):
    """Workers are running; those of the former version would write the old states again."""

    workers: tuple[str, ...]
    text = "stop all workers first; still at work: {workers}"


async def unknown_states(reader: Reader, kinds: Kinds) -> Counter[UnknownState]:
    """Count objects by states that are not in their lifecycles; kinds that this process does not know are ignored."""
    known = {kind.name: _state_words(kind.lifecycle) for kind in kinds}
    counts = Counter[UnknownState]()
    for ns in await reader.namespaces():
        for (kind, state), number in (await reader.count_states(Selector(ns))).items():
            if kind in known and state not in known[kind]:
                counts[kind, state] += number
    return counts


async def refuse_unknown_states(reader: Reader, kinds: Kinds) -> None:
    """Raise `UnknownStates` if there are objects that could never move again."""
    unknown = await unknown_states(reader, kinds)
    if unknown:
        raise UnknownStates(unknown)


async def migrate_states(store: Store, kinds: Kinds, mapped: StateMapping, who: str = "") -> Counter[UnknownState]:
    """Migrate objects and their running operations to new states; returns how many objects had each old state."""
    for kind, words in mapped.items():
        known = _state_words(kinds[kind].lifecycle)
        for old, new in words.items():
            if old in known:
                raise BadInput("map", f"{kind}:{old}", "a state that the kind does not have any more")
            if new not in known:
                raise BadInput(f"{kind}:{old}", new, f"one of {', '.join(sorted(known))}")
    await store.transact(_refuse_workers)
    left = {
        unknown: number
        for unknown, number in (await unknown_states(store.reader, kinds)).items()
        if unknown[1] not in mapped.get(unknown[0], {})
    }
    if left:
        raise UnknownStates(left)
    async for keys in _pages(store.reader, mapped):
        await store.transact(lambda tx, keys=keys: _check(tx, kinds, mapped, keys))  # type: ignore[misc]
    done = Counter[UnknownState]()
    async for keys in _pages(store.reader, mapped):
        done += await store.transact(lambda tx, keys=keys: _write(tx, kinds, mapped, keys, who))  # type: ignore[misc]
    return done


# --- checks ----------------------------------------------------------------------------------------------------------


def _state_words(lifecycle: Lifecycle) -> frozenset[str]:
    return frozenset(state.word for state in lifecycle.states)


async def _refuse_workers(tx: Tx) -> None:
    alive = [worker.id for worker in await tx.workers() if worker.is_alive(tx.now)]
    if alive:
        raise WorkersRunning(tuple(alive))


async def _check(
    tx: Tx, kinds: Kinds, mapped: StateMapping, keys: Sequence[Key]
) -> tuple[list[Object], list[Operation]]:
    objects = list((await tx.objects(keys)).values())
    names = {record.key for record in objects}
    work = await tx.queues({Key(record.ns, record.queue) for record in objects})
    mine = {work_item.key for work_item in work if Key(work_item.ns, work_item.object) in names}
    operations = list((await tx.operations(mine)).values()) if mine else []
    await _refuse_workers(tx)
    for record in objects:
        lifecycle, new = kinds[record.kind].lifecycle, mapped[record.kind].get(record.state)
        if new is None:
            continue
        is_busy = record.op is not None
        if is_busy != (lifecycle.state(new).state_class is TRANSITIONAL):
            allowed = (
                "a transitional state, for an operation is under way"
                if is_busy
                else "a state at rest, for nothing is under way"
            )
            raise BadInput(f"{record.kind}:{record.state}", new, f"{allowed} on {record.id!r}")
    words = {kind: _state_words(kinds[kind].lifecycle) for kind in mapped}
    left = Counter(
        (operation.kind, word)
        for operation in operations
        for word in _remembered_states(_migrate_operation(operation, mapped))
        if word not in words[operation.kind]
    )
    if left:
        raise UnknownStates(left)
    return objects, operations


# --- migration -------------------------------------------------------------------------------------------------------


async def _pages(reader: Reader, mapped: StateMapping) -> AsyncIterator[list[Key]]:
    """Yield all objects of the kinds, in batches; in any state, their operations may have an old state."""
    for ns in await reader.namespaces():
        for kind in mapped:
            after: str | None = None
            while records := await reader.list_objects(Selector(ns, kind), Page(after, MIGRATION_BATCH)):
                yield [record.key for record in records]
                after = records[-1].id


async def _write(tx: Tx, kinds: Kinds, mapped: StateMapping, keys: Sequence[Key], who: str) -> Counter[UnknownState]:
    """Migrate a batch; what has changed since the first check is checked again, under the locks of the objects."""
    objects, operations = await _check(tx, kinds, mapped, keys)
    outdated = [record for record in objects if record.state in mapped[record.kind]]
    changed = [(operation, _migrate_operation(operation, mapped)) for operation in operations]
    moved = [
        replace(record, state=mapped[record.kind][record.state], version=record.version + 1) for record in outdated
    ]
    entries = [
        JournalEntry(*old.key, old.kind, old.op, tx.now, CONTROLLER, who, "recast", old.state, new.state, RECAST_REASON)
        for old, new in zip(outdated, moved, strict=True)
    ]
    migrated = [new for old, new in changed if new != old]
    if moved or migrated:
        await tx.apply(Changes(objects=moved, journal=entries, renamed_states=migrated))
    return Counter((record.kind, record.state) for record in outdated)


def _remembered_states(operation: Operation) -> Iterable[str]:
    return (getattr(operation, name) for name in STATE_FIELDS)


def _migrate_operation(operation: Operation, mapped: StateMapping) -> Operation:
    words = mapped[operation.kind]
    return replace(
        operation,
        **{name: words.get(word, word) for name, word in zip(STATE_FIELDS, _remembered_states(operation), strict=True)},
    )
