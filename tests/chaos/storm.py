"""The storm: workers and clients under load are killed, stopped and cut off at random; then the results are counted."""

# real time: kills and pauses come at times that a seed draws; each outcome is judged, none is expected
import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any, Literal

import asyncpg
from msgspec import Struct

from tests.chaos.aftermath import query
from tests.chaos.crane_yard import PATIENCE, open_yard
from tests.chaos.notes import Notes, read_notes
from tests.chaos.processes import Running, Site
from tests.chaos.watcher import Watcher
from tests.servers import PostgresServer

WORKERS = 3
CLIENTS = 2
LEFT = "SELECT (SELECT count(*) FROM work) + (SELECT count(*) FROM timers)"


class Weather(Struct, frozen=True):
    """What happens: a pack of blows, dealt in a random order and then shuffled again."""

    pack: dict[str, int]
    pause: tuple[float, float] = (0.1, 0.9)  # seconds between two blows

    def blows(self, chance: Random) -> Iterator[str]:
        """Deal for ever."""
        cards = [blow for blow, count in self.pack.items() for _ in range(count)]
        while True:
            yield from chance.sample(cards, len(cards))


SQLITE = Weather({"kill": 5, "stop": 5, "graceful stop": 1, "client kill": 2})
POSTGRES = Weather(
    {"kill": 5, "stop": 5, "graceful stop": 1, "client kill": 2, "cut": 2, "fast restart": 1, "immediate restart": 1}
)


