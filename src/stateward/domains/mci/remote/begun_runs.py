"""Runs that have no id on the VM: a driver without SSH would repeat them, so the operation stores that they begin.

The commands of such a run leave nothing on the machine by which another worker could follow them. Before the first one
of some VMs begins, a step is stored for all of them. A worker that takes over finds it, and does not run the commands
there again: nobody knows how far they came.
"""

import asyncio
from collections.abc import Sequence

from stateward.engine import Job

BEGIN_TOGETHER = 100
"""For how many VMs one step is stored; as many as a command runs on at the same time."""

INTERRUPTED = "it was interrupted with its worker, and may have run, in whole or in part; it is not run again"


class BegunRuns:
    """The VMs on which an operation has begun a run; `run` is the run's id, and `vms` are the names of its VMs."""

    def __init__(self, job: Job, run: str, vms: Sequence[str]) -> None:
        self._job = job
        self._steps = {vm: f"begun {run} {number // BEGIN_TOGETHER}" for number, vm in enumerate(vms)}
        self._before = {vm for vm in vms if self.is_of_earlier_attempt(vm)}
        self._storing = asyncio.Lock()

    def is_of_earlier_attempt(self, vm: str) -> bool:
        """Tell whether an earlier attempt at the operation may have begun the run on a VM."""
        began = self._job.result_of(self._steps[vm])
        return began is not None and began != self._job.attempt

    async def begin(self, vm: str) -> bool:
        """Store that the run begins on a VM; returns whether it can begin: no earlier attempt has begun it."""
        if vm in self._before:
            return False
        async with self._storing:
            if self._job.result_of(self._steps[vm]) is None:
                await self._job.once(self._steps[vm], self._attempt)
        return True

    async def _attempt(self) -> int:
        return self._job.attempt
