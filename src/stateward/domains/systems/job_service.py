"""The actions on jobs, each as one request."""

from stateward.domains.systems.lifecycle import JOB, JOBRUN
from stateward.domains.systems.model import JobRunSpec
from stateward.domains.systems.object_ids import checked_name, checked_path, from_key, job_id, run_id, system_of
from stateward.engine import Accepted, Engine, NotFound
from stateward.lifecycle import USER
from stateward.naming import new_id
from stateward.store.records import Object


class JobActions:
    """The actions on the jobs of one namespace, on behalf of one caller."""

    def __init__(self, engine: Engine, ns: str, who: str = "", actor: str = USER) -> None:
        self._engine, self._ns, self._who, self._actor = engine, ns, who, actor

    async def job(self, system: str, path: str) -> Object:
        """Return the job at a path, or raise."""
        record = await self._engine.record(self._ns, job_id(checked_name("system", system), checked_path(path)))
        if record.kind != JOB.kind:
            raise NotFound(self._ns, record.id)
        return record

    async def run(self, system: str, path: str, key: str | None = None) -> Accepted:
        """Start a run of a job, whatever its schedule says, and also if the job is suspended."""
        job = await self.job(system, path)
        return await self._engine.create(
            self._ns,
            run_id(job.id, new_id() if key is None else from_key(key)),
            JOBRUN.kind,
            "run",
            spec=JobRunSpec(),
            parent=job.id,
            who=self._who,
            actor=self._actor,
            key=key,
        )

    async def run_record(self, system: str, run: str) -> Object:
        """Return a run of a system, or raise."""
        record = await self._engine.record(self._ns, run)
        if record.kind != JOBRUN.kind or system_of(record.id) != system:
            raise NotFound(self._ns, run)
        return record

    async def cancel(self, system: str, run: str) -> Accepted:
        """Cancel a run: a pending one ends at once, a running one when its instances have been stopped."""
        return await self._act(await self.run_record(system, run), "cancel")

    async def suspend(self, system: str, path: str) -> Accepted:
        """Suspend a job: its schedule and deploys do not run it."""
        return await self._act(await self.job(system, path), "suspend")

    async def resume(self, system: str, path: str) -> Accepted:
        """Resume a suspended job; scheduled times that have passed are not caught up."""
        return await self._act(await self.job(system, path), "resume")

    async def _act(self, record: Object, action: str) -> Accepted:
        return await self._engine.act(*record.key, action, who=self._who, actor=self._actor)
