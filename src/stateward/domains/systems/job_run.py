"""The handler of a run of a job: instances are started, their ends are noted, and failed ones are tried again.

Each end is stored in the steps of the operation before the backend forgets the instance. After a crash the next worker
finds the running instances at the backend by their names, and the ended ones in the steps: no attempt is made twice.

A run may take days. While nothing changes, its operation sleeps and occupies no worker; the controller of the backend
wakes it when an instance has ended.
"""

import asyncio
from collections.abc import Sequence
from math import inf
from typing import Any

import msgspec
from msgspec.structs import replace

from stateward.domains.systems.backends.port import (
    Backend,
    InstancePhase,
    InstanceSpec,
    ServiceInstance,
    SystemRef,
    job_run_ref,
)
from stateward.domains.systems.context import SystemContext
from stateward.domains.systems.definition import JobDefinition, Service, revision_of
from stateward.domains.systems.errors import NodePoolFull, NodesFull
from stateward.domains.systems.lifecycle import OPEN_RUN, DeployState, JobRunState
from stateward.domains.systems.model import ChangeSeen, JobRunSeen, JobRunSpec, seen_of, spec_of
from stateward.domains.systems.object_ids import path_of, system_of
from stateward.domains.systems.run_planner import AttemptResult, RunStep, index_of, next_run_step
from stateward.domains.systems.service_handlers import node_pool_problem, require_grant
from stateward.engine import Ending, Job, Permanent
from stateward.errors import count_text
from stateward.lifecycle import WORKER
from stateward.store.records import Object, to_json

FIRST_POLL_S, POLL_MAX_S = 0.05, 0.5
"""The time between two polls of a run: the first, and the longest; it grows while nothing changes."""

ACTIVE_S = 2.0
"""For so long after a change a worker polls a run; then the operation sleeps."""

SLEEP_RATIO, MAX_SLEEP_S = 0.2, 15.0
"""How long the operation sleeps: a part of the time without a change, and at most so many seconds."""

CANCEL_CHECK_S = 0.5
"""How old the knowledge may be that a run, and its deploy, were not cancelled."""

DRAIN_S = 0.05
"""The time before SIGTERM: nobody connects to an instance of a job."""

ENDED_STEP = "ended "
"""The prefix of the steps with the results of instances; the number of earlier results follows."""


def service_of(job: JobDefinition, path: str, run: str, name: str) -> Service:
    """Return an instance of a job as a service that runs once."""
    own = {"STATEWARD_JOB": path, "STATEWARD_RUN": run, "STATEWARD_INDEX": str(index_of(name))}
    return replace(job.program, env={**job.program.env, **own}, drain=DRAIN_S)


async def run_job(context: SystemContext, job: Job) -> Ending:
    """Carry out a run of a job."""
    spec = spec_of(job.claim.object, JobRunSpec)
    if spec is None or spec.job is None:
        raise Permanent("the run has no definition of its job")
    return await JobRun(context, job, spec, spec.job).run()


