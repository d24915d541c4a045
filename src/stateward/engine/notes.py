"""Notes: what a job has its worker write down before it ends. None of it counts once the job is another's."""

from collections.abc import Sequence
from typing import Any

import msgspec

from stateward.engine.batching import Batcher
from stateward.engine.handlers import Fenced, Job, WaitingForChildren
from stateward.engine.holding import record_trouble, save_job_state
from stateward.engine.kinds import Kinds
from stateward.engine.outcomes import ClaimReport, Phase
from stateward.engine.requests import Request
from stateward.engine.spawning import spawn
from stateward.engine.texts import sanitize_text
from stateward.engine.troubles import GrowingIntervals
from stateward.store.port import Store
from stateward.store.records import Progress


class JobStore:
    """What jobs ask of their worker."""

    def __init__(
        self,
        store: Store,
        kinds: Kinds,
        worker: str,
        reports: Batcher[ClaimReport, bool],
        reported: GrowingIntervals,
    ) -> None:
        self._store, self._kinds, self._worker, self._reports = store, kinds, worker, reports
        self._told_before = reported

    async def progress(self, job: Job, text: str, done: int | None, total: int | None) -> None:
        """Keep a line of progress."""
        await self._store.transact(
            lambda tx: save_job_state(
                tx, self._worker, job, [Progress(job.ns, job.key.id, tx.now, sanitize_text(text), done, total)]
            )
        )

    async def trouble(self, job: Job, text: str) -> None:
        """Journal what keeps a job from getting on."""
        parent = job.claim.operation.parent
        tells_parent = parent is not None and self._told_before.is_due((job.ns, parent))
        await self._store.transact(lambda tx: record_trouble(tx, self._worker, job, text, tells_parent=tells_parent))

    async def checkpoint(self, job: Job, steps: dict[str, Any]) -> None:
        """Keep a job's steps."""
        encoded = msgspec.json.encode(steps).decode()
        await self._store.transact(lambda tx: save_job_state(tx, self._worker, job, steps=encoded))

    async def phase(self, job: Job, phase: Phase) -> None:
        """Report the end of a phase."""
        if not await self._reports.submit(ClaimReport(job.claim.operation, self._worker, job.epoch, phase)):
            raise Fenced(job.key.id)

    async def spawn(self, job: Job, step: str, requests: Sequence[Request]) -> dict[str, Any]:
        """Hand a step of a job on to children; raises if there is something to wait for."""
        begun, steps = await self._store.transact(
            lambda tx: spawn(tx, self._kinds, self._worker, job.claim, job.epoch, step, requests)
        )
        if begun:
            raise WaitingForChildren
        return steps
