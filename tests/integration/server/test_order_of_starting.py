"""Handlers run only while the runtime of their domain runs, and a server resumes them only when it answers."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from stateward.config import Config
from stateward.engine import Engine, Job, KindBuilder
from stateward.engine.worker import worker
from stateward.plugin.runtime import DomainRuntime
from stateward.server import run
from stateward.server.run import engine_of, running_worker
from stateward.server.telemetry.traces import NoTraces
from stateward.store import open_store
from stateward.store.errors import Unavailable
from stateward.store.records import Status


class Registry(DomainRuntime):
    """A domain with a client, whose opening and closing take a while; its handler needs the client."""

    def __init__(self) -> None:
        self.is_open, self.begun, self.proceed = False, asyncio.Event(), asyncio.Event()
        name = KindBuilder("test.name")

        @name.creates(to="registered")
        async def register(job: Job) -> None:
            self.begun.set()
            while not self.proceed.is_set():
                self._require_open()
                await asyncio.sleep(0)
            self._require_open()

        @name.deletes()
        async def release(job: Job) -> None: ...

        super().__init__([name.build()])

    def _require_open(self) -> None:
        if not self.is_open:
            raise RuntimeError("client is closed")

    @asynccontextmanager
    async def running(self, engine: Engine, *, works: bool) -> AsyncIterator[None]:
        # real time: a handler that began too early would find the client closed
        await asyncio.sleep(0.1)
        self.is_open = True
        try:
            yield
        finally:
            self.is_open = False
            # real time: a handler that began too early would find the client closed
            await asyncio.sleep(0.1)


async def test_an_operation_that_outlives_the_drain_is_finished_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "SHUTDOWN_GRACE_S", 0.0)
    config = Config(data=str(tmp_path))
    first, second = Registry(), Registry()
    async with asyncio.timeout(60):
        async with engine_of(config, NoTraces(), [first]) as engine, running_worker(engine):
            op = (await engine.create("ns", "n1", "test.name")).op.id
            await first.begun.wait()
        second.proceed.set()
        async with engine_of(config, NoTraces(), [second]) as engine, running_worker(engine):  # it waits in the store
            ended = await engine.wait("ns", op)
    assert (ended.status, ended.error) == (Status.SUCCEEDED, None)


async def test_the_server_answers_before_its_worker_resumes_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, listeners, answers = Config(data=str(tmp_path), only="leases", port=0), list[socket.socket](), list[int]()
    bind, start_worker = run.listener_of, Engine.start_worker

    def note_listener(config: Config) -> socket.socket:
        listeners.append(bind(config))
        return listeners[0]

    async def ask_first(engine: Engine) -> None:
        async with httpx.AsyncClient() as client:
            answers.append((await client.get(f"http://127.0.0.1:{listeners[0].getsockname()[1]}/healthz")).status_code)
        await start_worker(engine)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(run, "listener_of", note_listener)
    monkeypatch.setattr(Engine, "start_worker", ask_first)
    async with asyncio.timeout(60):
        await run.serve(config, lambda _: None)
    assert answers == [200]


@pytest.mark.parametrize("program", ["server", "worker"])
async def test_a_process_whose_database_goes_away_while_it_starts_begins_again(
    program: str, tmp_path: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(postgres_dsn, migrate=True)
    await store.open()
    await store.close()
    config = Config(data=str(tmp_path), database=postgres_dsn, only="leases", port=0)
    opened, closed, started = list[Engine](), list[Engine](), list[object]()
    open_engine, close_engine = Engine.open, Engine.close

    async def open_or_lose(engine: Engine) -> None:
        await open_engine(engine)
        opened.append(engine)

    async def note_close(engine: Engine) -> None:
        closed.append(engine)
        await close_engine(engine)

    @asynccontextmanager
    async def lose_first(*_: object) -> AsyncIterator[None]:
        if len(opened) == 1:
            raise Unavailable("the connection was lost")
        yield

    def note_start(about: object) -> None:
        started.append(about)
        assert closed == opened[:1]
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Engine, "open", open_or_lose)
    monkeypatch.setattr(Engine, "close", note_close)
    monkeypatch.setattr(run, "prune_hourly", lose_first)
    async with asyncio.timeout(60):
        await (run.serve(config, note_start) if program == "server" else run.work(config, note_start))
    assert (len(opened), len(closed), len(started)) == (2, 2, 1)