class JobRun:
    """One attempt of a worker at a run of a job."""

    def __init__(self, context: SystemContext, job: Job, spec: JobRunSpec, wanted: JobDefinition) -> None:
        self._context, self._job, self._spec, self._wanted = context, job, spec, wanted
        self._system = SystemRef(job.ns, system_of(job.object))
        self._path = str(path_of(job.object))
        self._ref = job_run_ref(self._system, self._path, job.object.partition("@")[2])
        steps: dict[str, Any] = msgspec.json.decode(job.claim.operation.steps)
        noted = (value for name, value in steps.items() if name.startswith(ENDED_STEP))
        # bounded by: the attempts of one run
        self._ended = [result for value in noted for result in msgspec.convert(value, list[AttemptResult])]
        self._problem = ""
        self._changed = job.claim.object.created  # when something of the run changed last, as far as is known

    async def run(self) -> Ending:
        """Run the instances until enough have succeeded, too many have failed, or the run is to stop."""
        backend = await self._context.backend(self._system)
        require_grant(self._context, backend, self._job.ns)
        await self._wait_for_replaced()
        if self._job.state == JobRunState.PENDING:
            await self._job.phase("started", WORKER)
        started = await self._job.once("begun", self._now)
        self._changed = max([started, *(result.noted for result in self._ended)])
        self._context.polled_runs.add(self._ref)
        try:
            return await self._poll(backend, started)
        finally:
            self._context.polled_runs.discard(self._ref)

    async def _poll(self, backend: Backend, started: float) -> Ending:
        while True:
            seen = await backend.instances(self._ref)
            if await self._note_ended(backend, seen):
                continue
            step = next_run_step(self._wanted, self._ended, [instance.name for instance in seen], self._job.now)
            ending = self._ending(step) or await self._stop_ending(started)
            if ending is not None:
                await self._stop_all(backend)
                return await self._confirm(ending)
            await self._start(backend, step.start)
            await self._rest(min(started + self._wanted.deadline, step.due or inf))

    async def _rest(self, until: float = inf) -> None:
        """Wait a moment before the next poll; if nothing has changed for a while, let the operation sleep."""
        now = self._job.now
        quiet = now - self._changed
        if quiet < ACTIVE_S:
            await asyncio.sleep(max(FIRST_POLL_S, min(quiet / 4, POLL_MAX_S)))
        else:
            pause_s = min(quiet * SLEEP_RATIO, MAX_SLEEP_S, until - now)
            await self._job.sleep_until(now + max(pause_s, FIRST_POLL_S))

    async def _now(self) -> float:
        return self._job.now

    async def _wait_for_replaced(self) -> None:
        for name in self._spec.replaces:
            while (record := await self._context.object(self._job.ns, name)) is not None and record.state in OPEN_RUN:
                await self._rest()

    async def _note_ended(self, backend: Backend, seen: Sequence[ServiceInstance]) -> bool:
        """Store the results of instances that have ended, and then let the backend forget these instances."""
        ended = [instance for instance in seen if instance.phase is InstancePhase.ENDED]
        known = {result.name for result in self._ended}
        new = [
            AttemptResult(instance.name, self._job.now, instance.exit_status, instance.why)
            for instance in ended
            if instance.name not in known
        ]
        if new:
            await self._job.once(f"{ENDED_STEP}{len(self._ended)}", lambda: _as_json(new))
            self._ended += new
            self._changed = self._job.now
            await self._report(new)
        for instance in ended:
            await backend.stop(self._ref, instance.name)
        return bool(new)

    async def _report(self, new: list[AttemptResult]) -> None:
        succeeded, failed = self._counts
        for result in (result for result in new if result.exit_status != 0):
            await self._job.progress(
                f"instance {result.name} failed: {result.why}; {failed} of {self._wanted.retries} retries used"
            )
        done = f"{succeeded} of {count_text(self._wanted.completions, 'completion')}"
        await self._job.progress(done, succeeded, self._wanted.completions)

    @property
    def _counts(self) -> tuple[int, int]:
        """How many instances have succeeded, and how many have failed."""
        succeeded = sum(result.exit_status == 0 for result in self._ended)
        return succeeded, len(self._ended) - succeeded

    # --- the end -----------------------------------------------------------------------------------------------------

    async def _stop_ending(self, started: float) -> Ending | None:
        """Return how the run ends if it was cancelled, or has passed its deadline."""
        run = await self._context.recent_object(self._job.ns, self._job.object, CANCEL_CHECK_S)
        cancelled = _canceller(run)
        if cancelled is None and self._spec.deploy is not None and await self._is_deploy_over(self._spec.deploy):
            cancelled = "its deploy, which is over"
        if cancelled is not None:
            return self._cancelled(cancelled)
        if self._job.now - started >= self._wanted.deadline:
            error = f"not done within {self._wanted.deadline:g} s{self._last_failure}"
            return Ending("failed", WORKER, error=error, seen=self._seen(reason="deadline"))
        return None

    def _cancelled(self, by: str) -> Ending:
        return Ending("cancelled", WORKER, error=f"cancelled by {by}", seen=self._seen(cancelled=by))

    async def _confirm(self, ending: Ending) -> Ending:
        """Return an end that counts only if the run is not cancelled before it is stored."""
        run = await self._context.object(self._job.ns, self._job.object)
        by = _canceller(run)
        if by is not None and ending.event != "cancelled":
            ending = self._cancelled(by)
        return ending if run is None else replace(ending, version=run.version)

    def _ending(self, step: RunStep) -> Ending | None:
        """Return how the run ends if enough instances have succeeded, or too many have failed."""
        if step.outcome == "retries":
            _, failed = self._counts
            error = (
                f"{count_text(failed, 'instance')} failed, with {count_text(self._wanted.retries, 'retry', 'retries')}"
            )
            return Ending("failed", WORKER, error=f"{error}{self._last_failure}", seen=self._seen(reason="retries"))
        return Ending(seen=self._seen()) if step.outcome == "succeeded" else None

    @property
    def _last_failure(self) -> str:
        failed = [result for result in self._ended if result.exit_status != 0]
        return f": {failed[-1].name} {failed[-1].why}" if failed else f": {self._problem}" if self._problem else ""

    def _seen(self, **how: Any) -> str:  # noqa: ANN401 - fields of the record
        succeeded, failed = self._counts
        return to_json(replace(JobRunSeen(succeeded, failed), **how))

    async def _is_deploy_over(self, deploy: str) -> bool:
        record: Object | None = await self._context.recent_object(self._job.ns, deploy, CANCEL_CHECK_S)
        is_on = record is not None and record.state == DeployState.IN_PROGRESS
        return not is_on or (record is not None and seen_of(record, ChangeSeen).cancelled is not None)

    async def _stop_all(self, backend: Backend) -> None:
        while seen := await backend.instances(self._ref):
            for instance in seen:
                await backend.stop(self._ref, instance.name)
            await backend.pause(self._ref, FIRST_POLL_S)

    # --- starts ------------------------------------------------------------------------------------------------------

    async def _start(self, backend: Backend, names: Sequence[str]) -> None:
        """Start instances; if the node pool has no room, the run waits."""
        if not names:
            return
        probe = service_of(self._wanted, self._path, self._job.object, names[0])
        problem = await node_pool_problem(self._context, self._ref, probe)
        try:
            for name in () if problem else names:
                service = service_of(self._wanted, self._path, self._job.object, name)
                await backend.start(self._ref, InstanceSpec(name, revision_of(probe), service, run_once=True))
                self._changed = self._job.now
        except (NodePoolFull, NodesFull) as error:
            problem = str(error)
        if problem and problem != self._problem:
            await self._job.progress(f"waits: {problem}")
        self._problem = problem


def _canceller(run: Object | None) -> str | None:
    return None if run is None else seen_of(run, JobRunSeen).cancelled


async def _as_json(results: list[AttemptResult]) -> Any:  # noqa: ANN401
    return msgspec.to_builtins(results)
