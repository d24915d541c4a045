"""Handlers: a domain's functions that carry out actions. Their errors are policies.

An operation may run again after a crash or a lost answer. So a handler must be idempotent by the operation's id, and if
it can observe the outcome of an earlier attempt (`observe`), the worker asks it to do so first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from math import inf
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from stateward.aio.coalescer import CALL_END_TIMEOUT_S
from stateward.engine.finish.claim_reports import Ending, Phase
from stateward.engine.kind_types import KindTypes
from stateward.engine.requests import Request
from stateward.errors import StatewardError
from stateward.lifecycle import CONTROLLER, NO_FACTS
from stateward.store.records import Claim, Key, to_json

T = TypeVar("T")


class WorkError(StatewardError):
    """The base of the errors by which a handler says what happens next."""

    def __init__(self, message: str, *, after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.after = after

    def __str__(self) -> str:
        return self.message


class Temporary(WorkError):
    """The attempt failed, and certainly had no effect: try again later."""


class Permanent(WorkError):
    """The attempt failed, and every other attempt would: end the operation."""


class Unknown(WorkError):
    """The attempt may or may not have had an effect: observe first, then try again."""


class Throttled(WorkError):
    """The provider throttles: back off the whole lane."""


class Parked(StatewardError):
    """The operation waits until another party moves the object on, or until its deadline."""

    text = "waits to be moved on"


class WaitingForChildren(StatewardError):
    """Child operations carry out the next step; the operation is claimed again when they have ended."""

    text = "waits for its children"


class Fenced(StatewardError):
    """The worker no longer owns the operation: its reports do not count."""

    op: str
    text = "operation {op} belongs to another worker now, or has ended"


class ObservedOutcome(StrEnum):
    """The observed outcome of an operation.

    NOT_DONE is a proof: nothing was done, and no call in flight can still do it. An operation that is cancelled with
    this proof returns to its previous state. An action that leaves no trace is REPEATABLE.
    """

    DONE = "done"
    NOT_DONE = "not done"
    REPEATABLE = "cannot be seen"  # it cannot be observed, but may be repeated without harm
    UNKNOWN = "unknown"  # a later observation may tell


class JobContext(Protocol):
    """The worker's side of a job."""

    async def progress(self, job: Job, text: str, done: int | None, total: int | None) -> None:
        """Store a line of progress."""

    async def trouble(self, job: Job, text: str) -> None:
        """Journal an error that keeps a job from making progress."""

    async def checkpoint(self, job: Job, steps: dict[str, Any]) -> None:
        """Store the finished steps."""

    async def phase(self, job: Job, phase: Phase) -> None:
        """Report the end of a phase."""

    async def spawn(self, job: Job, step: str, requests: Sequence[Request]) -> dict[str, Any]:
        """Start the children of a step; returns the job's steps if no child began."""


class Job:
    """A claimed operation, as its handler sees it.

    `is_ending` says that the operation was cancelled or is overdue, and ends with the next observation, which may wait
    a while for proof. `sent` and `answers` count the provider calls of this attempt: a call without an answer may still
    have an effect.
    """

    __slots__ = ("_context", "_ends_at", "_steps", "_types", "answers", "claim", "is_ending", "sent")

    def __init__(
        self, claim: Claim, context: JobContext, remaining_s: float = inf, types: KindTypes | None = None
    ) -> None:
        self.claim = claim
        self._types = types
        self.is_ending = False
        self.sent = 0
        self.answers: list[Any] = []
        self._context = context
        self._ends_at = asyncio.get_running_loop().time() + remaining_s
        self._steps: dict[str, Any] = msgspec.json.decode(claim.operation.steps)

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
        return self._ends_at - asyncio.get_running_loop().time()

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

    async def progress(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Store a line of progress, for those who wait."""
        await self._context.progress(self, text, done, total)

    async def report_trouble(self, text: str) -> None:
        """Journal an error that keeps this job from making progress; a handler should do so at growing intervals."""
        await self._context.trouble(self, text)

    async def once(self, step: str, work: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - what the step returned
        """Run a step of a composite action, unless it is finished; its result (JSON) is stored."""
        if step not in self._steps:
            self._steps[step] = await work()
            await self._context.checkpoint(self, self._steps)
        return self._steps[step]

    async def phase(self, event: str, actor: str = CONTROLLER, facts: frozenset[str] = NO_FACTS) -> None:
        """Report the end of a phase, once: an event that leads to another transitional state."""
        done = f"phase: {event}"
        if done not in self._steps:
            steps = {**self._steps, done: None}
            await self._context.phase(self, Phase(event, actor, facts, to_json(steps)))
            self._steps = steps

    async def spawn(self, step: str, requests: Sequence[Request]) -> dict[str, str]:
        """Let child operations carry out a step; one transaction accepts them all.

        This raises, and the worker calls the handler again when all children have ended. Then this returns the denied
        requests: the object of each, and the reason. The ids of the children's operations are set here.
        """
        if step not in self._steps:
            self._steps = await self._context.spawn(self, step, requests)
        denied: dict[str, str] = self._steps[step]
        return denied

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
        return self.sent == 0 and self.attempt <= 1 and not self.claim.work.observe

    async def call(self, call: Awaitable[T]) -> T:
        """Await a provider call to its end, as `finish_call` does, and record its answer."""
        self.note_sent()
        task = asyncio.ensure_future(call)
        task.add_done_callback(self._note_end)
        return await finish_call(task)

    def _note_end(self, call: asyncio.Future[Any]) -> None:
        self.note_answer(None if call.cancelled() else call.exception() or call.result())

    @property
    def state(self) -> str:
        """The object's state when the operation was claimed."""
        return self.claim.object.state

    @property
    def seen(self) -> Any:  # noqa: ANN401 - whatever a handler put there
        """The last observed state of the object, decoded."""
        return msgspec.json.decode(self.claim.object.seen)


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
Observe = Callable[[Job], Awaitable[ObservedOutcome | Ending]]
"""An observer: returns the outcome, or an Ending with the observed state; it may raise why it cannot observe."""


class Handler(Struct, frozen=True):
    """How an action is carried out: the function, the observer of its outcome, and the number of attempts.

    `cancelled` is the observer of cancelled operations, if that is another one. An operation that has it never ends as
    cancelled without an observation.
    """

    run: Run
    observe: Observe | None = None
    attempts: int | None = None  # None: until the deadline
    cancelled: Observe | None = None
    args: type[Struct] | None = None  # the type of the action's arguments; any JSON without one
