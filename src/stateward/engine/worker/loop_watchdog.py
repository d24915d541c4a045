"""The watchdog of the event loop: finds a handler that blocks it, and logs where.

All handlers of a process share one thread. One that computes, or calls something that does not return to the loop,
stops all others, and in the end the heartbeats: other workers then take its operations over. Nothing in the loop itself
can tell, so a thread asks the loop for an answer once a second. While there is none, it reads the stack of the loop's
thread, and which task is running.

Loops with a clock of their own are not watched: there, no time passes.
"""

import asyncio
import linecache
import logging
import sys
import sysconfig
import threading
from collections.abc import Iterable
from time import monotonic
from types import FrameType

from stateward.aio.backoff import GrowingIntervals
from stateward.aio.threads import has_real_clock
from stateward.engine.worker.attempt import RunningOperation

log = logging.getLogger("stateward.worker")

PROBE_INTERVAL_S = 1.0
"""How many seconds pass between two questions to the loop."""

BLOCKED_AFTER_S = 1.0
"""After how many seconds without an answer the loop counts as blocked; it is told again when it is twice as long."""

_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class LoopWatchdog:
    """Watches the loop of a worker."""

    def __init__(self, running: Iterable[RunningOperation]) -> None:
        self._running = running
        self._stopped = threading.Event()
        self._intervals = GrowingIntervals(monotonic)

    def start(self) -> None:
        """Start to watch the running loop, unless it has a clock of its own."""
        loop = asyncio.get_running_loop()
        if has_real_clock(loop):
            watch = threading.Thread(
                target=self._watch, args=(loop, threading.get_ident()), name="stateward watchdog", daemon=True
            )
            watch.start()

    def stop(self) -> None:
        """Stop to watch."""
        self._stopped.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        answered = threading.Event()
        while not self._stopped.wait(PROBE_INTERVAL_S):
            answered.clear()
            asked_at, told_after_s = monotonic(), BLOCKED_AFTER_S
            try:
                loop.call_soon_threadsafe(answered.set)
            except RuntimeError:  # the loop is closed
                return
            while not answered.wait(asked_at + told_after_s - monotonic()):
                if self._stopped.is_set():
                    return
                self._report(loop, sys._current_frames().get(thread), monotonic() - asked_at)  # noqa: SLF001
                told_after_s *= 2

    def _report(self, loop: asyncio.AbstractEventLoop, innermost: FrameType | None, seconds: float) -> None:
        """Log the operation whose handler has run for so long without returning to the loop, and its line."""
        task = asyncio.current_task(loop)
        running = next((entry for entry in list(self._running) if task is not None and entry.task is task), None)
        if running is None or innermost is None:
            return  # a child task of a handler, or a part of the server: it has no operation to name
        operation, place = running.claim.operation, _describe_place(innermost)
        if self._intervals.is_due((operation.kind, operation.action, place)) or seconds > 2 * BLOCKED_AFTER_S:
            what = (operation.id, operation.action, operation.kind, operation.object)
            log.warning(
                "operation %s (%s of %s %s) blocks the event loop for %.1f s now, and with it all other work of this "
                "process, at %s; await what takes long, or make the handler a plain function, which gets a thread",
                *what,
                seconds,
                place,
            )


def _describe_place(innermost: FrameType) -> str:
    """Return the innermost line that is not in a library, as text; the innermost one of all if each is."""
    frame: FrameType | None = innermost
    while frame is not None and frame.f_code.co_filename.startswith((*_LIBRARIES, "<frozen")):
        frame = frame.f_back
    shown = frame or innermost
    path, line = shown.f_code.co_filename, shown.f_lineno
    text = linecache.getline(path, line).strip()
    return f"{path}:{line} in {shown.f_code.co_name}" + (f": {text}" if text else "")
