"""Calls of handlers, observed from outside: each await at which one is suspended, with its file and line.

A report that says "this operation had two effects" leaves the search to its reader. The coroutine of a handler knows
the line at which it waits, so each call keeps it. A task that the handler started belongs to the same call.
"""

import sys
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextvars import ContextVar
from functools import cache
from inspect import iscoroutine
from linecache import getline
from pathlib import Path
from types import FrameType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

import stateward
from stateward.engine.handlers import Handler
from stateward.engine.job import Job, Undo
from stateward.engine.kinds import Kind
from stateward.engine.work_errors import Retry

PACKAGE = Path(stateward.__file__).parent
MACHINERY = tuple(str(PACKAGE / part) for part in ("engine", "testing", "aio"))
"""Code that runs a handler or that a handler calls, and which is not a handler itself."""


class CodeLine(Struct, frozen=True):
    """A line of code in which a function waits or waited."""

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        """The line itself."""
        return getline(self.file, self.line).strip()

    @property
    def short(self) -> str:
        """The name of the file, and the number of the line."""
        return f"{Path(self.file).name}:{self.line}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}, in {self.function}: {self.text}"


class HandlerCall:
    """A call of a handler. `lines` is where it was suspended last: the handler's own line first, then what it calls."""

    def __init__(self, job: Job, role: str, lines: tuple[CodeLine, ...] = ()) -> None:
        self.job = job
        self.role = role
        self.lines = lines
        self.observer: Observer | None = None

    def __str__(self) -> str:
        job = self.job
        return f"{self.role}{job.action} of {job.object} ({job.key.id}, attempt {job.attempt})"


CALL: ContextVar[HandlerCall | None] = ContextVar("handler call", default=None)
"""The call to which the running code belongs, also in tasks that a handler started."""


def current_lines() -> tuple[CodeLine, ...]:
    """Return where the handler is suspended to which the running code belongs; nothing outside of handlers."""
    call = CALL.get()
    return () if call is None else call.lines


class Observer(Struct, frozen=True):
    """What is told of the calls of handlers: their begin, each await, each step that they run, and their end."""

    begins: Callable[[HandlerCall], None]
    suspends: Callable[[HandlerCall], None]
    runs_step: Callable[[HandlerCall, str], None]
    ends: Callable[[HandlerCall], None]


def observe_handlers(kind: Kind, observer: Observer) -> Kind:
    """Return a copy of a kind whose handlers are observed."""
    return kind.with_handlers({action: _observe(handler, observer) for action, handler in kind.handlers.items()})


def _observe(handler: Handler, observer: Observer) -> Handler:
    def observed(function: Callable[[Job], Awaitable[Any]], role: str) -> Callable[[Job], Awaitable[Any]]:
        async def run(job: Job) -> Any:
            job.__class__ = _ObservedJob
            return await _run(HandlerCall(job, role), observer, function(job))

        return run

    return replace(
        handler,
        run=observed(handler.run, ""),
        observe=handler.observe and observed(handler.observe, "observer of "),
        cancelled=handler.cancelled and observed(handler.cancelled, "observer of "),
    )


async def _run(call: HandlerCall, observer: Observer, work: Awaitable[Any]) -> Any:
    call.observer = observer
    token = CALL.set(call)
    observer.begins(call)
    try:
        return await _Stepped(work, call, observer)
    finally:
        observer.ends(call)
        CALL.reset(token)


class _ObservedJob(Job):
    """A job whose steps and undos are observed."""

    __slots__ = ()

    async def once(
        self, step: str, work: Callable[[], Awaitable[Any]], *, undo: Undo | None = None, retry: Retry | None = None
    ) -> Any:
        call = CALL.get()
        if call is None or call.observer is None:
            return await super().once(step, work, undo=undo, retry=retry)
        here, lines = call, tuple(_frame_line(sys._getframe(1)))
        here.lines = lines or here.lines
        observer = call.observer

        async def run_step() -> Any:
            observer.runs_step(here, step)
            return await work()

        def observed(undo: Undo) -> Undo:
            return lambda result: _run(HandlerCall(self, f"undo of {step!r} in ", lines), observer, undo(result))

        return await super().once(step, run_step, undo=undo and observed(undo), retry=retry)


class _Stepped:
    """An awaitable that is told of each suspension of another one."""

    def __init__(self, work: Awaitable[Any], call: HandlerCall, observer: Observer) -> None:
        self._work = work if iscoroutine(work) else _as_coroutine(work)
        self._call = call
        self._observer = observer

    def __await__(self) -> Generator[Any, Any, Any]:
        work, error = self._work, None
        while True:
            try:
                waits_for = work.send(None) if error is None else work.throw(error)
            except StopIteration as end:
                return end.value
            self._call.lines = tuple(awaited_lines(work)) or self._call.lines
            self._observer.suspends(self._call)
            error = None
            try:
                yield waits_for
            except GeneratorExit:
                work.close()
                raise
            except BaseException as thrown:
                error = thrown


async def _as_coroutine(work: Awaitable[Any]) -> Any:
    return await work


def awaited_lines(waiting: Any, without: tuple[str, ...] = MACHINERY) -> Iterator[CodeLine]:
    """Walk down a suspended coroutine to what it waits for; leaves out files below some folders."""
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is not None:
            yield from _frame_line(frame, without)
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)


@cache
def _is_below(file: str, folders: tuple[str, ...]) -> bool:
    """Tell whether a file is below some folders, or in asyncio's; asked for each frame at each await."""
    return file.startswith(folders) or Path(file).parent.name == "asyncio"


def _frame_line(frame: FrameType, without: tuple[str, ...] = MACHINERY) -> Iterator[CodeLine]:
    """Yield the line of a frame, unless it belongs to the machinery."""
    file = frame.f_code.co_filename
    if not _is_below(file, without):
        yield CodeLine(file, frame.f_lineno, frame.f_code.co_name)