class Storm:
    """One run, from the first process to the last."""

    def __init__(self, site: Site, weather: Weather, chance: Random, server: PostgresServer | None = None) -> None:
        self.site = site
        self._weather = weather
        self._chance = chance
        self._server = server
        self._workers: list[Running] = []
        self._clients: list[Running] = []
        self._names = Counter[str]()
        self._later: set[asyncio.Task[None]] = set()
        self.blows = Counter[str]()
        self.watcher = Watcher(site.store, chance)
        self.deaths: list[str] = []  # of processes that nobody had killed

    async def blow(self, seconds: float) -> None:
        """Let it blow for so long, and then wait until everything has come to rest and everybody has gone home.

        The whole pack is dealt at least once.
        """
        await open_yard(self.site.store)
        watching = asyncio.create_task(self.watcher.keep_watching())
        try:
            await self._begin()
            end = time.monotonic() + seconds
            for number, blow in enumerate(self._weather.blows(self._chance)):
                if number >= sum(self._weather.pack.values()) and time.monotonic() > end:
                    break
                await self._strike(blow)
                await asyncio.sleep(self._chance.uniform(*self._weather.pause))
            await self._calm()
            await self._until_seen()
        finally:
            self._note_trouble(watching)
            watching.cancel()
            await asyncio.gather(watching, *self._later, return_exceptions=True)
            await self.site.clear()

    def notes(self) -> list[Notes]:
        """Return what the clients have noted."""
        return [read_notes(self.site.notes_path(f"c{number}")) for number in range(CLIENTS)]

    # --- who is there ------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        self._workers = list(await asyncio.gather(*(self._new_worker(n) for n in range(WORKERS))))
        self._clients = [await self._new_client(number) for number in range(CLIENTS)]
        await asyncio.gather(*(worker.ready() for worker in self._workers))

    async def _new_worker(self, number: int) -> Running:
        """Start a worker under a new name: nobody is to mistake it for the one before it."""
        self._names[f"w{number}"] += 1
        name = f"w{number}.{self._names[f'w{number}']}"
        return await self.site.start("worker", name, str(self.site.ledger_path), "--lease", str(self.site.lease))

    async def _new_client(self, number: int) -> Running:
        """Start a client; the first one works as well, as a server does that is all in one process."""
        if number:
            return await self.site.client(f"c{number}")
        self._names["c0"] += 1
        working = ("--ledger", str(self.site.ledger_path), "--lease", str(self.site.lease))
        notes = str(self.site.notes_path("c0"))
        return await self.site.start("client", f"c0.{self._names['c0']}", notes, *self.site.manners, *working)

    async def _revive(self) -> None:
        """Note who died by itself, and go on with others in their place."""
        for number, running in enumerate(self._workers):
            if not running.alive:
                self._note_death(running)
                self._workers[number] = await self._new_worker(number)
        for number, running in enumerate(self._clients):
            if not running.alive:
                self._note_death(running)
                self._clients[number] = await self._new_client(number)

    def _note_death(self, running: Running) -> None:
        log = self.site.log_of(running.name)[-1500:]
        self.deaths.append(f"{running.name} died by itself ({running.process.returncode}): {log}")

    def _note_trouble(self, watching: asyncio.Task[None]) -> None:
        if watching.done():
            self.deaths.append(f"the watcher has died: {watching.exception()!r}")

    # --- blows -------------------------------------------------------------------------------------------------------

    async def _strike(self, blow: str) -> None:
        await self._revive()
        number = self._chance.randrange(WORKERS)
        strokes: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": lambda: self._kill(number),
            "stop": lambda: self._stop(number),
            "graceful stop": lambda: self._finish(number),
            "client kill": self._kill_client,
            "cut": self._cut,
            "fast restart": lambda: self._restart("fast"),
            "immediate restart": lambda: self._restart("immediate"),
        }
        self.blows[blow] += 1
        await strokes[blow]()

    async def _kill(self, number: int) -> None:
        await self._workers[number].kill()
        self._workers[number] = await self._new_worker(number)

    async def _stop(self, number: int) -> None:
        """Stop a worker, and wake it after a while, mostly when others have taken it for dead."""
        running = self._workers[number]
        if running.stopped or not running.alive:
            return
        running.stop()
        self._soon(self._chance.uniform(0.2, 2.5) * self.site.lease, running.wake)

    async def _finish(self, number: int) -> None:
        running = self._workers[number]
        if running.stopped:
            return
        await running.ready()
        self._workers[number] = await self._new_worker(number)
        code = await running.finish()
        if code:
            self.deaths.append(f"{running.name} was asked to stop and ended with {code}")

    async def _kill_client(self) -> None:
        number = self._chance.randrange(CLIENTS)
        await self._clients[number].kill()
        self._clients[number] = await self._new_client(number)

    async def _cut(self) -> None:
        """Cut some connections, in whatever they are doing."""
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            connection = await asyncpg.connect(self.site.store, timeout=5)
            try:
                await connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.4"
                )
            finally:
                await connection.close(timeout=5)

    async def _restart(self, mode: Literal["fast", "immediate"]) -> None:
        """Stop the server, politely or not; sometimes it stays away for longer than a lease."""
        assert self._server is not None
        await asyncio.to_thread(self._server.control, "stop", "-m", mode, "-w")
        await asyncio.sleep(max(0.0, self._chance.uniform(-1.0, 1.5)) * self.site.lease)
        await asyncio.to_thread(self._server.restart)

    def _soon(self, seconds: float, action: Callable[[], None]) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            action()

        task = asyncio.create_task(wait())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    # --- afterwards --------------------------------------------------------------------------------------------------

    async def _calm(self) -> None:
        await asyncio.gather(*self._later)
        await self._revive()
        await asyncio.gather(*(running.ready() for running in (*self._clients, *self._workers)))
        codes = await asyncio.gather(*(client.finish() for client in self._clients))
        await self._until_all_ended()
        codes += await asyncio.gather(*(worker.finish() for worker in self._workers))
        self.deaths += [f"a process that was asked to stop ended with {code}" for code in codes if code]

    async def _until_all_ended(self) -> None:
        """Wait until nothing is left to be done, and all who died are forgotten; a verdict tells what is left."""
        await self._until(lambda: query(self.site.store, LEFT), lambda rows: rows[0][0] == 0)
        registered = "SELECT count(*) FROM workers"  # one that was killed remains until its lease has expired
        await self._until(lambda: query(self.site.store, registered), lambda rows: rows[0][0] <= len(self._workers))

    async def _until_seen(self) -> None:
        """Wait until the watcher has come to the journal's end, or stands still: many lines may be left to read."""
        (last,) = (await query(self.site.store, "SELECT max(seq) FROM journal"))[0]
        with suppress(TimeoutError):
            while (reached := self._last_seen()) < last:
                async with asyncio.timeout(PATIENCE):
                    while self._last_seen() == reached:
                        await asyncio.sleep(0.05)

    def _last_seen(self) -> int:
        return self.watcher.lines[-1].seq if self.watcher.lines else 0

    async def _until(self, ask: Callable[[], Awaitable[Any]], good: Callable[[Any], bool]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while not good(await ask()):
                    await asyncio.sleep(0.05)
