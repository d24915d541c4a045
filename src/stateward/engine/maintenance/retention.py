"""Retention: old history is pruned, so that a deployment that runs for years does not grow without limit.

Current data is never touched. Pruned are operations whose parents and children have all ended before the limit, and
which hold nothing; removed objects that nothing refers to; journal entries, except those with the state of an existing
object; and idempotency records whose operation has ended. After that, a key can be used again, and an object of the
same name begins at version 1.

The journal is walked from its beginning up to the limit in portions, and after each portion pruning rests as long as it
has worked. It may be stopped anywhere and continued, by several processes at once.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct
from msgspec.structs import astuple, replace

from stateward.engine.bounded_reads import last_seq_before
from stateward.engine.kinds import Kind
from stateward.engine.maintenance.horizon import HISTORY, HISTORY_KEY, HistoryState, Horizon, horizon, horizon_in
from stateward.engine.transitions import absent_object, time_text
from stateward.errors import count_text
from stateward.lifecycle import CONTROLLER
from stateward.store.changes import Changes
from stateward.store.port import Reader, Store, Tx
from stateward.store.records import JournalEntry, Key, to_json
from stateward.store.retention import BEFORE_ALL_KEYS, JournalSpan, PruneCandidate

PORTION_ROWS = 1_000
"""How many journal entries are read, and how many rows are dropped at most in one transaction."""

WHOLE_INTERVAL_S = 86_400.0
"""How often pruning by the hour begins at the very beginning of the journal."""


class Pruned(Struct, frozen=True):
    """How much was pruned, or would be; `next` is the number to go on from, if the time was too short for all."""

    operations: int = 0
    objects: int = 0
    entries: int = 0
    idempotency_records: int = 0
    next: int | None = None

    def __str__(self) -> str:
        parts = (
            count_text(self.operations, "operation"),
            count_text(self.objects, "removed object"),
            count_text(self.entries, "journal entry", "journal entries"),
        )
        return f"{', '.join(parts)} and {count_text(self.idempotency_records, 'idempotency record')}"


def history_kind() -> Kind:
    """Return the kind of the deployment's history object."""
    return Kind(HISTORY, general=False)


async def prune(
    store: Store,
    before: float,
    *,
    dry: bool = False,
    who: str = "",
    after: int = 0,
    within: float | None = None,
    portion: int = PORTION_ROWS,
) -> Pruned:
    """Prune history from before a time, or only count it (`dry`); stop after about `within` seconds."""
    run = PruneRun(store, before, dry=dry, portion=portion)
    clock = asyncio.get_running_loop().time
    begun, seq = clock(), after
    newest = await store.reader.last_journal_seq()  # it always stays, so that the end of the journal never moves back
    last = min(await last_seq_before(store.reader, before, 0, newest), newest - 1)
    began_at, known = await store.reader.time(), await horizon(store.reader)
    if not after:  # first: a key that is still known must find its operation
        await run.prune_idempotency_records()
    while (span := await store.retention.journal_span(seq, last, portion)) is not None:
        async with _rest_as_long():
            await run.prune_span(span, last)
        seq = span.upto
        if within is not None and clock() - begun > within:
            break
    done = run.done if span is None else replace(run.done, next=seq)
    if not dry:
        is_whole = not after and span is None
        walked = Horizon(walked=seq if after <= known.walked else 0, whole_at=began_at if is_whole else 0.0)
        await store.transact(lambda tx: _raise_horizon(tx, walked, before, done, who))
    return done


