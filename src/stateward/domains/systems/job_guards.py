"""The guards of jobs and of their runs, inside the accepting transaction: schedules fire here.

An active job with a schedule has one timer, that of its next scheduled time. The transaction that fires the timer
creates the run and sets the next timer, so each scheduled time has one run, whatever crashes when. After a downtime the
timer fires late: one run stands for all times that were missed, and says so.
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from stateward.domains.systems.context import SystemContext
from stateward.domains.systems.cron import parse_cron, time_zone
from stateward.domains.systems.definition import JobDefinition
from stateward.domains.systems.errors import JobBeingDeleted
from stateward.domains.systems.lifecycle import JOB, JOBRUN, OPEN_RUN, JobState
from stateward.domains.systems.model import (
    DesiredJob,
    JobRunSeen,
    JobRunSpec,
    JobSeen,
    SkippedTime,
    seen_of,
    spec_of,
)
from stateward.domains.systems.object_ids import from_key, job_of, scheduled_run_id
from stateward.engine import NotFound, Request
from stateward.engine.accept.accept import admit_all
from stateward.engine.requests import Creation
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import StatewardError
from stateward.lifecycle import CLOCK
from stateward.store.filters import Selector
from stateward.store.records import Key, Object, Timer, to_json

SKIPPED_EVENT = "skipped"
"""The journal event of a scheduled time at which no run was started."""


class JobGuards:
    """The guards of jobs and of runs."""

    def __init__(self, context: SystemContext) -> None:
        self._context = context

    # --- jobs --------------------------------------------------------------------------------------------------------

    async def guard_job(self, uow: UnitOfWork, request: Request, found: Object) -> Request | None:
        """Set and remove the timer of a job's schedule; when it fires, start a run."""
        seen = seen_of(found, JobSeen)
        before = spec_of(found, DesiredJob)
        wanted = before if request.spec is None else msgspec.json.decode(request.spec, type=DesiredJob)
        job = None if wanted is None else wanted.job
        if request.action == "fire":
            seen = await self._fire(uow, request, found, seen, job)
        elif request.action in ("suspend", "delete"):
            seen = _disarm(uow, found, seen)
        elif request.action in ("define", "resume") or (
            found.state == JobState.ACTIVE and _schedule(job) != _schedule(None if before is None else before.job)
        ):
            seen = _arm(uow, found, _disarm(uow, found, seen), job)
        return replace(request, seen=to_json(seen))

    async def _fire(
        self, uow: UnitOfWork, request: Request, found: Object, seen: JobSeen, job: JobDefinition | None
    ) -> JobSeen:
        if seen.next is None or uow.now < seen.next or job is None or job.schedule is None:
            return seen  # the job decides whether it is time, not the timer
        schedule, zone = parse_cron(job.schedule), time_zone(job.time_zone)
        last = schedule.last_until(seen.next, uow.now, zone)
        missed_until = last if last > seen.next else None
        skipped = await self._start_scheduled(uow, request.op, found, job, seen.next, missed_until)
        if skipped is not None:
            journal(uow, found, None, CLOCK, request.who, SKIPPED_EVENT, reason=skipped.why)
        return _arm(uow, found, replace(seen, skipped=skipped or seen.skipped), job)

    async def _start_scheduled(
        self, uow: UnitOfWork, op: str, found: Object, job: JobDefinition, at: float, missed_until: float | None
    ) -> SkippedTime | None:
        """Start the run of a scheduled time; returns why not, if it is skipped."""
        states = tuple(one.word for one in OPEN_RUN)
        open_runs = await uow.select(Selector(found.ns, JOBRUN.kind, found.id, states))
        if open_runs and job.concurrency == "forbid":
            return SkippedTime(at, f"run {open_runs[0].id} is still {open_runs[0].state}")
        replaced = open_runs if job.concurrency == "replace" else []
        spec = JobRunSpec(None, "schedule", at, missed_until, replaces=tuple(one.id for one in replaced))
        run = scheduled_run_id(found.id, at)
        cancelled = to_json(JobRunSeen(cancelled=f"run {run}, which replaces it"))
        who = f"schedule of {found.id}"
        requests = [
            Request(one.ns, one.id, "cancel", from_key(f"{op}/{one.id}"), CLOCK, who, seen=cancelled)
            for one in replaced
        ]
        creation = Creation(JOBRUN.kind, found.id)
        start = Request(found.ns, run, "run", from_key(op), CLOCK, who, spec=to_json(spec), creates=creation)
        *_, verdict = await admit_all(uow, self._context.engine.kinds, [*requests, start])
        if isinstance(verdict, StatewardError) and verdict.retry:
            raise verdict  # the timer is tried again
        return SkippedTime(at, str(verdict)) if isinstance(verdict, StatewardError) else None

    # --- runs --------------------------------------------------------------------------------------------------------

    def lock_job(self, request: Request, found: Object | None) -> Iterable[Key]:  # noqa: ARG002 - the lock set of a guard
        """Return the job of a new run, for the lock set of the transaction."""
        return () if request.creates is None else [Key(request.ns, job_of(request.object))]

    async def guard_run(self, uow: UnitOfWork, request: Request, found: Object) -> Request | None:
        """Accept a run only of a job that is not being deleted, and give it the present definition of the job."""
        if request.action == "cancel" and request.seen is None:
            return replace(request, seen=to_json(JobRunSeen(cancelled=request.who or str(request.actor))))
        if request.creates is None:
            return None
        key = Key(found.ns, job_of(found.id))
        job = uow.objects.get(key)
        wanted = None if job is None or job.removed or job.kind != JOB.kind else spec_of(job, DesiredJob)
        if job is None or wanted is None:
            raise NotFound(*key)
        if job.state == JobState.DELETING:
            raise JobBeingDeleted(job.id)
        spec = replace(msgspec.json.decode(request.spec or "{}", type=JobRunSpec), job=wanted.job)
        return replace(request, spec=to_json(spec), creates=replace(request.creates, parent=job.id))


def _schedule(job: JobDefinition | None) -> tuple[str | None, str] | None:
    return None if job is None else (job.schedule, job.time_zone)


def _arm(uow: UnitOfWork, found: Object, seen: JobSeen, job: JobDefinition | None) -> JobSeen:
    """Set the timer of the next scheduled time, if there is a schedule."""
    if job is None or job.schedule is None:
        return seen
    due = parse_cron(job.schedule).next_after(max(uow.now, seen.next or 0.0), time_zone(job.time_zone))
    if due is not None:
        uow.changes.timers.append(Timer(found.ns, _timer_id(found.id, due), due, 0, found.id, "fire", "[]", "{}"))
    return replace(seen, next=due)


def _disarm(uow: UnitOfWork, found: Object, seen: JobSeen) -> JobSeen:
    if seen.next is not None:
        key = Key(found.ns, _timer_id(found.id, seen.next))
        # A new timer is written after old ones are removed, so one of this transaction must not be written at all.
        uow.changes.timers = [one for one in uow.changes.timers if one.key != key]
        uow.changes.timers_gone.append(key)
    return replace(seen, next=None)


def _timer_id(job: str, due: float) -> str:
    """Return the id of a timer; each time has its own, so that a timer that fires can set the next one."""
    return f"schedule of {job} at {due:.0f}"
