"""A job: a claimed operation as its handler sees it, with the steps that it has stored.

A handler may be called several times for one operation: after a crash, a sleep, a retry. The steps make it go on where
it was. Each finished step is stored before the next one begins, and is not run again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from inspect import isawaitable
from math import inf
from typing import Any, Literal, NoReturn, Protocol, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stateward.aio.coalescer import CALL_END_TIMEOUT_S
from stateward.engine import job_steps, work_errors
from stateward.engine.finish.claim_reports import Ending, Pause, Phase, Requeue
from stateward.engine.kind_types import KindTypes
from stateward.engine.provider_calls import CallLog, RecordedCall, WatchedCall
from stateward.engine.requests import Request
from stateward.errors import BadInput, UnknownName
from stateward.lifecycle import CONTROLLER, NO_FACTS
from stateward.store.records import Claim, Key, Status, to_json

T = TypeVar("T")

UNDO_EVENT, UNDO_FAILED_EVENT = "undoes its steps", "undo failed"
"""The journal events of an operation that has failed or was cancelled, and of a step that cannot be undone."""


class ChildOutcome(Struct, frozen=True):
    """How a child operation has ended: its object and action, its status, its decoded result, and its error."""

    object: str
    action: str
    status: Status
    result: Any
    error: str | None


class JobContext(Protocol):
    """The worker's side of a job."""

    async def progress(self, job: Job, text: str, done: int | None, total: int | None) -> None:
        """Store a line of progress."""

    async def trouble(self, job: Job, text: str) -> None:
        """Journal an error that keeps a job from making progress."""

    async def checkpoint(
        self, job: Job, steps: job_steps.Steps, event: str | None = None, reason: str | None = None
    ) -> None:
        """Store the finished steps; with an event, journal it in the same transaction."""

    async def take_signal(self, job: Job, signal: str, key: str, steps: job_steps.Steps) -> dict[str, Any] | None:
        """Take the oldest signal of a name, store it under a key of the steps, and return it; None if there is none."""

    async def set_timer(self, job: Job, action: str, at: float | None) -> None:
        """Set the timer of an action of the job's object; None removes it."""

    async def children(self, job: Job, step: str, count: int) -> list[ChildOutcome]:
        """Return how the children of a step have ended."""

    async def phase(self, job: Job, phase: Phase) -> None:
        """Report the end of a phase."""

    async def spawn(self, job: Job, step: str, requests: Sequence[Request]) -> job_steps.Steps:
        """Start the children of a step; returns the job's steps if no child began."""