class PruneRun:
    """One run of pruning, and what it has pruned so far."""

    def __init__(self, store: Store, before: float, *, dry: bool, portion: int) -> None:
        self._store, self._pruning = store, store.retention
        self._before, self._dry, self._portion = before, dry, portion
        self._counted: set[Key] = set()
        self.done = Pruned()

    async def prune_span(self, span: JournalSpan, last: int) -> None:
        """Prune a span of the journal: operations and objects first, because entries name them."""
        operations = await self._pruning.operations(span, self._before)
        objects = await self._pruning.objects(span, self._before)
        if self._dry:
            keys = {candidate.key for candidate in operations}, {candidate.key for candidate in objects}
            entries = await self._pruning.journal_entries(span, self._before, last, *keys)
            self._count(self._count_begun(operations), self._count_begun(objects), len(entries))
            self._counted = {candidate.key for candidate in (*operations, *objects) if candidate.is_first_entry}
            return
        gone = 0
        keys_gone = [candidate.key for candidate in operations]
        for at in range(0, len(keys_gone), self._portion):
            gone += await self._pruning.drop_operations(keys_gone[at : at + self._portion])
        removed = (
            await self._pruning.drop_objects([candidate.key for candidate in objects], self._before) if objects else 0
        )
        self._count(gone, removed, await self._prune_entries(span, last))

    async def prune_idempotency_records(self) -> None:
        """Prune idempotency records."""
        after: Key | None = BEFORE_ALL_KEYS
        while after is not None:
            async with _rest_as_long():
                page = await self._pruning.idempotency_records(after, self._before, self._portion)
                gone = len(page.keys)
                if page.keys and not self._dry:
                    gone = await self._pruning.drop_idempotency_records(page.keys, self._before)
            self.done = replace(self.done, idempotency_records=self.done.idempotency_records + gone)
            after = page.next

    async def _prune_entries(self, span: JournalSpan, last: int) -> int:
        """Drop journal entries; the horizon is raised first, so that concurrent readers notice."""
        numbers = await self._pruning.journal_entries(span, self._before, last)
        if not numbers:
            return 0
        await self._store.transact(lambda tx: _raise_horizon(tx, Horizon(numbers[-1], self._before), self._before))
        return await self._pruning.drop_journal_entries(numbers)

    def _count_begun(self, candidates: Sequence[PruneCandidate]) -> int:
        """Count rows that began in a span; a row on the edge of two spans was counted with the first."""
        return sum(candidate.is_first_entry and candidate.key not in self._counted for candidate in candidates)

    def _count(self, operations: int, objects: int, entries: int) -> None:
        done = self.done
        self.done = replace(
            done,
            operations=done.operations + operations,
            objects=done.objects + objects,
            entries=done.entries + entries,
        )


async def prune_news(store: Store, before: float) -> Pruned:
    """Prune what has become old since the last run, and once a day all that has.

    Some of what earlier runs kept can go later without a new journal entry. Looking at all of it once a day is enough,
    because it is at least an entry for each object, and all idempotency records.
    """
    known = await horizon(store.reader)
    is_whole = await store.reader.time() - known.whole_at >= WHOLE_INTERVAL_S
    return await prune(store, before, after=0 if is_whole else known.walked)


async def last_prune_time(reader: Reader) -> float:
    """Return when the history was last pruned; 0 if never."""
    record = await reader.object(HISTORY_KEY)
    return 0.0 if record is None else record.since


async def _raise_horizon(tx: Tx, to: Horizon, before: float, done: Pruned | None = None, who: str = "") -> None:
    """Raise the horizon; the end of a run is recorded as well, and journaled if something was pruned."""
    record = (await tx.objects([HISTORY_KEY])).get(HISTORY_KEY)
    former = horizon_in(record)
    raised = Horizon(*map(max, zip(astuple(former), astuple(to), strict=True)))
    spec = to_json(raised)
    known = record or absent_object(HISTORY_KEY, HISTORY, tx.now)
    changed = replace(known, spec=spec, version=known.version + 1, since=known.since if done is None else tx.now)
    entries, kept = [], HistoryState.KEPT.word
    if done is not None and done != Pruned(next=done.next):
        why = f"{done} from before {time_text(before)}"
        entry = JournalEntry(
            *HISTORY_KEY, changed.kind, None, changed.since, CONTROLLER, who, "prune", known.state, kept, why
        )
        entries.append(entry)
    await tx.apply(Changes(objects=[replace(changed, state=kept)], journal=entries))


@asynccontextmanager
async def _rest_as_long() -> AsyncIterator[None]:
    """Rest as long as the body took, so that requests get at least half of the time."""
    clock = asyncio.get_running_loop().time
    begun = clock()
    yield
    await asyncio.sleep(clock() - begun)
