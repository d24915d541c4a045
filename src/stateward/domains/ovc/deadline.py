"""What has not been done in its time, by a worker that lives: it looks at what is true before it gives up.

The engine ends what has outlived its deadline. That is no answer, so a little before it the work is stopped here, the
node is asked what is true, and the action ends as that says: done after all, or back where it was. That is the healer's
work, and stands in its report.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from stateward.engine import Ending, Job, ObservedOutcome
from stateward.lifecycle import FAILED, HEALER

Run = Callable[[Job], Awaitable[Any]]
Observe = Callable[[Job], Awaitable[ObservedOutcome | Ending]]

OBSERVE_SHARE = 0.1
"""What part of the time for an action is left for the look."""


def run_until_deadline(run: Run, look: Observe) -> Run:
    """Return work that looks at what is true when its time is nearly over."""

    async def bounded(job: Job) -> Any:  # noqa: ANN401 - what the work returns
        try:
            async with asyncio.timeout(_time_left_s(job)) as limit:
                return await run(job)
        except TimeoutError:
            if not limit.expired():
                raise
        job.is_ending = True
        seen = await look(job)
        if isinstance(seen, Ending):
            return replace(seen, actor=HEALER)
        if seen is ObservedOutcome.DONE:
            return Ending(actor=HEALER)
        error = f"not done {job.claim.operation.within:g} s after it was begun, and found {seen}"
        return Ending(FAILED, HEALER, error=error)

    return bounded


def _time_left_s(job: Job) -> float:
    within = job.claim.operation.within
    left = within if job.claim.work.deadline is None else job.claim.work.deadline - time.time()
    return max(0.0, min(left, within) - within * OBSERVE_SHARE)
