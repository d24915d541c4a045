"""Compensation: an operation that has failed or was cancelled undoes its finished steps before it ends.

How it will end is stored before the first undo, so that nothing but the undos can follow. Each finished undo is stored
too. If the worker is lost in between, another one calls the handler again: finished steps return their results and
register their undos, and the first unfinished step ends the call.

Compensation must fit in the time until the operation's deadline. If a step is not undone, by then or at all, the error
names it, and the object goes where a time-out leads: nobody can say that nothing was done.
"""

import asyncio
import logging
from collections.abc import Awaitable
from random import Random

from stateward.aio.backoff import backoff_delay
from stateward.engine import work_errors
from stateward.engine.finish.claim_reports import Ending, Requeue
from stateward.engine.job import Job, Run
from stateward.engine.tracebacks import format_traceback
from stateward.lifecycle import CANCELLED, CLOCK, FAILED, TIMED_OUT, UNKNOWN, WORKER
from stateward.store.errors import StoreError

log = logging.getLogger("stateward.worker")

LEAVING_ERRORS = (work_errors.Fenced, StoreError, KeyboardInterrupt, GeneratorExit)
"""Errors that say who may continue the operation."""

RETRIED_ERRORS = (work_errors.Temporary, work_errors.Throttled, work_errors.Unknown, *work_errors.UNCLEAR_ERRORS)
"""Errors after which an undo is tried again."""

UNDONE_ENDS = (FAILED, UNKNOWN, CANCELLED)
"""The ends of an operation before which its finished steps are undone."""

INCOMPLETE_ENDS = (*UNDONE_ENDS, TIMED_OUT)
"""The ends whose error names the steps that are not undone."""


class Compensation:
    """Undoes the steps of one operation; `throttled` are the seconds for which its lane is to be backed off."""

    def __init__(self, run: Run, chance: Random) -> None:
        self._run, self._chance = run, chance
        self.throttled: float | None = None

    async def undo_before(self, job: Job, ending: Ending) -> Ending | Requeue:
        """Undo the finished steps before an end, if it needs that; returns the end, or when to go on."""
        if ending.event not in UNDONE_ENDS or not (job.pending_undos or job.end_after_undo):
            return name_steps_left(job, ending)
        try:
            async with asyncio.timeout(job.time_left_s) as limit:
                await job.begin_undo(ending)
                return await self._undo_all(job) or name_steps_left(job, ending)
        except TimeoutError:
            if limit.expired():
                return name_steps_left(job, ending)
            raise

    async def _undo_all(self, job: Job) -> Requeue | None:
        """Undo all finished steps, the last one first; returns when to go on if a passing error is in the way."""
        if job.missing_undos:
            error = await _error_of(job.replay(self._run))
            if job.missing_undos and (again := self._when_to_go_on(job, error)) is not None:
                return again
        while pending := job.pending_undos:
            error = await _error_of(job.undo(pending[0]))
            if error is None:
                await job.finish_undo(pending[0])
                continue
            if (again := self._when_to_go_on(job, error)) is not None:
                return again
            if not all(
                isinstance(part, work_errors.WorkError) for part in work_errors.parts_of(work_errors.source_of(error))
            ):
                record, traceback = (
                    job.claim.object,
                    job.mask_secrets(format_traceback(work_errors.source_of(error), __file__)),
                )
                what = (job.key.id, job.action, record.kind, record.id, record.ns, pending[0])
                log.error("operation %s (%s of %s %s in %s) cannot undo its step %s:\n%s", *what, traceback)
            await job.give_up_undo(pending[0], work_errors.describe_error(error))
        return None

    def _when_to_go_on(self, job: Job, error: BaseException | None) -> Requeue | None:
        """Return when to go on after an error; None if it will not pass, or not before the deadline."""
        if not isinstance(error, RETRIED_ERRORS):
            return None
        asked = getattr(error, "after", None)
        after = backoff_delay(job.attempt, self._chance) if asked is None else float(asked)
        if isinstance(error, work_errors.Throttled):
            self.throttled = after
        text = f"it undoes its steps: {str(error) or type(error).__name__}"
        return None if after >= job.time_left_s else Requeue(after, text, is_undoing=True)


async def _error_of(work: Awaitable[None]) -> BaseException | None:
    """Return the error of a handler or an undo; raises errors that say who may continue the operation."""
    task = asyncio.current_task()
    cancelled_before = 0 if task is None else task.cancelling()
    try:
        await work
    except LEAVING_ERRORS:
        raise
    except asyncio.CancelledError:
        if task is not None and task.cancelling() > cancelled_before:
            raise
        return work_errors.Unknown("something that it waited for was cancelled")
    except BaseExceptionGroup as group:
        error = work_errors.merge_errors(group)
        if isinstance(error, LEAVING_ERRORS):
            raise error from None
        error.__cause__ = group  # its parts are in the traceback
        return error
    except BaseException as error:
        return error
    return None


def name_steps_left(job: Job, ending: Ending) -> Ending:
    """Return an end whose error names the steps that are not undone; any other end is returned as it is."""
    if ending.event not in INCOMPLETE_ENDS:
        return ending
    left = [f"{step} could not be undone: {error}" for step, error in job.failed_undos.items()]
    event, actor = (TIMED_OUT, CLOCK) if ending.event == TIMED_OUT else (UNKNOWN, WORKER)
    if pending := job.pending_undos:
        left.append(f"there was no time to undo {', '.join(pending)}")
        event, actor = TIMED_OUT, CLOCK
    if not left:
        return ending
    error = "; ".join([ending.error or ending.event, *left])
    return Ending(event, actor, error=error, seen=ending.seen, traceback=ending.traceback)
