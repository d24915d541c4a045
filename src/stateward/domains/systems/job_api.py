"""The API of jobs: `/api/v1/systems/NAMESPACE/SYSTEM/jobs` and `.../runs`.

A job comes with a deploy, which needs the right to govern; whoever may act can run it.
"""

from typing import Annotated

from litestar import get, post
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import Struct

from stateward import naming
from stateward.access import Right
from stateward.domains.systems.api import (
    MAX_DEFINITION_CHARS,
    Call,
    ContextDependency,
    Name,
    Where,
    own_key,
    system_actions,
)
from stateward.domains.systems.backends.port import LogExcerpt, SystemRef, job_run_ref
from stateward.domains.systems.instance_output import read_instance_logs, require_instance
from stateward.domains.systems.job_service import JobActions
from stateward.domains.systems.job_views import JobRunView, JobView, job_views, newest_first, run_view
from stateward.domains.systems.object_ids import PATH, checked_path, path_of
from stateward.domains.systems.views import AskedView, asked_view
from stateward.plugin.request_params import IdempotencyKey, Ns
from stateward.plugin.route_options import actor_of, can_dry_run, disclosure_of, engine_of, grant_of, needs

JOBS, RUNS = "/{ns:str}/{system:str}/jobs", "/{ns:str}/{system:str}/runs"

RunName = Annotated[str, PathParameter(pattern=naming.NAME, description="the run")]
Below = Annotated[str, QueryParameter(pattern=PATH, description="only jobs there and below")]


class NamedJob(Struct, frozen=True, forbid_unknown_fields=True):
    """The job that is meant."""

    path: Where


@post(RUNS, opt=needs(Right.ACT) | can_dry_run(), status_code=202, summary="Run a job")
async def run_job_now(
    request: Call, ns: Ns, system: Name, data: JSONBody[NamedJob], key: IdempotencyKey = None
) -> AskedView:
    """Run a job now, whatever its schedule says, and also if it is suspended."""
    return asked_view(await _actions(request, ns).run(system, data.path, own_key(request, key)))


@post(f"{RUNS}/{{run:str}}/cancel", opt=needs(Right.ACT), status_code=202, summary="Cancel a run")
async def cancel_run(request: Call, ns: Ns, system: Name, run: RunName) -> AskedView:
    """Cancel a run of a job: a running one ends when its instances have been stopped."""
    return asked_view(await _actions(request, ns).cancel(system, run))


@post(f"{JOBS}/suspend", opt=needs(Right.ACT) | can_dry_run(), status_code=202, summary="Suspend a job")
async def suspend_job(request: Call, ns: Ns, system: Name, data: JSONBody[NamedJob]) -> AskedView:
    """Suspend a job: its schedule and deploys do not run it; a run that is on goes on."""
    return asked_view(await _actions(request, ns).suspend(system, data.path))


@post(f"{JOBS}/resume", opt=needs(Right.ACT) | can_dry_run(), status_code=202, summary="Resume a job")
async def resume_job(request: Call, ns: Ns, system: Name, data: JSONBody[NamedJob]) -> AskedView:
    """Resume a suspended job; scheduled times that have passed are not caught up."""
    return asked_view(await _actions(request, ns).resume(system, data.path))


@get(JOBS, opt=needs(Right.READ), summary="List jobs")
async def list_jobs(
    request: Call, context: ContextDependency, ns: Ns, system: Name, path: Below = "/"
) -> list[JobView]:
    """Return the jobs of a system, with their newest runs."""
    await system_actions(request, ns).system(system)
    disclosure, system_ref = disclosure_of(request), SystemRef(ns, system)
    jobs = [disclosure.object(job) for job in await context.jobs(system_ref, checked_path(path))]
    return job_views(jobs, await context.runs_of_system(system_ref))


@get(RUNS, opt=needs(Right.READ), summary="List runs")
async def list_runs(
    request: Call, context: ContextDependency, ns: Ns, system: Name, path: Below = "/"
) -> list[JobRunView]:
    """Return the runs of jobs that are kept, newest first."""
    await system_actions(request, ns).system(system)
    top = checked_path(path)
    runs = await context.runs_of_system(SystemRef(ns, system))
    return [run_view(run) for run in newest_first(runs) if path_of(run.id)[: len(top)] == top]


@get(f"{RUNS}/{{run:str}}/logs", opt=needs(Right.READ), summary="Read logs of a run")
async def read_run_logs(
    request: Call,
    context: ContextDependency,
    ns: Ns,
    system: Name,
    run: RunName,
    instance: Annotated[str | None, QueryParameter(pattern=naming.NAME, description="only this one")] = None,
    after: Annotated[int | None, QueryParameter(ge=0, le=10**15, description="`next` of the answer before")] = None,
    most: Annotated[
        int, QueryParameter(ge=1, le=MAX_DEFINITION_CHARS, description="most bytes of each instance")
    ] = 10_000,
) -> list[LogExcerpt]:
    """Return the end of the logs of a run's instances, or the part after an offset."""
    owner = await system_actions(request, ns).system(system)
    record = await _actions(request, ns).run_record(system, run)
    ref = job_run_ref(SystemRef(ns, system), str(path_of(record.id)), record.id.partition("@")[2])
    backend = context.backend_of(owner)
    excerpts = await read_instance_logs(request, backend, ref, instance, after, most)
    if not excerpts:
        await require_instance(backend, ref, instance)
    return excerpts


def _actions(request: Call, ns: str) -> JobActions:
    return JobActions(engine_of(request), ns, grant_of(request).name, actor_of(request))


JOB_ROUTES = (run_job_now, cancel_run, suspend_job, resume_job, list_jobs, list_runs, read_run_logs)
