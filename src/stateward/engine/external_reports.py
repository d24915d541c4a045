"""Reports from outside the engine: of other parties about their operations, and of providers about objects at rest.

Another party (an agent, a controller) reports about an operation that it carries out. The report counts only if it has
the id and the generation of the object's current operation. A provider changes objects without our doing: a listing
shows it as sightings, and one transaction records all sightings of a listing, however many objects it shows.

Invariant: a sighting changes no object that an operation holds, and none that has changed since the provider was asked.
"""

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
    """A report of another party about an operation that it carries out."""

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
    version: int | None = None  # the one that the party has read: if it has changed, the report is dropped


async def record_external_reports(tx: Tx, kinds: Kinds, reports: Sequence[ExternalReport]) -> list[bool]:
    """Record a batch of reports; returns for each whether it counted. The others are journaled as rejected."""
    uow = UnitOfWork(tx)
    await uow.load({Key(report.ns, report.object) for report in reports})
    await uow.load_operations({Key(report.ns, report.op) for report in reports})
    await uow.load_locks_of(uow.operations.values())
    counted = [_record_report(uow, kinds, report) for report in reports]
    await run_end_hooks(uow, kinds)
    await promote_waiters(uow)
    await uow.apply()
    return counted


def _record_report(uow: UnitOfWork, kinds: Kinds, report: ExternalReport) -> bool:
    record = uow.objects.get(Key(report.ns, report.object))
    if record is None or kinds.unknown_words(record):  # the processes that know it get the report, too, or ask for it
        return False
    if report.version not in (None, record.version):
        return False
    operation = uow.operations.get(Key(report.ns, report.op))
    if operation is None or record.op != report.op:
        return _reject(uow, record, report, "it is about an operation that is not the current one")
    if report.generation != operation.generation:
        return _reject(uow, record, report, f"it is about generation {report.generation}, not {operation.generation}")
    lifecycle = kinds[record.kind].lifecycle
    try:
        verdict = decide(lifecycle, record.state, report.event, report.actor, report.facts, operation.origin)
    except UnknownName as unknown:
        return _reject(uow, record, report, str(unknown))
    if not isinstance(verdict, Move):
        return _reject(uow, record, report, str(verdict))
    if verdict.begins:
        return _reject(uow, record, report, "a report cannot begin an action")
    result, error = report.result, report.error
    if (types := kinds.types(record.kind)) is not None and types.has_secrets:
        stored = record.spec, operation.action, operation.args
        result = result and types.mask_result(result, *stored)
        error = error and types.mask_in(error, *stored)
    advance(uow, record, operation, verdict, report.who, result, error, report.seen)
    return True


def _reject(uow: UnitOfWork, record: Object, report: ExternalReport, reason: str) -> bool:
    journal_rejection(uow, record, report.op, report.actor, report.who, report.event, reason)
    return False


class Sighting(Struct, frozen=True, gc=False):
    """An event that a provider's listing shows; `at` is the store's time when the provider was asked."""

    ns: str
    object: str
    event: str
    at: float
    seen: str | None = None  # the observed state of the object, as JSON
    reason: str | None = None  # for the journal, and as the object's error


async def record_sightings(tx: Tx, kinds: Kinds, sightings: Sequence[Sighting]) -> list[bool]:
    """Apply sightings to objects at rest; returns for each whether it counted."""
    uow = UnitOfWork(tx)
    await uow.load({Key(sighting.ns, sighting.object) for sighting in sightings})
    counted = [_record_sighting(uow, kinds, sighting) for sighting in sightings]
    await uow.apply()
    return counted


def _record_sighting(uow: UnitOfWork, kinds: Kinds, sighting: Sighting) -> bool:
    record = uow.objects.get(Key(sighting.ns, sighting.object))
    if record is None or record.removed or record.kind not in kinds:
        return False
    if record.op is not None or record.since > sighting.at:  # the provider was asked before the object came to rest
        return False
    try:
        move = decide(kinds[record.kind].lifecycle, record.state, sighting.event, PROVIDER)
    except UnknownName:  # one sighting must not stop those of the other objects in a listing
        return False
    if not isinstance(move, Move):
        return False
    change_state(uow, record, move, "", None, seen=sighting.seen, error=sighting.reason)
    return True
