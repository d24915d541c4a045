"""The guards of jobs and of their runs, inside the accepting transaction: schedules fire here.

An active job with a schedule has one timer, that of its next scheduled time. The transaction that fires the timer
creates the run and sets the next timer, so each scheduled time has one run, whatever crashes when. After a downtime the
timer fires late: one run stands for all times that were missed, and says so. A timer that fires on a host which cannot
read its time zone is tried again, and `rearm` sets one that is missing.
"""

import logging
from collections.abc import Iterable
from datetime import tzinfo

import msgspec
from msgspec.structs import replace

from stateward.domains.systems.context import SystemContext
from stateward.domains.systems.cron import CronSchedule, parse_cron, time_zone
from stateward.domains.systems.definition import JobDefinition
from stateward.domains.systems.errors import JobBeingDeleted, TimeZoneUnreadable
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

log = logging.getLogger("stateward.systems")

MAX_TIMERS = 100_000
"""How many pending timers are listed; a job whose timer is not among them gets it again."""

SKIPPED_EVENT = "skipped"
"""The journal event of a scheduled time at which no run was started."""


class JobGuards:
    """The guards of jobs and of runs."""

    def __init__(self, context: SystemContext) -> None:
        self._context = context

    # --- jobs --------------------------------------------------------------------------------------------------------

    async def guard_job(self, uow: UnitOfWork, request: Request, record: Object) -> Request | None:
        """Set and remove the timer of a job's schedule; when it fires, start a run."""
        seen = seen_of(record, JobSeen)
        before = spec_of(record, DesiredJob)
        wanted = before if request.spec is None else msgspec.json.decode(request.spec, type=DesiredJob)
        job = None if wanted is None else wanted.job
        if request.action == "fire":
            seen = await self._fire(uow, request, record, seen, job)
        elif request.action in ("suspend", "delete"):
            seen = _disarm(uow, record, seen)
        elif request.action in ("define", "resume") or (
            record.state == JobState.ACTIVE and _schedule(job) != _schedule(None if before is None else before.job)
        ):
            seen = _arm(uow, record, _disarm(uow, record, seen), job)
        return replace(request, seen=to_json(seen))

    async def _fire(
        self, uow: UnitOfWork, request: Request, record: Object, seen: JobSeen, job: JobDefinition | None
    ) -> JobSeen:
        if seen.next is None or uow.now < seen.next or job is None or job.schedule is None:
            return seen  # the job decides whether it is time, not the timer
        schedule, zone = _read_schedule(record, job.schedule, job.time_zone)
        last = schedule.last_until(seen.next, uow.now, zone)
        missed_until = last if last > seen.next else None
        due = schedule.next_after(uow.now, zone)
        skipped = await self._start_scheduled(uow, request.op, record, job, seen.next, missed_until)
        if skipped is not None:
            journal(uow, record, None, CLOCK, request.who, SKIPPED_EVENT, reason=skipped.why)
        return _set_timer(uow, record, replace(seen, skipped=skipped or seen.skipped), due)

    async def _start_scheduled(
        self, uow: UnitOfWork, op: str, record: Object, job: JobDefinition, at: float, missed_until: float | None
    ) -> SkippedTime | None:
        """Start the run of a scheduled time; returns why not, if it is skipped.

        It cancels the runs that it replaces only once it is accepted: what is refused has changed nothing.
        """
        states = tuple(state.word for state in OPEN_RUN)
        open_runs = await uow.select(Selector(record.ns, JOBRUN.kind, record.id, states))
        if open_runs and job.concurrency == "forbid":
            return SkippedTime(at, f"run {open_runs[0].id} is still {open_runs[0].state}")
        replaced = open_runs if job.concurrency == "replace" else []
        spec = JobRunSpec(None, "schedule", at, missed_until, replaces=tuple(open_run.id for open_run in replaced))
        run = scheduled_run_id(record.id, at)
        who, kinds = f"schedule of {record.id}", self._context.engine.kinds
        creation = Creation(JOBRUN.kind, record.id)
        start = Request(record.ns, run, "run", from_key(op), CLOCK, who, spec=to_json(spec), creates=creation)
        (verdict,) = await admit_all(uow, kinds, [start])
        if isinstance(verdict, StatewardError):
            if verdict.retry:
                raise verdict  # the timer is tried again
            return SkippedTime(at, str(verdict))
        cancelled = to_json(JobRunSeen(cancelled=f"run {run}, which replaces it"))
        requests = [
            Request(open_run.ns, open_run.id, "cancel", from_key(f"{op}/{open_run.id}"), CLOCK, who, seen=cancelled)
            for open_run in replaced
        ]
        await admit_all(uow, kinds, requests)
        return None

    async def rearm(self, jobs: Iterable[Object]) -> None:
        """Set the timers of active jobs that have none: earlier versions lost them when a time zone was unreadable."""
        engine = self._context.engine
        known = {armed.key for armed in await engine.store.reader.timers(None, MAX_TIMERS)}
        for job in jobs:
            due = seen_of(job, JobSeen).next
            if due is not None and job.state == JobState.ACTIVE and (timer := _timer(job, due)).key not in known:
                await engine.set_timer(timer)  # should the job have another one by now, this one does nothing

    # --- runs --------------------------------------------------------------------------------------------------------

    def lock_job(self, request: Request, record: Object | None) -> Iterable[Key]:  # noqa: ARG002 - the lock set of a guard
        """Return the job of a new run, for the lock set of the transaction."""
        return () if request.creates is None else [Key(request.ns, job_of(request.object))]

    async def guard_run(self, uow: UnitOfWork, request: Request, record: Object) -> Request | None:
        """Accept a run only of a job that is not being deleted, and give it the present definition of the job."""
        if request.action == "cancel" and request.seen is None:
            return replace(request, seen=to_json(JobRunSeen(cancelled=request.who or str(request.actor))))
        if request.creates is None:
            return None
        key = Key(record.ns, job_of(record.id))
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


