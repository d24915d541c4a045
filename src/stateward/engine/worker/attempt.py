"""One attempt at an operation: run its handler to an outcome, and read its errors as policies.

An error says what to do next: retry later, observe first, fail, or back off the lane. A task that is cancelled says why
(`StopReason`), because a fenced, a cancelled and a lost operation end differently.
"""

import asyncio
from math import inf
from random import Random
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from stateward.aio.backoff import MAX_DELAY_S, backoff_delay
from stateward.engine import work_errors
from stateward.engine.finish.claim_reports import Ending, Pause, Requeue
from stateward.engine.handlers import Handler, Observe, ObservedOutcome
from stateward.engine.job import Job
from stateward.engine.tracebacks import format_traceback
from stateward.engine.worker.compensation import INCOMPLETE_ENDS, Compensation, name_steps_left
from stateward.lifecycle import CANCELLED, CLOCK, FAILED, HEALER, SUCCEEDED, TIMED_OUT, UNKNOWN
from stateward.store.errors import StoreError
from stateward.store.records import Claim, Key, WorkItem, to_json

Outcome = Ending | Requeue | Pause

OBSERVE_TIMEOUT_S = 30.0
"""How many seconds an observation may take before its result counts as unknown."""

OBSERVE_AGAIN_MAX_S = 15.0
"""How many seconds pass at most between two observations; they are shorter than retries, because they do no harm."""


class Attempt:
    """One attempt at an operation."""

    def __init__(self, handler: Handler, chance: Random) -> None:
        self._handler = handler
        self._chance = chance
        self.throttled: float | None = None  # seconds for which the lane is to be backed off

    async def run(self, job: Job, remaining: float) -> Outcome:
        """Run the handler within the remaining seconds; a failed operation then undoes its finished steps."""
        outcome = job.end_after_undo or await self._run_handler(job, remaining)
        return await self._undo_before(job, job.pause or outcome)

    async def _undo_before(self, job: Job, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Ending) or outcome.event not in INCOMPLETE_ENDS:
            return outcome
        compensation = Compensation(self._handler.run, self._chance)
        ended = await compensation.undo_before(job, outcome)
        self.throttled = self.throttled or compensation.throttled
        return ended

    async def _run_handler(self, job: Job, remaining: float) -> Outcome:
        """Run the handler to an outcome; observe first if the operation had an owner before."""
        cancelled_before = _cancel_requests()
        try:
            async with asyncio.timeout(remaining) as limit:
                try:
                    if job.claim.work.observe and self._handler.observe is not None:
                        seen = await self._handler.observe(job)
                        if isinstance(seen, Ending):
                            return seen
                        if seen is ObservedOutcome.DONE:
                            return Ending()
                        if seen is ObservedOutcome.UNKNOWN:
                            raise work_errors.Unknown("nobody can say whether it was done")
                    result = await job.call_handler(self._handler.run)
                    if isinstance(result, Ending):
                        return result
                    return Ending(result=None if result is None else to_json(result))
                except BaseExceptionGroup as group:
                    raise work_errors.merge_errors(group) from group
        except (work_errors.WorkError, *work_errors.UNCLEAR_ERRORS) as error:
            if limit.expired():
                return Ending(TIMED_OUT, CLOCK, error=f"not done {job.claim.operation.within:g} s after it was begun")
            return self._classify_error(job, error, remaining)
        except work_errors.Parked as waiting:
            return Requeue(None, str(waiting))
        except (work_errors.Fenced, work_errors.WaitingForChildren, StoreError, KeyboardInterrupt, GeneratorExit):
            raise  # these say who may continue the operation, not how it ended
        except asyncio.CancelledError:
            if _cancel_requests() > cancelled_before:
                raise
            return self._classify_error(
                job, work_errors.Unknown("something that its handler waited for was cancelled"), remaining
            )
        except BaseException as error:
            # Also of `sys.exit`, which would end the process, and `Suspended`, maybe in a group: then it has a pause.
            traceback = format_traceback(error, __file__) if job.pause is None else None
            return Ending(FAILED, error=work_errors.describe_error(error), traceback=traceback)

    def _classify_error(self, job: Job, error: Exception, remaining: float) -> Outcome:
        unclear = isinstance(error, (work_errors.Unknown, *work_errors.UNCLEAR_ERRORS)) or bool(job.interrupted_steps)
        has_fault = not all(
            isinstance(part, work_errors.WorkError) for part in work_errors.parts_of(work_errors.source_of(error))
        )
        told = format_traceback(work_errors.source_of(error), __file__) if has_fault else None
        text = str(error) or type(error).__name__
        if job.interrupted_steps:
            text += f"; interrupted, maybe with an effect: {', '.join(sorted(job.interrupted_steps))}"
        given_up = Ending(UNKNOWN if unclear else FAILED, error=text, traceback=told)
        tried_enough = self._handler.attempts is not None and job.attempt >= self._handler.attempts
        if isinstance(error, work_errors.Permanent) or tried_enough:
            return given_up
        asked = getattr(error, "after", None)
        longest = OBSERVE_AGAIN_MAX_S if unclear and self._handler.observe is not None else MAX_DELAY_S
        after = backoff_delay(job.attempt, self._chance, longest=longest) if asked is None else float(asked)
        if isinstance(error, work_errors.Throttled):
            self.throttled = after
        elif after >= remaining:
            return given_up
        return Requeue(after, given_up.error, observe=unclear, attempts=job.note_attempt(text, after))

    async def observe(self, job: Job, observe: Observe | None) -> ObservedOutcome | Ending:
        """Observe the outcome; without an observer, or after an error, it is unknown."""
        if observe is None:
            return ObservedOutcome.UNKNOWN
        job.is_ending = True
        cancelled_before = _cancel_requests()
        try:
            async with asyncio.timeout(OBSERVE_TIMEOUT_S):
                return await observe(job)
        except (work_errors.Fenced, StoreError):
            raise
        except asyncio.CancelledError:
            if _cancel_requests() > cancelled_before:
                raise
            return ObservedOutcome.UNKNOWN
        except (Exception, SystemExit):
            return ObservedOutcome.UNKNOWN

    async def resolve_overdue(self, job: Job) -> Ending:
        """Return how an operation that has passed its deadline ended, by an observation."""
        return name_steps_left(job, job.end_after_undo or await self._observe_overdue(job))

    async def _observe_overdue(self, job: Job) -> Ending:
        seen = await self.observe(job, self._handler.observe)
        if isinstance(seen, Ending):
            return replace(seen, actor=HEALER) if seen.event == SUCCEEDED else seen
        if seen is ObservedOutcome.DONE:
            return Ending(SUCCEEDED, HEALER)
        if seen is ObservedOutcome.NOT_DONE:
            return Ending(FAILED, HEALER, error=f"{_overdue(job)}, and found not done")
        return Ending(TIMED_OUT, CLOCK, error=f"{_overdue(job)}, and nobody can say whether it was done")

    async def resolve_cancelled(self, job: Job) -> Outcome:
        """Return how an operation that was cancelled has ended: done after all, or its finished steps are undone."""
        return await self._undo_before(job, job.end_after_undo or await self._observe_cancelled(job))

    async def _observe_cancelled(self, job: Job) -> Ending:
        """Return how an operation that was cancelled while it ran has ended: done after all, or back in its old state.

        Only a proof that nothing was done brings it back. A handler without an observer counts as having no effects.
        """
        observe = self._handler.cancelled or self._handler.observe
        seen = await self.observe(job, observe)
        if isinstance(seen, Ending):
            return seen
        if seen is ObservedOutcome.DONE:
            return Ending(SUCCEEDED)
        if seen is ObservedOutcome.NOT_DONE or observe is None:
            return Ending(CANCELLED, error="cancelled")
        return Ending(UNKNOWN, error="cancelled, and nobody can say whether it was done")


