"""Handlers: what users of the engine write. A handler does the work of an action, and its errors are policies.

The same operation may be run again after a crash or an unclear answer, so a handler is to be idempotent by the
operation's id; where it can look first (`observe`), it is asked to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from stateward.aio.coalescer import CALL_END_TIMEOUT_S
from stateward.engine.finish.claim_reports import Ending, Phase
from stateward.engine.requests import Request
from stateward.errors import StatewardError
from stateward.lifecycle import CONTROLLER, NO_FACTS
from stateward.store.records import Claim, Key, to_json

T = TypeVar("T")


class WorkError(StatewardError):
    """The base of what a handler raises to say what is to follow."""

    def __init__(self, message: str, *, after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.after = after

    def __str__(self) -> str:
        return self.message


class Temporary(WorkError):
    """It did not work now, and certainly nothing was done: try again later."""


class Permanent(WorkError):
    """It will not work however often it is tried."""


class Unknown(WorkError):
    """Nobody knows whether it was done: look first, then try again."""


class Throttled(WorkError):
    """The provider asks for a pause: the whole lane is backed off."""


class Parked(StatewardError):
    """Nothing can be done before somebody moves the object on, or its time is over."""

    def __str__(self) -> str:
        return "waits to be moved on"


class WaitingForChildren(StatewardError):
    """Children do the next step; the work is claimed again when they have ended."""

    def __str__(self) -> str:
        return "waits for its children"


class Fenced(StatewardError):
    """The work no longer belongs to this worker: whatever it says or does now does not count."""

    def __init__(self, op: str) -> None:
        super().__init__(op)
        self.op = op

    def __str__(self) -> str:
        return f"operation {self.op} belongs to another worker now, or has ended"


class ObservedOutcome(StrEnum):
    """What a look at the world tells about an operation.

    NOT_DONE is a proof: nothing was done, and no call is under way that could still do it. An operation that is
    cancelled with this proof goes back to where it was. An action that leaves no trace is REPEATABLE.
    """

    DONE = "done"
    NOT_DONE = "not done"
    REPEATABLE = "cannot be seen"  # no look can tell; to do it again does no harm
    UNKNOWN = "unknown"  # nobody can say now; a later look may


class JobContext(Protocol):
    """What a job needs of the worker that runs it."""

    async def progress(self, job: Job, text: str, done: int | None, total: int | None) -> None:
        """Keep a line of progress."""

    async def trouble(self, job: Job, text: str) -> None:
        """Journal what keeps a job from getting on."""

    async def checkpoint(self, job: Job, steps: dict[str, Any]) -> None:
        """Keep the steps that are done."""

    async def phase(self, job: Job, phase: Phase) -> None:
        """Report the end of a phase."""

    async def spawn(self, job: Job, step: str, requests: Sequence[Request]) -> dict[str, Any]:
        """Hand a step on to children; returns the job's steps if there is nothing to wait for."""


class Job:
    """A claimed operation in a handler's hands.

    `is_ending` tells a look that the operation ends with its answer: it was cancelled, or is overdue. Such a look may
    wait a while for proof. `sent` and `answers` count the provider calls of this attempt, by which the look knows what
    may still happen.
    """

    __slots__ = ("_context", "_steps", "answers", "claim", "is_ending", "sent")

    def __init__(self, claim: Claim, context: JobContext) -> None:
        self.claim = claim
        self.is_ending = False
        self.sent = 0
        self.answers: list[Any] = []
        self._context = context
        self._steps: dict[str, Any] = msgspec.json.decode(claim.operation.steps)

    @property
    def key(self) -> Key:
        """The operation's key: what makes the work idempotent."""
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
        """What is to be done."""
        return self.claim.operation.action

    @property
    def origin(self) -> str:
        """The state in which the object was when the action was accepted."""
        return self.claim.operation.origin

    @property
    def attempt(self) -> int:
        """How often it has been tried, this time included."""
        return self.claim.work.attempts

    @property
    def epoch(self) -> int:
        """The fencing token."""
        return self.claim.work.epoch

    @property
    def spec(self) -> Any:  # noqa: ANN401 - whatever the user put there
        """The object's spec, decoded."""
        return msgspec.json.decode(self.claim.object.spec)

    @property
    def args(self) -> Any:  # noqa: ANN401 - whatever the user put there
        """The action's arguments, decoded."""
        return msgspec.json.decode(self.claim.operation.args)

    async def progress(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Tell whoever waits how far it is; the lines are kept."""
        await self._context.progress(self, text, done, total)

    async def report_trouble(self, text: str) -> None:
        """Tell whoever waits what keeps this work from getting on; a handler does so at growing distance."""
        await self._context.trouble(self, text)

    async def once(self, step: str, work: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - what the step returned
        """Do a step of a composite action, unless it was done before; its result (JSON) is kept."""
        if step not in self._steps:
            self._steps[step] = await work()
            await self._context.checkpoint(self, self._steps)
        return self._steps[step]

    async def phase(self, event: str, actor: str = CONTROLLER, facts: frozenset[str] = NO_FACTS) -> None:
        """Report, once, that a phase has ended: a row of the table that leads to another transitional state."""
        done = f"phase: {event}"
        if done not in self._steps:
            steps = {**self._steps, done: None}
            await self._context.phase(self, Phase(event, actor, facts, to_json(steps)))
            self._steps = steps

    async def spawn(self, step: str, requests: Sequence[Request]) -> dict[str, str]:
        """Let other operations do a step, each a child of this one, accepted together in one transaction.

        The work is put down here, and the handler called anew when they have all ended; then this returns, for each
        object whose request was denied, the reason. Meanwhile nobody is kept busy with waiting. The ids of the
        children's operations are given here.
        """
        if step not in self._steps:
            self._steps = await self._context.spawn(self, step, requests)
        denied: dict[str, str] = self._steps[step]
        return denied

    def note_sent(self) -> None:
        """Note that a call has gone out to a provider."""
        self.sent += 1

    def note_answer(self, answer: Any) -> None:  # noqa: ANN401 - whatever a provider's driver says
        """Note the answer to a call, also after this work was told to stop."""
        self.answers.append(answer)

    @property
    def is_calling(self) -> bool:
        """Whether a call of this attempt has not ended: whatever is seen now may change by it."""
        return self.sent > len(self.answers)

    @property
    def is_untried(self) -> bool:
        """Whether no call was ever sent: this is the first attempt, and it has sent none."""
        return self.sent == 0 and self.attempt <= 1 and not self.claim.work.observe

    async def call(self, call: Awaitable[T]) -> T:
        """Await a provider call to its end, as `finish_call` does, and note its answer."""
        self.note_sent()
        task = asyncio.ensure_future(call)
        task.add_done_callback(self._note_end)
        return await finish_call(task)

    def _note_end(self, call: asyncio.Future[Any]) -> None:
        self.note_answer(None if call.cancelled() else call.exception() or call.result())

    @property
    def state(self) -> str:
        """The object's state when the work was claimed."""
        return self.claim.object.state

    @property
    def seen(self) -> Any:  # noqa: ANN401 - whatever a handler put there
        """What was last seen of the object, decoded."""
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
"""A look; whoever saw that it is done may say so with what was seen, and whoever cannot see may raise why."""


class Handler(Struct, frozen=True):
    """How an action is worked: what to run, how to look first, how often to try.

    `cancelled` is the look at work that was cancelled, where that is another one. Work that has it never ends as
    cancelled without it.
    """

    run: Run
    observe: Observe | None = None
    attempts: int | None = None  # None: until the deadline
    cancelled: Observe | None = None
