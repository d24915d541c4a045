"""Clouds: a connection's driver, asked in bulk for many who each care about one VM.

Whoever acts on a VM asks here; what several ask for within a moment goes out as one call. Whoever waits for a state
shares one listing per region and tick with all others who wait there: a listing is the truth, and costs one call
however many VMs it tells of. A VM counts as absent when two complete listings, some time apart, do not have it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Generic, TypeVar

from stateward.domains.mci.evidence import Look, Sight
from stateward.drivers import Deed, Driver, Listing, Outcome, Ref, Unanswered, Want

MOMENT = 0.005
"""How many seconds calls are gathered."""

TICK, SLOWEST = 0.25, 4.0
"""How many seconds pass between two listings for those who wait: the first time, and when nothing comes for long."""

ABSENT_AFTER = 2.0
"""How many seconds apart two listings must be that do not have a VM, before it counts as absent."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Gatherer(Generic[Item, Answer]):
    """Lumps together what is asked for within a moment, up to what one call may hold."""

    def __init__(self, run: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]], most: int) -> None:
        self._run, self._most = run, max(1, most)
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, item: Item) -> Answer:
        """Return the answer to one item of a call."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if len(self._waiting) == 1:
            self._later(self._after_a_moment())
        if len(self._waiting) >= self._most:
            self._send()
        return await future

    async def _after_a_moment(self) -> None:
        await asyncio.sleep(MOMENT)
        self._send()

    def _send(self) -> None:
        batch, self._waiting = self._waiting, []
        if batch:
            self._later(self._call(batch))

    def _later(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _call(self, batch: list[tuple[Item, "asyncio.Future[Answer]"]]) -> None:
        try:
            answers = await self._run([item for item, _ in batch])
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)


class Cloud:
    """A connection's driver, shared by all who ask."""

    def __init__(self, driver: Driver, clock: Callable[[], float], *, tick: float = TICK) -> None:
        self.driver = driver
        self._clock, self._tick = clock, tick
        bulk = driver.caps.bulk
        self._creates: Gatherer[Want, Outcome] = Gatherer(driver.create, bulk)
        self._deeds = {deed: self._gather(deed, bulk) for deed in Deed}
        self._missing: dict[str, float] = {}  # keys that the last complete listing did not have, and since when
        self._watched: dict[str, list[asyncio.Future[Look]]] = defaultdict(list)
        self._watching: asyncio.Task[None] | None = None
        self._fresh: asyncio.Task[Listing] | None = None

    def _gather(self, deed: Deed, bulk: int) -> Gatherer[Ref, Outcome]:
        return Gatherer(lambda refs: self.driver.act(deed, refs), bulk)

    async def create(self, want: Want) -> Outcome:
        """Make a machine."""
        return await self._answered(want.key, self._creates.ask(want))

    async def act(self, deed: Deed, ref: Ref) -> Outcome:
        """Do something to a machine."""
        return await self._answered(ref.key, self._deeds[deed].ask(ref))

    async def _answered(self, key: str, call: Awaitable[Outcome]) -> Outcome:
        try:
            return await call
        except Exception as error:  # a driver that breaks has told nothing
            return Unanswered(key, f"{type(error).__name__}: {error}")

    # --- looking -----------------------------------------------------------------------------------------------------

    async def listing(self) -> Listing:
        """List everything; those who ask within a moment share one call."""
        if self._fresh is None or self._fresh.done():
            self._fresh = asyncio.ensure_future(self._list())
        return await asyncio.shield(self._fresh)

    async def _list(self) -> Listing:
        await asyncio.sleep(MOMENT)
        try:
            found = await self.driver.observe()
        except Exception as error:
            found = Listing((), complete=False, trouble=f"{type(error).__name__}: {error}")
        return found

    async def look(self, key: str) -> Look:
        """Look at one machine."""
        return (await self.looks([key]))[key]

    async def looks(self, keys: Collection[str]) -> dict[str, Look]:
        """Look at some machines, with one listing."""
        return self.read(await self.listing(), keys)

    def read(self, listing: Listing, keys: Collection[str]) -> dict[str, Look]:
        """Read from a listing what it tells of some machines."""
        shown = {one.key: one for one in listing.seen}
        now = self._clock()
        looks: dict[str, Look] = {}
        for key in keys:
            if key in shown:
                self._missing.pop(key, None)
                looks[key] = Look(Sight.PRESENT, shown[key])
            elif not listing.complete:
                looks[key] = Look(Sight.UNKNOWN, trouble=listing.trouble or "the listing was not complete")
            elif now - self._missing.setdefault(key, now) >= ABSENT_AFTER:
                looks[key] = Look(Sight.ABSENT)
            else:
                looks[key] = Look(Sight.UNKNOWN, trouble="missing in one listing so far")
        return looks

    async def until(self, key: str, wanted: Callable[[Look], bool]) -> Look:
        """Wait until a look shows what is wanted; the caller's deadline is the limit."""
        while True:
            future: asyncio.Future[Look] = asyncio.get_running_loop().create_future()
            self._watched[key].append(future)
            if self._watching is None or self._watching.done():
                self._watching = asyncio.ensure_future(self._watch())
            look = await future
            if wanted(look):
                return look

    async def _watch(self) -> None:
        """List for those who wait, until nobody does; when nothing changes, less and less often."""
        pause = 0.0
        shown: dict[str, object] = {}
        while self._watched:
            await asyncio.sleep(pause)
            keys = [key for key, futures in self._watched.items() if any(not one.done() for one in futures)]
            looks = await self.looks(keys)
            for key, look in looks.items():
                for future in self._watched.pop(key, ()):
                    if not future.done():
                        future.set_result(look)
            news = {key: (look.sight, look.shown and look.shown.state) for key, look in looks.items()}
            pause = self._tick if news != shown else min(SLOWEST, max(self._tick, pause) * 1.5)
            shown = dict(news)
            await asyncio.sleep(0)  # those who go on waiting say so now
            self._watched = defaultdict(list, {key: one for key, one in self._watched.items() if one})

    async def close(self) -> None:
        """Stop looking; the machines stay as they are."""
        if self._watching is not None:
            self._watching.cancel()
        await self.driver.close()
