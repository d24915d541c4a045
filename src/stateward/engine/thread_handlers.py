"""Handlers that are plain functions: each call gets a thread, so that it cannot block the event loop.

Such a function gets a `BlockingJob`, whose methods block until the loop has done their work. A thread cannot be
stopped. If its operation is cancelled or overdue, the worker waits a while for its end, as for any call to another
system. From then on, each method of the job raises, so that a function which reports its progress ends soon.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial, wraps
from inspect import isawaitable, iscoroutine, iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar

from stateward.aio.coalescer import CALL_END_TIMEOUT_S
from stateward.aio.threads import has_real_clock, run_in_thread
from stateward.errors import StatewardError
from stateward.lifecycle import CONTROLLER, NO_FACTS

if TYPE_CHECKING:
    from stateward.engine.job import ChildOutcome, Job
    from stateward.engine.requests import Request
    from stateward.engine.work_errors import Retry
    from stateward.store.records import Key

T = TypeVar("T")


class JobStopped(StatewardError):
    """The operation of a handler's thread was cancelled, is overdue, or belongs to another worker."""

    op: str
    text = "operation {op} was stopped: its handler must end"


class NoThreads(StatewardError):
    """A handler is a plain function, and the loop has a virtual clock, which cannot wait for threads."""

    text = "a handler that is a plain function needs a thread, and virtual time cannot wait for one: make it async"


class BlockingJob:
    """A claimed operation, as a handler sees it that is a plain function; see `Job` for the attributes."""

    key: "Key"
    ns: str
    object: str
    action: str
    origin: str
    state: str
    attempt: int
    epoch: int
    deadline: float
    now: float
    spec: Any
    args: Any
    seen: Any

    def __init__(self, job: "Job", loop: asyncio.AbstractEventLoop) -> None:
        self._job, self._loop = job, loop
        job.task = None  # each method runs in a task of its own, and the thread waits for it
        self.is_stopped = False
        """Whether the operation was stopped, so that the handler should end."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - attributes of the job
        return getattr(self._job, name)

    def progress(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Store a line of progress, for those who wait."""
        self._block(self._job.progress(text, done, total))

    def report_trouble(self, text: str) -> None:
        """Journal an error that keeps this job from making progress."""
        self._block(self._job.report_trouble(text))

    def set_timer(self, at: float, action: str) -> None:
        """Let the clock request an action of this object at a Unix time of the store's clock."""
        self._block(self._job.set_timer(at, action))

    def unset_timer(self, action: str) -> None:
        """Remove the timer of an action of this object, if there is one."""
        self._block(self._job.unset_timer(action))

    def once(
        self,
        step: str,
        work: Callable[[], Any],
        *,
        undo: Callable[[Any], Any] | None = None,
        retry: "Retry | None" = None,
    ) -> Any:  # noqa: ANN401 - what the step returned
        """Run a step of a composite action, unless it is finished; its result (JSON) is stored."""
        undo_step = None if undo is None else _as_async(undo)
        return self._block(self._job.once(step, _as_async(work), undo=undo_step, retry=retry))

    def sleep(self, seconds: float, *, step: str) -> None:
        """Sleep without a slot, over restarts, counted from the first call of this step."""
        self._block(self._job.sleep(seconds, step=step))

    def sleep_until(self, time: float) -> None:
        """Sleep without a slot until a Unix time of the store's clock."""
        self._block(self._job.sleep_until(time))

    def wait_for(self, signal: str, *, timeout_s: float | None = None, step: str | None = None) -> Any:  # noqa: ANN401
        """Wait for a signal to the operation, and return its payload."""
        return self._block(self._job.wait_for(signal, timeout_s=timeout_s, step=step))

    def phase(self, event: str, actor: str = CONTROLLER, facts: frozenset[str] = NO_FACTS) -> None:
        """Report the end of a phase, once."""
        self._block(self._job.phase(event, actor, facts))

    def spawn(self, step: str, requests: "Sequence[Request]") -> dict[str, str]:
        """Let child operations carry out a step."""
        return self._block(self._job.spawn(step, requests))

    def children(self, step: str) -> "list[ChildOutcome]":
        """Return how the children of a step have ended."""
        return self._block(self._job.children(step))

    def _block(self, work: Coroutine[Any, Any, T]) -> T:
        if self.is_stopped:
            work.close()
            raise JobStopped(self._job.key.id)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def as_handler(function: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
    """Return a handler or an observer that can be awaited: an async function as it is, a plain one in a thread."""
    if _is_async(function):
        return function
    if getattr(function, "__name__", "") == "<lambda>":  # most call an async function, and no lambda blocks by itself

        async def in_loop(job: "Job") -> Any:  # noqa: ANN401 - what the handler returns
            result = function(job)
            return await result if isawaitable(result) else result

        return in_loop

    @wraps(function)
    async def in_thread(job: "Job") -> Any:  # noqa: ANN401 - what the handler returns
        blocking = BlockingJob(job, asyncio.get_running_loop())
        return await _finish(partial(function, blocking), blocking)

    return in_thread


def _as_async(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return the work or the undo of a step as an async function."""
    if _is_async(function):
        return function

    async def in_thread(*given: Any) -> Any:  # noqa: ANN401 - what the step returned
        return await _finish(partial(function, *given))

    return in_thread


async def _finish(call: Callable[[], T], job: BlockingJob | None = None) -> T:
    """Run a function in a thread to its end, even if this task is cancelled meanwhile, as `finish_call` does."""
    if not has_real_clock(asyncio.get_running_loop()):
        raise NoThreads
    thread = run_in_thread(call)
    thread.add_done_callback(lambda future: future.cancelled() or future.exception())  # a late error is nobody's
    try:
        result = await asyncio.shield(thread)
    except asyncio.CancelledError:
        if job is not None:
            job.is_stopped = True
        await asyncio.wait([thread], timeout=CALL_END_TIMEOUT_S)
        raise
    if isawaitable(result):
        if iscoroutine(result):
            result.close()
        raise TypeError(f"{getattr(call, 'func', call)!r} returned an awaitable: declare it with `async def`")
    return result


def _is_async(function: Callable[..., Any]) -> bool:
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    return iscoroutinefunction(inner) or iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004