class Job:
    """A claimed operation, as its handler sees it.

    `is_ending` says that the operation was cancelled or is overdue, and ends with the next observation, which may wait
    a while for proof. `sent` and `answers` count the provider calls of this attempt: a call without an answer may still
    have an effect.

    A failed or cancelled operation undoes its finished steps before it ends. Another worker may have to go on with it:
    then its handler is called again (`replay`), until every step that is to be undone has registered its undo.
    """

    __slots__ = (
        *("_calls", "_claimed_at", "_clock", "_context", "_ends_at", "_has_new_deadline", "_stage", "_started_at"),
        *("_steps", "_types", "_undos", "_used", "_writing"),
        *("answers", "claim", "interrupted_steps", "is_ending", "pause", "sent", "task"),
    )

    def __init__(
        self,
        claim: Claim,
        context: JobContext,
        remaining_s: float = inf,
        types: KindTypes | None = None,
        claimed_at: float = 0.0,
    ) -> None:
        self.claim = claim
        self._types = types
        self.is_ending = False
        self.sent = 0
        self.answers: list[Any] = []  # bounded by: one attempt
        self._context = context
        self._clock = asyncio.get_running_loop().time  # also for handlers in threads
        self._claimed_at, self._started_at = claimed_at, self._clock()
        self._ends_at = self._started_at + remaining_s
        self._steps: job_steps.Steps = msgspec.json.decode(claim.operation.steps)
        self._writing = asyncio.Lock()  # each write stores all steps, so one that overtakes another would lose some
        self._calls: CallLog | None = None  # most operations call no provider
        self._undos: dict[str, Undo] = {}  # bounded by: the steps of one operation
        self.task = asyncio.current_task()  # the one that calls the handler; None: its thread waits for each method
        self.interrupted_steps = set[str]()  # begun in a task of their own, and not ended there
        self._used: set[str] = set()  # the names of the steps to which this call of the handler came
        self._stage: Literal["run", "replay", "undo"] = "run"
        self._has_new_deadline = False  # a phase has ended in this attempt
        self.pause: Requeue | Pause | None = None  # how the claim is given back, if the job was suspended

    @property
    def key(self) -> Key:
        """The operation's key, by which a handler is idempotent."""
        return self.claim.operation.key

    @property
    def ns(self) -> str:
        """The namespace."""
        return self.claim.object.ns

    @property
    def object(self) -> str:
        """The object's id."""
        return self.claim.object.id

    @property
    def action(self) -> str:
        """The action."""
        return self.claim.operation.action

    @property
    def origin(self) -> str:
        """The object's state when the action was accepted."""
        return self.claim.operation.origin

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.claim.work.attempts

    @property
    def epoch(self) -> int:
        """The fencing token."""
        return self.claim.work.epoch

    @property
    def time_left_s(self) -> float:
        """The seconds until the operation's deadline, counted from the claim; the host's clock does not matter."""
        return self._ends_at - self._clock()

    @property
    def deadline(self) -> float:
        """The operation's deadline as of the claim, as a Unix time of the store's clock."""
        return inf if self.claim.work.deadline is None else self.claim.work.deadline

    @property
    def now(self) -> float:
        """The Unix time of the store's clock, by which sleeps and waits are measured."""
        # Not by the deadline: rounding must not bring the time before the claim, which came at the end of a sleep.
        return self._claimed_at + (self._clock() - self._started_at)

    @property
    def spec(self) -> Any:  # noqa: ANN401 - whatever the user put there
        """The object's spec: the kind's struct if it declares one, or any JSON."""
        text = self.claim.object.spec
        return msgspec.json.decode(text) if self._types is None else self._types.read_spec(text)

    @property
    def args(self) -> Any:  # noqa: ANN401 - whatever the user put there
        """The action's arguments: the struct that the kind declares for them, or any JSON."""
        text = self.claim.operation.args
        return msgspec.json.decode(text) if self._types is None else self._types.read_args(self.action, text)

    def mask_secrets(self, text: str) -> str:
        """Return a text in which the secrets of the spec and of the arguments are masked."""
        if self._types is None or not self._types.has_secrets:
            return text
        return self._types.mask_in(text, self.claim.object.spec, self.action, self.claim.operation.args)

    def mask_result(self, result: str) -> str:
        """Return a result, as JSON text, in which the secrets of the spec and of the arguments are masked."""
        if self._types is None or not self._types.has_secrets:
            return result
        return self._types.mask_result(result, self.claim.object.spec, self.action, self.claim.operation.args)

    async def progress(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Store a line of progress, for those who wait."""
        async with self._writing:
            await self._context.progress(self, text, done, total)

    async def report_trouble(self, text: str) -> None:
        """Journal an error that keeps this job from making progress; a handler should do so at growing intervals."""
        async with self._writing:
            await self._context.trouble(self, text)

    async def set_timer(self, at: float, action: str) -> None:
        """Let the clock request an action of this object at a Unix time of the store's clock; replaces an earlier one.

        The lifecycle needs a row for the action by `CLOCK`.
        """
        await self._context.set_timer(self, action, at)

    async def unset_timer(self, action: str) -> None:
        """Remove the timer of an action of this object, if there is one."""
        await self._context.set_timer(self, action, None)

    async def once(
        self, step: str, work: StepWork, *, undo: Undo | None = None, retry: work_errors.Retry | None = None
    ) -> Any:  # noqa: ANN401 - what the step returned
        """Run a step of a composite action, unless it is finished; its result (JSON) is stored.

        `work` is an async function, or a plain one that does not block, such as `lambda: uuid4().hex`. `undo` gets the
        result, and is called if the operation fails or is cancelled later: once, unless it is interrupted. `retry`
        says when a failed step is tried again; the operation holds no slot meanwhile.
        """
        job_steps.check_step_name(step)
        if retry is not None:
            self._require_own_task("a step with retry=")
        with self._use(step, step):
            return await self._once(step, work, undo, retry)

    def result_of(self, step: str) -> Any:  # noqa: ANN401 - what the step returned
        """Return the result of a step that has finished, in this attempt or an earlier one; otherwise None."""
        return self._steps.get(step)

    async def _once(self, step: str, work: StepWork, undo: Undo | None, retry: work_errors.Retry | None) -> Any:  # noqa: ANN401 - what the step returned
        if step not in self._steps:
            self._require_running("a step")
            began = self.now
            if asyncio.current_task() is not self.task:
                self.interrupted_steps.add(step)
            try:
                result = await _result_of(work()) if retry is None else await self._try(step, work, retry)
            except asyncio.CancelledError:
                raise
            except BaseException:
                self.interrupted_steps.discard(step)
                raise
            if self._stage == "undo":  # of a thread that nobody waits for any more: its undo would never be called
                raise work_errors.Permanent(f"step {step!r} has ended after the operation began to undo its steps")
            self.interrupted_steps.discard(step)
            to_json(result)  # what cannot be stored must not keep steps side by side from being stored
            self._steps[step] = result
            self._note_time(step, began)
            if undo is not None:
                self._steps[f"{job_steps.UNDO}{step}"] = None
            try:
                await self._store_steps()
            except Exception:
                del self._steps[step], self._steps[f"{job_steps.TIME}{step}"]
                self._steps.pop(f"{job_steps.UNDO}{step}", None)
                raise
        if undo is not None:
            self._undos[step] = undo
            self._steps.setdefault(f"{job_steps.UNDO}{step}", None)  # it may have had no undo when it finished
            if self._stage == "replay" and not self.missing_undos:
                raise work_errors.Suspended
        return self._steps[step]

    async def _store_steps(self, event: str | None = None, reason: str | None = None) -> None:
        async with self._writing:
            await self._context.checkpoint(self, self._steps, event, reason)

    def _note_time(self, key: str, began: float, *, is_over: bool = True) -> None:
        """Record when something of the steps began, and that it is over now."""
        self._steps[f"{job_steps.TIME}{key}"] = [began, self.now if is_over else None]

    def note_attempt(self, error: str, after_s: float) -> str:
        """Record that this attempt has failed; returns all steps as JSON."""
        masked, now = self.mask_secrets(error), self.now
        job_steps.note_attempt(self._steps, str(self.attempt), self._claimed_at, now, masked, now + after_s)
        return to_json(self._steps)

    @contextmanager
    def _use(self, key: str, step: str) -> Iterator[None]:
        """Refuse the second use of a name, which would do nothing; a step that has failed may be tried again."""
        if key in self._used:
            text = f"step {step!r} is used twice in one call of the handler: give each its own name, such as {step}-1"
            raise work_errors.Permanent(text)
        self._used.add(key)
        try:
            yield
        except BaseException:
            self._used.discard(key)
            raise

    async def call_handler(self, run: Run) -> Any:  # noqa: ANN401 - what the handler returns
        """Call the handler from its beginning: each step may come once more."""
        self._used.clear()
        return await run(self)

    async def _try(self, step: str, work: StepWork, retry: work_errors.Retry) -> Any:  # noqa: ANN401
        """Attempt a step; after an error that the policy names, the claim is given back until the next attempt.

        The last failure is stored too: a handler that catches it and goes on gets it again when it is called again.
        """
        key = f"{job_steps.RETRY}{step}"
        failures = self._steps.get(key, 0)
        if isinstance(failures, str):
            raise work_errors.StepFailed(failures)
        began = self.now
        try:
            return await _result_of(work())
        except Exception as error:
            if not all(isinstance(part, retry.on) for part in work_errors.parts_of(error)):
                raise
            merged = work_errors.merge_errors(error)
            failures, text = failures + 1, str(merged) or type(merged).__name__
            delay_s = retry.delay_s(failures, merged)
            masked = self.mask_secrets(text)
            job_steps.note_attempt(self._steps, f"{step} {failures}", began, self.now, masked, self.now + delay_s)
            if failures >= retry.attempts or delay_s >= self.time_left_s:
                failed = work_errors.StepFailed(
                    f"step {step!r} has failed in {failures} of {retry.attempts} attempts, the last time with: {text}"
                )
                self._steps[key] = self.mask_secrets(str(failed))
                await self._store_steps()
                raise failed from error
            self._steps[key] = failures
            self._suspend(Requeue(delay_s, f"{step}: {text}", failures=failures, steps=to_json(self._steps)))

    async def sleep(self, seconds: float, *, step: str) -> None:
        """Sleep, counted from the first call of this step; the operation holds no slot, and restarts do not matter."""
        if not 0 <= seconds < inf:
            raise BadInput("seconds", seconds, "a number of seconds, 0 or more")
        self._require_own_task("a sleep")
        key = f"{job_steps.SLEEP}{step}"
        with self._use(key, step):
            if key not in self._steps:
                self._require_running("a sleep")
                self._steps[key] = self._require_time(self.now + seconds)
                self._steps[f"{job_steps.TIME}{key}"] = [self.now, self._steps[key]]
            self._sleep_until(self._steps[key])

    async def sleep_until(self, time: float) -> None:
        """Sleep until a Unix time of the store's clock (see `now`); returns at once if it has passed."""
        if not time < inf:
            raise BadInput("time", time, "a Unix time")
        self._require_own_task("a sleep")
        if self.now < time:
            self._require_running("a sleep")
            self._steps[f"{job_steps.SLEEP}until"] = self._require_time(time)
        self._sleep_until(time)

    def _sleep_until(self, time: float) -> None:
        if self.now < time:
            self._require_running("a sleep")
            self._suspend(Pause(time, to_json(self._steps)))

    async def wait_for(self, signal: str, *, timeout_s: float | None = None, step: str | None = None) -> Any:  # noqa: ANN401
        """Wait for a signal to the operation, and return its payload; the operation holds no slot meanwhile.

        Each wait takes one signal, also one that came before; `step` names a further wait for the same signal. After
        `timeout_s` seconds this raises `SignalTimedOut`. Without it, the wait lasts until the operation's deadline.
        """
        if timeout_s is not None and not 0 <= timeout_s < inf:
            raise BadInput("timeout_s", timeout_s, "a number of seconds, 0 or more")
        self._require_own_task("a wait")
        key = f"{job_steps.WAIT}{step or signal}"
        with self._use(key, step or signal):
            wait = self._steps.get(key)
            if wait is None or "until" in wait:
                self._require_running("a wait")
                if wait is None:
                    wait = {"signal": signal, "until": timeout_s and self._require_time(self.now + timeout_s)}
                await self._await_signal(key, signal, wait)
            if "payload" not in self._steps[key]:
                raise work_errors.SignalTimedOut(signal)
            return self._steps[key]["payload"]

    async def _await_signal(self, key: str, signal: str, wait: dict[str, Any]) -> None:
        """Take a signal; if there is none, suspend the job, or store that the signal did not come in time."""
        began = self._steps.get(f"{job_steps.TIME}{key}", [self.now])[0]
        self._note_time(key, began)
        async with self._writing:
            taken = await self._context.take_signal(self, signal, key, self._steps)
        if taken is not None:
            self._steps[key] = taken
            return
        until = wait["until"]
        if until is None or self.now < until:
            self._steps[key] = wait
            self._note_time(key, began, is_over=False)
            self._suspend(Pause(until, to_json(self._steps), signal))
        self._steps[key] = {"signal": signal}
        await self._store_steps()

    def _require_time(self, until: float) -> float:
        """Refuse to wait beyond the deadline; if a phase has changed that, the next claim knows the new one."""
        if until < self.deadline:
            return until
        if self._has_new_deadline:
            self._suspend(Pause(0.0, to_json(self._steps)))
        raise work_errors.PastDeadline(until, self.deadline)

    def _suspend(self, pause: Requeue | Pause) -> NoReturn:
        self.pause = pause
        raise work_errors.Suspended

    def _require_own_task(self, what: str) -> None:
        """Refuse to end the call of the handler from another task: tasks beside it would be interrupted."""
        if self.task is not None and asyncio.current_task() is not self.task:
            raise work_errors.Permanent(
                f"{what} is not possible in a task group, nor in any task but the handler's own"
            )

    def _require_running(self, what: str) -> None:
        """Let nothing new begin in a job that was suspended, or whose operation has failed."""
        if self._stage == "undo":
            raise work_errors.Permanent(f"{what} is not possible in an undo")
        if self._stage == "replay" or self.pause is not None:
            raise work_errors.Suspended

    async def phase(self, event: str, actor: str = CONTROLLER, facts: frozenset[str] = NO_FACTS) -> None:
        """Report the end of a phase, once: an event that leads to another transitional state."""
        done = f"{job_steps.PHASE}{event}"
        if done not in self._steps:
            self._require_running("a phase")
            async with self._writing:
                steps = to_json({**self._steps, done: None})
                await self._context.phase(self, Phase(event, actor, facts, steps))
                self._steps[done] = None  # not another dict: a step beside it may have finished meanwhile
            self._has_new_deadline = True

    async def spawn(self, step: str, requests: Sequence[Request]) -> dict[str, str]:
        """Let child operations carry out a step; one transaction accepts them all.

        This raises, and the worker calls the handler again when all children have ended. Then this returns the denied
        requests: the object of each, and the reason. The ids of the children's operations are set here.
        """
        job_steps.check_step_name(step)
        self._require_own_task("a step with children")
        with self._use(step, step):
            if step not in self._steps:
                self._require_running("a step")
                async with self._writing:
                    self._steps |= await self._context.spawn(self, step, requests)
            denied: dict[str, str] = self._steps[step]
            return denied

    async def children(self, step: str) -> list[ChildOutcome]:
        """Return how the children of a step have ended, in the order of their requests, without denied ones."""
        counts = {
            key.removeprefix(job_steps.CHILDREN): count
            for key, count in self._steps.items()
            if key.startswith(job_steps.CHILDREN)
        }
        if step not in counts:
            raise UnknownName("step with children", step, counts)
        return await self._context.children(self, step, counts[step])

    # --- the end of a failed operation: the worker's side -------------------------------------------------------------

    @property
    def end_after_undo(self) -> Ending | None:
        """How the operation ends when its steps are undone, if it has failed or was cancelled."""
        stored = self._steps.get(job_steps.END_AFTER_UNDO)
        return None if stored is None else msgspec.convert(stored, Ending)

    @property
    def pending_undos(self) -> list[str]:
        """The finished steps that are still to be undone, the last one first."""
        return job_steps.pending_undos(self._steps)

    @property
    def missing_undos(self) -> list[str]:
        """The pending undos that the handler has not registered in this attempt."""
        return [step for step in self.pending_undos if step not in self._undos]

    @property
    def failed_undos(self) -> dict[str, str]:
        """The errors of the undos that have failed, by their steps."""
        return job_steps.failed_undos(self._steps)

    async def begin_undo(self, ending: Ending) -> None:
        """Store how the operation ends, before the first step is undone."""
        if self.end_after_undo is None:
            error = None if ending.error is None else self.mask_secrets(ending.error)
            stored = replace(ending, actor=str(ending.actor), error=error, traceback=None)  # steps are shown to all
            self._steps[job_steps.END_AFTER_UNDO] = msgspec.to_builtins(stored)
            await self._store_steps(UNDO_EVENT, error)
        self._stage = "undo"

    async def replay(self, run: Run) -> None:
        """Call the handler until all pending undos are registered; whatever it would begin anew raises."""
        self._stage = "replay"
        try:
            await self.call_handler(run)
        finally:
            self._stage = "undo"

    async def undo(self, step: str) -> None:
        """Undo a step."""
        if step not in self._undos:
            raise work_errors.Permanent("its handler did not come to this step again")
        began = self.now
        await _result_of(self._undos[step](self._steps[step]))
        self._note_time(f"{job_steps.UNDO}{step}", began)

    async def finish_undo(self, step: str) -> None:
        """Store that a step is undone."""
        self._steps[f"{job_steps.UNDO}{step}"] = job_steps.UNDONE
        await self._store_steps()

    async def give_up_undo(self, step: str, error: str) -> None:
        """Store and journal that a step cannot be undone."""
        masked = self.mask_secrets(error)
        self._steps[f"{job_steps.UNDO}{step}"] = {"error": masked}
        await self._store_steps(UNDO_FAILED_EVENT, f"{step}: {masked}")

    def note_sent(self) -> None:
        """Count a call that was sent to a provider."""
        self.sent += 1

    def note_answer(self, answer: Any) -> None:  # noqa: ANN401 - whatever a provider's driver says
        """Record the answer to a call, also after this job was cancelled."""
        self.answers.append(answer)

    @property
    def is_calling(self) -> bool:
        """Whether a call of this attempt is in flight, and may change what is observed."""
        return self.sent > len(self.answers)

    @property
    def is_untried(self) -> bool:
        """Whether no call was ever sent: this is the first attempt, and it has sent none."""
        is_first = self.attempt <= 1 and not any(
            step.startswith((job_steps.RETRY, job_steps.SLEEP, job_steps.WAIT)) for step in self._steps
        )
        return self.sent == 0 and is_first and not self.claim.work.observe

    async def call(self, call: Awaitable[T], *, name: str = "", at: str = "", target: str = "") -> T:
        """Await a provider call to its end, as `finish_call` does, and record its answer.

        The timeline shows the call by its name (that of the function, if none is given), its provider, and its target.
        """
        name = name or getattr(call, "__name__", "call")
        if self._stage == "replay":
            if asyncio.iscoroutine(call):
                call.close()
            raise work_errors.Suspended
        witness = self.watch_call(name, at=at, target=target)
        witness.note_sent()
        task = asyncio.ensure_future(call)
        task.add_done_callback(witness.note_end)
        return await finish_call(task)

    def watch_call(self, name: str, *, at: str = "", target: str = "") -> WatchedCall:
        """Return the witness of a call of a driver that sends calls for several jobs: it counts and records it."""
        return WatchedCall(self._call_log, self, name, at, target)

    def record_call(self, name: str, *, at: str = "", target: str = "") -> AbstractContextManager[None]:
        """Record, for the timeline alone, a call that changes nothing at the provider, such as an observation."""
        return RecordedCall(self._call_log, name, at, target)

    @property
    def _call_log(self) -> CallLog:
        if self._calls is None:
            self._calls = CallLog(lambda: self._steps, lambda: self.now, self.mask_secrets)
        return self._calls

    @property
    def calls(self) -> job_steps.Steps:
        """The records of the provider calls of this attempt."""
        return {} if self._calls is None else self._calls.records

    @property
    def steps_with_calls(self) -> str | None:
        """All steps as JSON, if this attempt has called a provider; otherwise None."""
        return to_json(self._steps) if self.calls else None

    @property
    def state(self) -> str:
        """The object's state when the operation was claimed."""
        return self.claim.object.state

    @property
    def seen(self) -> Any:  # noqa: ANN401 - whatever a handler put there
        """The last observed state of the object, decoded."""
        return msgspec.json.decode(self.claim.object.seen)


async def _result_of(result: Any) -> Any:  # noqa: ANN401 - whatever a step returns
    return await result if isawaitable(result) else result


async def finish_call(call: Awaitable[T]) -> T:
    """Await a provider call to its end, even if this task is cancelled meanwhile.

    A request that was sent still arrives, so an observation before its end would report "not done" too early. A call
    that does not end within `CALL_END_TIMEOUT_S` seconds is left behind.
    """
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=CALL_END_TIMEOUT_S)
        raise


Run = Callable[[Job], Awaitable[Any]]
"""A handler's function."""

StepWork = Callable[[], Any]
"""The work of a step: what it returns is awaited if it can be."""

Undo = Callable[[Any], Any]
"""The compensation of a step: it gets the step's result, and what it returns is awaited if it can be."""
