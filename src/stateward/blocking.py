"""The engine for programs without asyncio: scripts, Django, Flask, Celery.

    with BlockingEngine("orders.db", [machine]) as engine:
        engine.run("default", "m1", "make", kind=machine)

The engine itself runs in a background thread, with an event loop of its own. Each method blocks until the loop has
done its work, and can be called from any thread. A thread does not survive a fork: open an engine in each process,
after the fork. One that is used in a child of its process raises, because nothing would ever answer.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, Self, TypeVar

from stateward.engine import (
    Accepted,
    Completed,
    Engine,
    ExternalReport,
    HistoryEntry,
    Kind,
    ObjectSnapshot,
    Operation,
    OperationSnapshot,
    Request,
)
from stateward.engine.accept.accept import Verdict
from stateward.errors import StatewardError
from stateward.store import Store, open_store

__all__ = ["BlockingEngine", "CalledInLoop", "NotRunning", "UsedAfterFork"]

T = TypeVar("T")


class NotRunning(StatewardError):
    """A blocking engine was used that was not entered yet, or has been left."""

    text = "the engine is not running: use it inside of `with BlockingEngine(database, kinds) as engine:`"


class UsedAfterFork(StatewardError):
    """A blocking engine was used in a child of the process that entered it."""

    entered_in: int
    used_in: int
    text = (
        "the engine was entered in process {entered_in}, and process {used_in} is a fork of that one, without its "
        "threads: enter an engine in each process, after the fork (Celery: worker_process_init; Gunicorn: post_fork)"
    )


class CalledInLoop(StatewardError):
    """A blocking engine was used by the thread that does its work."""

    text = "an async handler cannot wait for its own loop: make the handler a plain function, or use `Engine`"


class BlockingEngine:
    """An `Engine` whose methods block. Use it as a context manager; it is safe to use in several threads.

    With `migrate`, the schema of a PostgreSQL database is created or migrated; that of an SQLite file always is.
    """

    def __init__(
        self,
        database: str | Store,
        kinds: Iterable[Kind],
        *,
        migrate: bool = False,
        **options: Any,  # noqa: ANN401 - as Engine
    ) -> None:
        self._database, self._kinds, self._options, self._migrate = database, list(kinds), options, migrate
        self._thread: threading.Thread | None = None
        self._engine: Engine | None = None
        self._pid = os.getpid()

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise StatewardError("the engine is entered already")
        started: Future[None] = Future()
        self._pid = os.getpid()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(started)), name="stateward engine", daemon=True
        )
        try:
            self._thread.start()
            started.result()
        except BaseException:  # it could not start, or Ctrl+C came while it did
            if not started.cancel() and started.exception() is None:
                self._loop.call_soon_threadsafe(self._left.set)
            self._thread.join()
            self._thread = None
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None and self._pid == os.getpid():
            self._loop.call_soon_threadsafe(self._left.set)
            self._thread.join()
        self._thread = None

    async def _serve(self, started: Future[None]) -> None:
        """Run the engine in this thread's loop until the context is left."""
        self._loop, self._left = asyncio.get_running_loop(), asyncio.Event()
        try:
            database = self._database
            store = open_store(database, migrate=self._migrate) if isinstance(database, str) else database
            engine = await Engine(store, self._kinds, **self._options).__aenter__()
        except BaseException as error:
            if started.set_running_or_notify_cancel():
                started.set_exception(error)
            return
        try:
            if started.set_running_or_notify_cancel():
                self._engine = engine
                started.set_result(None)
                await self._left.wait()
        finally:  # handlers that are still running use the engine until they have ended
            await engine.__aexit__()
            self._engine = None

    def _call(
        self,
        method: Callable[..., Coroutine[Any, Any, T]],
        *given: Any,  # noqa: ANN401 - the method's own
        **named: Any,  # noqa: ANN401
    ) -> T:
        """Let the loop carry out a method of the engine, and wait for its result."""
        if self._pid != os.getpid():
            raise UsedAfterFork(self._pid, os.getpid())
        engine = self._engine
        if engine is None or self._thread is None:
            raise NotRunning
        if threading.current_thread() is self._thread:
            raise CalledInLoop
        future = asyncio.run_coroutine_threadsafe(method(engine, *given, **named), self._loop)
        try:
            return future.result()
        except CancelledError:  # the context was left meanwhile
            raise NotRunning from None
        except BaseException:
            future.cancel()  # such as Ctrl+C while it waits
            raise

    def create(
        self,
        ns: str,
        object: str,  # noqa: A002 - the glossary's word
        kind: str | Kind,
        action: str | None = None,
        **how: Any,  # noqa: ANN401 - see `Engine.create`
    ) -> Accepted:
        """Create an object, by the first action of its lifecycle: `create`, or the only one there is."""
        return self._call(Engine.create, ns, object, kind, action, **how)

    def act(self, ns: str, object: str, action: str, **how: Any) -> Accepted:  # noqa: A002, ANN401
        """Submit an action on an object; see `Engine.request` for the options."""
        return self._call(Engine.act, ns, object, action, **how)

    def run(
        self,
        ns: str,
        object: str,  # noqa: A002
        action: str,
        *,
        kind: str | Kind | None = None,
        seconds: float | None = None,
        **how: Any,  # noqa: ANN401 - see `Engine.run`
    ) -> Completed:
        """Submit an action and wait for its end; with a `kind`, the action creates the object."""
        return self._call(Engine.run, ns, object, action, kind=kind, seconds=seconds, **how)

    def wait(self, ns: str, op: str, seconds: float | None = None, *, check: bool = False) -> OperationSnapshot:
        """Wait until an operation has ended; raises TimeoutError if it takes longer."""
        return self._call(Engine.wait, ns, op, seconds, check=check)

    def get(self, ns: str, object: str) -> ObjectSnapshot:  # noqa: A002
        """Return an object, or raise `NotFound`."""
        return self._call(Engine.get, ns, object)

    def history(self, ns: str, object: str, limit: int = 1000) -> list[HistoryEntry]:  # noqa: A002
        """Return the history of an object."""
        return self._call(Engine.history, ns, object, limit)

    def cancel(self, ns: str, op: str, who: str = "") -> Operation:
        """Cancel an operation and its children."""
        return self._call(Engine.cancel, ns, op, who)

    def signal(self, ns: str, op: str, name: str, payload: Any = None, **how: Any) -> bool:  # noqa: ANN401 - JSON
        """Send a signal to an operation, which takes it with `job.wait_for(name)`."""
        return self._call(Engine.signal, ns, op, name, payload, **how)

    def report(self, report: ExternalReport) -> bool:
        """Record the report of another party; returns whether it counted."""
        return self._call(Engine.report, report)

    def request(self, ns: str, object: str, action: str, **how: Any) -> Request:  # noqa: A002, ANN401
        """Build a request, for `plan`."""
        if self._engine is None:
            raise NotRunning
        return self._engine.request(ns, object, action, **how)

    def plan(self, requests: Sequence[Request]) -> list[Verdict]:
        """Return what requests would lead to, or what is in the way, without writing anything."""
        return self._call(Engine.plan, requests)
