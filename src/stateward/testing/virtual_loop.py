"""An event loop in virtual time: nothing sleeps, time jumps to the next timer, and one seed gives one run.

Every callback belongs to a party (a simulated process), by the context in which it was scheduled. A party that is
stopped is not run any further: what would run is parked, exactly as SIGSTOP does it, at whatever await its tasks are. A
party that is never resumed is a process that was killed: not even its `finally` blocks are run.
"""

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from math import inf
from typing import Any, TypeVarTuple

Ts = TypeVarTuple("Ts")

BUSIEST = 20_000
"""How many turns of the loop a virtual second may take before it counts as spinning."""


class Stuck(Exception):
    """Nothing is left that could ever happen, though somebody waits for it."""


class Spinning(Exception):
    """The loop turns without time going on."""


class LoopParty:
    """Something whose code can be stopped as a whole."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stopped = False
        self.parked: list[events.Handle] = []


PARTY: ContextVar[LoopParty | None] = ContextVar("party", default=None)

URGENT: ContextVar[bool] = ContextVar("urgent", default=False)
"""Whether code runs before everything else that is ready."""


class _Handle(events.Handle):
    __slots__ = ()

    _loop: "VirtualLoop"

    def _run(self) -> None:
        if not _parked(self):
            super()._run()
            if self._loop.on_suspended is not None:
                self._loop.report_suspension(self)


class _TimerHandle(events.TimerHandle):
    __slots__ = ()

    def _run(self) -> None:
        if not _parked(self):
            super()._run()


def _parked(handle: events.Handle) -> bool:
    context: Context = handle._context  # type: ignore[attr-defined]
    party = context.get(PARTY)
    if party is None or not party.stopped:
        return False
    party.parked.append(handle)
    return True


def _task_of(handle: events.Handle) -> asyncio.Task[Any] | None:
    """Return the task that a handle continues."""
    task = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
    return task if isinstance(task, asyncio.Task) else None


class _Jump:
    """Stands where the selector would be: instead of waiting, it moves the time on."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise Stuck("the test waits for something that can never happen: no task and no timer is left")
        self._loop.pass_time(timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """A loop whose time is a number; it raises `Stuck` once that has passed a limit."""

    _ready: deque[events.Handle]
    _scheduled: list[events.TimerHandle]

    def __init__(self, limit_s: float = inf) -> None:
        super().__init__()
        self._limit_s = limit_s
        self._selector = _Jump(self)
        self._now = 0.0
        self._clock_resolution = 1e-6
        self._second = 0
        self._turns = 0
        self._paused: tuple[asyncio.Task[Any], list[events.Handle]] | None = None
        self.on_suspended: Callable[[asyncio.Task[Any], Context], None] | None = None
        """Called after each step of a task that has not ended: the task is at an await."""

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self._now

    def pass_time(self, seconds: float) -> None:
        """Move the time on."""
        self._now += seconds
        self._turns += 1
        if self._now > self._limit_s:
            limit_s, self._limit_s = self._limit_s, inf  # what is left can still be cancelled
            raise Stuck(f"the test still waits after {limit_s / 86_400:g} virtual days")
        if int(self._now) != self._second:
            self._second, self._turns = int(self._now), 0
        elif self._turns > BUSIEST:
            raise Spinning(f"{BUSIEST} turns within second {self._second}")

    def forgive(self) -> None:
        """Count turns anew."""
        self._second = -1

    def resume(self, party: LoopParty) -> None:
        """Let a party go on where it was stopped."""
        party.stopped = False
        parked, party.parked = party.parked, []
        self._ready.extend(handle for handle in parked if not handle.cancelled())

    def report_suspension(self, handle: events.Handle) -> None:
        """Call `on_suspended`, if a handle has continued a task up to its next await."""
        task = _task_of(handle)
        if task is not None and not task.done() and self.on_suspended is not None:
            self.on_suspended(task, handle._context)  # type: ignore[attr-defined]

    def pause(self, task: asyncio.Task[Any]) -> None:
        """Keep one task at the await where it is, until `unpause`; everything else continues."""
        self._paused = task, [handle for handle in self._ready if _task_of(handle) is task]
        for handle in self._paused[1]:
            self._ready.remove(handle)

    def unpause(self) -> None:
        """Let the paused task continue."""
        if self._paused is not None:
            (_, kept), self._paused = self._paused, None
            self._ready.extend(kept)

    # What the base class asks of its subclasses, and the two places where it makes handles.

    def _process_events(self, event_list: list[object]) -> None:
        """Take note of no events: there are no files and no sockets here."""

    def _write_to_self(self) -> None:
        """Wake nobody up: there are no threads here."""

    def run_in_executor(self, executor: object, func: object, *args: object) -> Any:  # noqa: ARG002
        """Refuse: a thread ends at a real time, and one seed would give several runs."""
        raise AssertionError(f"{func} would run in a thread, and there are none in virtual time")

    def _call_soon(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> _Handle:
        handle = _Handle(callback, args, self, context)
        if self._paused is not None and _task_of(handle) is self._paused[0]:
            self._paused[1].append(handle)
        elif handle._context.get(URGENT):  # type: ignore[attr-defined]
            behind = next((n for n, call in enumerate(self._ready) if not call._context.get(URGENT)), len(self._ready))  # type: ignore[attr-defined]
            self._ready.insert(behind, handle)
        else:
            self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> events.TimerHandle:
        """Call a function at a virtual time."""
        timer = _TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer
