"""Other durable engines as workloads on the same PostgreSQL, set up as their manuals say is fast.

A round is over when all jobs have been run; what is still written afterwards is not counted against them.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress

import asyncpg
import procrastinate
from dbos import DBOS, DBOSConfig
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.engine.workload import Workloads


class Peer:
    """So many callers, who enqueue one job after the other; or one of them, who enqueues as many at once."""

    def __init__(self, dsn: str, callers: int, batched: int = 0) -> None:
        self.dsn = dsn
        self.callers = callers
        self._batched = bool(batched)
        self._left = 0
        self._done = asyncio.Event()

    def one_done(self) -> None:
        """Count a job that was run."""
        self._left -= 1
        if self._left == 0:
            self._done.set()

    async def run(self, amount: int) -> None:
        self._left = amount
        self._done.clear()
        if self._batched:
            for first in range(0, amount, self.callers):
                await self.enqueue(min(self.callers, amount - first))
        else:
            left = iter(range(amount))
            await asyncio.gather(*(self._call(left) for _ in range(self.callers)))
        await self._done.wait()

    async def _call(self, left: Iterator[int]) -> None:
        for _ in left:
            await self.enqueue(1)

    async def enqueue(self, jobs: int) -> None:
        """Enqueue so many jobs at once."""
        raise NotImplementedError

    async def tidy(self) -> None: ...


class Pgqueuer(Peer):
    """pgqueuer, claiming in batches of as many as there are callers."""

    async def open(self) -> None:
        self._pool, connection = await asyncpg.create_pool(self.dsn), await asyncpg.connect(self.dsn)
        self._queries = Queries(AsyncpgPoolDriver(self._pool))
        await self._queries.install()
        self._manager = PgQueuer(AsyncpgDriver(connection))

        @self._manager.entrypoint("flash")
        async def flash(_: Job) -> None:
            self.one_done()

        self._task = asyncio.create_task(self._manager.run(batch_size=self.callers))

    async def close(self) -> None:
        self._manager.shutdown.set()
        await self._task
        await self._pool.close()

    async def enqueue(self, jobs: int) -> None:
        await self._queries.enqueue(["flash"] * jobs, [None] * jobs, [0] * jobs)


class Procrastinate(Peer):
    """Procrastinate, running as many jobs at once as there are callers."""

    async def open(self) -> None:
        logging.getLogger("procrastinate").setLevel(logging.ERROR)
        self._app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=self.dsn))
        await self._app.open_async()
        await self._app.schema_manager.apply_schema_async()

        @self._app.task(queue="lamps")
        async def flash() -> None:
            self.one_done()

        self._flash = flash
        self._task = asyncio.create_task(
            self._app.run_worker_async(concurrency=self.callers, install_signal_handlers=False)
        )

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._app.close_async()

    async def enqueue(self, jobs: int) -> None:
        await self._flash.batch_defer_async(*({} for _ in range(jobs)))


class Dbos(Peer):
    """DBOS; its queue is looked at twenty times more often than by default."""

    async def open(self) -> None:
        DBOS(config=DBOSConfig(name="bench", system_database_url=self.dsn, log_level="ERROR"))
        loop = asyncio.get_running_loop()

        @DBOS.workflow()
        async def flash() -> None:
            loop.call_soon_threadsafe(self.one_done)

        self._flash = flash
        DBOS.launch()
        await DBOS.register_queue_async("lamps", polling_interval_sec=0.05)

    async def close(self) -> None:
        await asyncio.to_thread(DBOS.destroy)

    async def enqueue(self, jobs: int) -> None:
        for _ in range(jobs):
            await DBOS.enqueue_workflow_async("lamps", self._flash)


NAMES: Workloads = {"pgqueuer": Pgqueuer, "procrastinate": Procrastinate, "dbos": Dbos}
