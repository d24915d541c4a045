"""Deadlines of actions: a live worker stops the work shortly before its deadline and observes the outcome.

The engine ends an operation at its deadline without knowing the outcome. So the work is stopped a little earlier, the
node is asked, and the action ends as observed: done after all, or back in its previous state. The journal names the
healer as the actor.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from stateward.engine import Ending, Job, ObservedOutcome
from stateward.lifecycle import FAILED, HEALER

Run = Callable[[Job], Awaitable[Any]]
Observe = Callable[[Job], Awaitable[ObservedOutcome | Ending]]

OBSERVE_SHARE = 0.1
"""The share of an action's time that is kept for the observation."""


def run_until_deadline(run: Run, look: Observe) -> Run:
    """Return a handler that observes the outcome when its time is nearly over."""

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
    return max(0.0, min(job.time_left_s, within) - within * OBSERVE_SHARE)
