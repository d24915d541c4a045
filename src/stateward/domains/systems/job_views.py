"""The views of jobs and of their runs over HTTP."""

from collections.abc import Iterable
from datetime import UTC, datetime

from msgspec import Struct

from stateward.domains.systems.definition import JobDefinition
from stateward.domains.systems.lifecycle import ENDED_RUN
from stateward.domains.systems.model import DesiredJob, JobRunSeen, JobRunSpec, JobSeen, seen_of, spec_of
from stateward.domains.systems.object_ids import job_of, path_of
from stateward.store.records import Object


class JobRunView(Struct, frozen=True):
    """A run of a job.

    `trigger` is request, schedule or hook. `missed_until` is the last scheduled time that the run stands for, if no
    process ran from `scheduled` on. `reason` is deadline or retries.
    """

    id: str
    path: str
    state: str
    since: datetime
    created: datetime
    trigger: str
    scheduled: datetime | None
    missed_until: datetime | None
    deploy: str | None
    succeeded: int
    failed: int
    reason: str | None
    cancelled: str | None
    error: str | None
    operation: str | None


class SkippedView(Struct, frozen=True):
    """A scheduled time at which no run was started, and why."""

    at: datetime
    why: str


class JobView(Struct, frozen=True):
    """A job: what is wanted of it, its next scheduled time, the last one that was skipped, and its newest runs."""

    id: str
    path: str
    state: str
    since: datetime
    error: str | None
    definition: JobDefinition | None
    next: datetime | None
    skipped: SkippedView | None
    runs: list[JobRunView]


MAX_RUNS_SHOWN = 5
"""How many runs the view of a job has."""


def job_views(jobs: Iterable[Object], runs: Iterable[Object]) -> list[JobView]:
    """Return the views of jobs; `runs` are those of all of them."""
    by_job: dict[str, list[Object]] = {}
    for run in newest_first(runs):
        by_job.setdefault(job_of(run.id), []).append(run)
    return [job_view(job, by_job.get(job.id, [])[:MAX_RUNS_SHOWN]) for job in jobs]


def job_view(job: Object, runs: Iterable[Object]) -> JobView:
    """Return the view of a job."""
    wanted, seen = spec_of(job, DesiredJob), seen_of(job, JobSeen)
    return JobView(
        id=job.id,
        path=str(path_of(job.id)),
        state=job.state,
        since=_date(job.since),
        error=job.error,
        definition=None if wanted is None else wanted.job,
        next=_maybe_date(seen.next),
        skipped=None if seen.skipped is None else SkippedView(_date(seen.skipped.at), seen.skipped.why),
        runs=[run_view(run) for run in runs],
    )


def run_view(run: Object) -> JobRunView:
    """Return the view of a run; what it counts, it counts at its end."""
    spec, seen = spec_of(run, JobRunSpec) or JobRunSpec(), seen_of(run, JobRunSeen)
    return JobRunView(
        id=run.id,
        path=str(path_of(run.id)),
        state=run.state,
        since=_date(run.since),
        created=_date(run.created),
        trigger=spec.trigger,
        scheduled=_maybe_date(spec.scheduled),
        missed_until=_maybe_date(spec.missed_until),
        deploy=spec.deploy,
        succeeded=seen.succeeded,
        failed=seen.failed,
        reason=seen.reason,
        cancelled=seen.cancelled,
        error=run.error if run.state in ENDED_RUN else None,
        operation=run.op,
    )


def newest_first(runs: Iterable[Object]) -> list[Object]:
    """Return runs in the order of their creation, the newest first."""
    return sorted(runs, key=lambda run: (run.created, run.id), reverse=True)


def _date(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _maybe_date(seconds: float | None) -> datetime | None:
    return None if seconds is None else _date(seconds)