def _overdue(job: Job) -> str:
    return f"overdue, {job.claim.operation.within:g} s after it was begun"


def _cancel_requests() -> int:
    """Return how often this task was cancelled: if not more often than before, something it awaited was cancelled."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


StopReason = Literal["", "fenced", "cancelled", "lost"]


class RunningOperation(Struct, eq=False):
    """A running operation: its claim, its task, and why the task was cancelled, if it was."""

    claim: Claim
    begun_at: float  # the store's time
    predecessors: tuple[Key, ...] = ()  # whose slot it has taken over, until one of their reports is committed
    task: asyncio.Task[None] | None = None
    stop_reason: StopReason = ""
    slot_released: bool = False  # it no longer counts against the lane
    orphaned: bool = False  # no report was committed: the claim has to be reconciled with the store
    given_up_at: float = inf  # the time of the loop at which its handler must have ended, long after the deadline


def stop_if_superseded(running: RunningOperation, work: WorkItem | None) -> None:
    """Stop an operation that the store gave to another worker, fenced or cancelled; `work` is its row, or None."""
    if work is None or work.epoch != running.claim.work.epoch:
        request_stop(running, "lost")
    elif work.fenced:
        request_stop(running, "fenced")
    elif work.cancelled and not running.claim.work.cancelled:
        request_stop(running, "cancelled")


def request_stop(running: RunningOperation, reason: StopReason) -> None:
    """Cancel an operation's task; being fenced or lost replaces the reason `cancelled`, and nothing else does."""
    if running.task is not None and (
        not running.stop_reason or (running.stop_reason == "cancelled" and reason != "cancelled")
    ):
        running.stop_reason = reason
        running.task.cancel()