def _arm(uow: UnitOfWork, record: Object, seen: JobSeen, job: JobDefinition | None) -> JobSeen:
    """Set the timer of the next scheduled time, if there is a schedule."""
    if job is None or job.schedule is None:
        return seen
    return _set_timer(uow, record, seen, parse_cron(job.schedule).next_after(uow.now, time_zone(job.time_zone)))


def _set_timer(uow: UnitOfWork, record: Object, seen: JobSeen, due: float | None) -> JobSeen:
    if due is not None:
        uow.changes.timers.append(_timer(record, due))
    return replace(seen, next=due)


def _read_schedule(record: Object, schedule: str, zone: str) -> tuple[CronSchedule, tzinfo]:
    """Return the schedule of a job and its time zone, both of which were valid when the job was defined.

    If this host cannot read them now, the timer is tried again, here or on another host.
    """
    try:
        return parse_cron(schedule), time_zone(zone)
    except StatewardError as error:
        log.warning("job %s in %s does not run by its schedule yet: %s", record.id, record.ns, error)
        raise error if error.retry else TimeZoneUnreadable(zone, str(error)) from error


def _disarm(uow: UnitOfWork, record: Object, seen: JobSeen) -> JobSeen:
    if seen.next is not None:
        key = Key(record.ns, _timer_id(record.id, seen.next))
        # A new timer is written after old ones are removed, so one of this transaction must not be written at all.
        uow.changes.timers = [timer for timer in uow.changes.timers if timer.key != key]
        uow.changes.timers_gone.append(key)
    return replace(seen, next=None)


def _timer(job: Object, due: float) -> Timer:
    return Timer(job.ns, _timer_id(job.id, due), due, 0, job.id, "fire", "[]", "{}")


def _timer_id(job: str, due: float) -> str:
    """Return the id of a timer; each time has its own, so that a timer that fires can set the next one."""
    return f"schedule of {job} at {due:.0f}"
