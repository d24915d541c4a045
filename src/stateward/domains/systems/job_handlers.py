"""The kinds of jobs and of their runs, the removal of jobs, and the pruning of ended runs."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

from stateward.domains.systems.backends.port import SystemRef, job_run_ref
from stateward.domains.systems.context import SystemContext
from stateward.domains.systems.job_guards import JobGuards
from stateward.domains.systems.job_run import run_job
from stateward.domains.systems.lifecycle import ENDED_RUN, JOB, JOBRUN, OPEN_RUN
from stateward.domains.systems.model import SECRET_ENV, DesiredJob, JobRunSeen, seen_of, spec_of
from stateward.domains.systems.object_ids import job_of, path_of, system_of
from stateward.engine import Denied, Ending, Handler, Job, Kind, Rules, Temporary
from stateward.engine.troubles import FaultIsolation
from stateward.lifecycle import CONTROLLER
from stateward.store.filters import JournalFilter
from stateward.store.records import Object

log = logging.getLogger("stateward.systems")

WHO = "systems"
POLL_S = 0.1
"""The time between two looks at the runs of a job that is being deleted."""


class JobHandlers:
    """The handlers of jobs and runs, and the retention of ended runs."""

    def __init__(self, context: SystemContext) -> None:
        self._context = context
        self._guards = JobGuards(context)
        self._faults = FaultIsolation(log)

    def kinds(self) -> list[Kind]:
        """Return the kinds of jobs and runs."""
        guards = self._guards
        job = Kind(
            JOB,
            {"delete": Handler(self.remove)},
            guard=guards.guard_job,
            spec_actions=("change",),
            privacy=SECRET_ENV,
            general=False,
        )
        # Cancelling the operation, and not the run, would leave its instances running.
        run = Kind(
            JOBRUN,
            {"run": Handler(self.run)},
            guard=guards.guard_run,
            lock_set=guards.lock_job,
            spec_actions=("forget",),
            privacy=SECRET_ENV,
            rules=Rules(cancels=False, cancel_action="cancel"),
            general=False,
        )
        return [job, run]

    async def run(self, job: Job) -> Ending:
        """Carry out a run of a job."""
        return await run_job(self._context, job)

    async def remove(self, job: Job) -> None:
        """Cancel the runs of a job, and remove all of them with their logs; no new run is accepted meanwhile."""
        while open_runs := [run for run in await self._context.runs(job.ns, job.object) if run.state in OPEN_RUN]:
            await self._cancel(open_runs)
            await asyncio.sleep(POLL_S)
        await self._forget(await self._context.runs(job.ns, job.object))

    async def _cancel(self, runs: Iterable[Object]) -> None:
        seen = JobRunSeen(cancelled="the removal of its job")
        for run in runs:
            if seen_of(run, JobRunSeen).cancelled is None:
                with suppress(Denied):  # it has just ended
                    await self._context.engine.act(*run.key, "cancel", actor=CONTROLLER, who=WHO, seen=seen)

    # --- retention ---------------------------------------------------------------------------------------------------

    async def prune_loop(self) -> None:
        """Set missing timers of jobs; then follow the ends of runs, and remove those that their job keeps no more."""
        after = await self._context.engine.store.reader.last_journal_seq()
        systems = [SystemRef(system.ns, system.id) for system in await self._context.systems()]
        jobs = [job for system in systems for job in await self._context.jobs(system)]
        await self._guards.rearm(jobs)
        for job in jobs:
            await self._prune_safely(job.ns, job.id)
        async for entry in self._context.engine.watch(after, JournalFilter(kind=JOBRUN.kind)):
            if entry.target in ENDED_RUN and entry.source != entry.target:
                await self._prune_safely(entry.ns, job_of(entry.object))

    async def _prune_safely(self, ns: str, job: str) -> None:
        with self._faults.isolate(f"pruning of the runs of job {job} in {ns}"), suppress(Temporary):  # on another host
            record = await self._context.object(ns, job)
            wanted = None if record is None else spec_of(record, DesiredJob)
            if wanted is not None:
                await self._forget(surplus_runs(await self._context.runs(ns, job), wanted.job.history))

    async def _forget(self, runs: Sequence[Object]) -> None:
        """Remove ended runs: their logs, and then their records."""
        for run in runs:
            system_ref = SystemRef(run.ns, system_of(run.id))
            backend = await self._context.backend(system_ref)
            await backend.forget(job_run_ref(system_ref, str(path_of(run.id)), run.id.partition("@")[2]))
            with suppress(Denied):  # another process was faster
                await self._context.engine.act(*run.key, "forget", actor=CONTROLLER, who=WHO, spec={}, seen={})


def surplus_runs(runs: Iterable[Object], kept: int) -> list[Object]:
    """Return the ended runs but the newest."""
    ended = sorted((run for run in runs if run.state in ENDED_RUN), key=lambda run: (run.created, run.id), reverse=True)
    return ended[kept:]
