"""A process's connection to the store, with injected faults.

Delays before and after a transaction; errors before the commit; commits whose answer is lost; functions that run
twice; the way cut for a while, with errors at once or with silence; wake-up calls that come late or never.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from random import Random
from typing import Any, TypeVar, cast

from msgspec import Struct, field

from stateward.store.changes import Changes
from stateward.store.errors import StoreBusy, Unavailable, WriteConflict
from stateward.store.port import Reader, Store, Tx, TxFunction
from stateward.store.records import Claim, Key, Object, WorkerRecord
from stateward.store.topics import Topic
from tests.simulation.loop import PARTY, Party, VirtualLoop

T = TypeVar("T")


class Weather(Struct):
    """How bad it is: chances for each transaction."""

    slow: float = 0.1
    longest: float = 0.6
    error: float = 0.03
    lost: float = 0.03
    conflict: float = 0.04
    stale: float = 0.1  # a request is decided on objects as they were before: only the compare-and-set can notice
    deaf: float = 0.1  # a wake-up call does not come


CALM = Weather(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
NOTHING = Changes()

Former = Mapping[str, Object]
"""Objects as they were before they last changed."""

FRESH: Former = {}


class Tape(Struct):
    """What the transaction that was committed has done."""

    changes: list[Changes] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    workers: bool = False  # a worker sent a heartbeat, or was removed

    @property
    def wrote(self) -> bool:
        """Whether anything but signs of life was written."""
        return bool(self.changes or self.claims)


class Taped:
    """A transaction that notes what is done with it."""

    def __init__(self, tx: Tx, tape: Tape, former: Former) -> None:
        self._tx = tx
        self._tape = tape
        self._former = former

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    async def objects(self, keys: Collection[Key]) -> dict[Key, Object]:
        found = await self._tx.objects(keys)
        return {key: self._former.get(key.id, one) for key, one in found.items()}

    async def claim(self, rooms: dict[str, int], owner: str, spares: dict[str, int]) -> list[Claim]:
        claims = await self._tx.claim(rooms, owner, spares)
        self._tape.claims += claims
        return claims

    async def apply(self, changes: Changes) -> None:
        await self._tx.apply(changes)
        if changes != NOTHING:
            self._tape.changes.append(changes)

    async def heartbeat(self, worker: WorkerRecord) -> None:
        await self._tx.heartbeat(worker)
        self._tape.workers = True

    async def remove_worker(self, worker: str) -> None:
        await self._tx.remove_worker(worker)
        self._tape.workers = True


class Way:
    """The connection of one process; `cut_until` and `silent` say whether and how it is cut."""

    def __init__(self, loop: VirtualLoop, party: Party, weather: Weather, chance: Random) -> None:
        self.loop = loop
        self.party = party
        self.weather = weather
        self.chance = chance
        self.cut_until = 0.0
        self.silent = False
        self.renewed = 0.0  # when the last heartbeat that it knows of was begun
        self.over = False  # the world has ended: nothing goes through any more

    async def there(self) -> None:
        """Get a request to the store, or raise without its having got there."""
        await self._pass()
        if self.chance.random() < self.weather.error:
            raise self.chance.choice((Unavailable, StoreBusy))("injected before the commit")

    async def back(self) -> None:
        """Get the answer back, or raise though it was done."""
        await self._pass()
        if self.chance.random() < self.weather.lost:
            raise Unavailable("injected after the commit")

    async def _pass(self) -> None:
        if self.over:
            raise Unavailable("the world has ended")
        if self.chance.random() < self.weather.slow:
            await asyncio.sleep(self.chance.random() * self.weather.longest)
        if self.cut_until > self.loop.time():
            await asyncio.sleep(0.05)
            while self.silent and self.cut_until > self.loop.time():
                await asyncio.sleep(0.5)
            raise Unavailable("the way is cut")


class FaultyReader:
    """Reads that may be late, or fail."""

    def __init__(self, inner: Reader, way: Way) -> None:
        self._inner = inner
        self._way = way

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._inner, name)

        async def read(*args: Any, **named: Any) -> Any:
            await self._way.there()
            return await method(*args, **named)

        return read


class FaultyStore:
    """The store as one process sees it."""

    def __init__(
        self, inner: Store, way: Way, committed: Callable[[Party, str, Tape], None], former: Callable[[], Former]
    ) -> None:
        self._inner = inner
        self._way = way
        self._committed = committed
        self._former = former
        self.reader = cast("Reader", FaultyReader(inner.reader, way))
        self.retention = inner.retention
        self.serializes_writes = way.chance.random() < 0.5

    async def open(self) -> None:
        """Connect: nothing to be done, the world has opened it."""

    async def close(self) -> None:
        """Let go: nothing to be done, others use it too."""

    async def is_sole_user(self) -> bool:
        return False

    async def transact(self, function: TxFunction[T]) -> T:
        """Run a function; the world is told of every commit before anybody else can act."""
        way, tape = self._way, Tape()
        begun = way.loop.time()
        await way.there()
        twice = way.chance.random() < way.weather.conflict
        asked = function.__qualname__.startswith(("accept_function", "Worker._accept_with_claims"))
        stale = self._former() if asked and way.chance.random() < way.weather.stale else FRESH

        async def taped(tx: Tx) -> T:
            nonlocal twice, tape, stale
            tape = Tape()
            former, stale = stale, FRESH
            result = await function(cast("Tx", Taped(tx, tape, former)))
            if twice:
                twice = False
                raise WriteConflict("injected")
            return result

        result = await self._inner.transact(taped)
        self._committed(way.party, function.__qualname__, tape)
        await way.back()
        if tape.workers:
            way.renewed = max(way.renewed, begun)
        return result

    def subscribe(self, listener: Callable[[Topic], None]) -> Callable[[], None]:
        """Pass wake-up calls on to the process that listens, late or not at all."""
        return self._inner.subscribe(lambda topics: self._deliver(listener, topics))

    def _deliver(self, listener: Callable[[Topic], None], topics: Topic) -> None:
        way = self._way
        if way.party.stopped or way.chance.random() >= way.weather.deaf:
            token = PARTY.set(way.party)
            way.loop.call_later(way.chance.random() * 0.01, listener, topics)
            PARTY.reset(token)
