"""The store as a simulated process reaches it: through a connection with injected faults.

A real network loses requests and answers, and a database aborts transactions. So there are delays before and after a
transaction, errors before the commit, commits whose answer is lost, functions that run twice, connections that are cut
for a while, with errors at once or with silence, and wake-up calls that come late or never. Each commit is reported
with its changes before anything else can happen.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from random import Random
from typing import Any, NoReturn, TypeVar, cast

from msgspec import Struct, field

from stateward.store.changes import Changes
from stateward.store.errors import StoreBusy, Unavailable, WriteConflict
from stateward.store.port import KindFilter, Reader, Store, Tx, TxFunction
from stateward.store.records import Claim, Key, Object, WorkerRecord
from stateward.store.topics import Topic
from stateward.testing.virtual_loop import PARTY, LoopParty, VirtualLoop

T = TypeVar("T")


class FaultRates(Struct):
    """The probability of each fault, for each transaction; `longest` is the longest delay in seconds."""

    slow: float = 0.1
    longest: float = 0.6
    error: float = 0.03  # before the commit
    lost: float = 0.03  # the answer is, after the commit
    conflict: float = 0.04  # the function runs twice
    stale: float = 0.1  # a request is decided on objects as they were before: only the compare-and-set can notice
    deaf: float = 0.1  # a wake-up call does not come


NO_FAULTS = FaultRates(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
NOTHING = Changes()

Former = Mapping[str, Object]
"""Objects as they were before they last changed."""

FRESH: Former = {}


class CommitRecord(Struct):
    """The writes of a committed transaction."""

    changes: list[Changes] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    workers: bool = False  # a worker sent a heartbeat, or was removed
    begun: float = 0.0  # by the store's clock

    @property
    def wrote(self) -> bool:
        """Whether anything but signs of life was written."""
        return bool(self.changes or self.claims)


class RecordingTx:
    """A transaction that records its writes."""

    def __init__(self, tx: Tx, record: CommitRecord, former: Former) -> None:
        self._tx = tx
        self._record = record
        self._former = former

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    async def objects(self, keys: Collection[Key]) -> dict[Key, Object]:
        records = await self._tx.objects(keys)
        return {key: self._former.get(key.id, record) for key, record in records.items()}

    async def claim(
        self, rooms: dict[str, int], owner: str, spares: dict[str, int], kinds: KindFilter = None
    ) -> list[Claim]:
        claims = await self._tx.claim(rooms, owner, spares, kinds)
        self._record.claims += claims
        return claims

    async def apply(self, changes: Changes) -> None:
        await self._tx.apply(changes)
        if changes != NOTHING:
            self._record.changes.append(changes)

    async def heartbeat(self, worker: WorkerRecord) -> None:
        await self._tx.heartbeat(worker)
        self._record.workers = True

    async def remove_worker(self, worker: str) -> None:
        await self._tx.remove_worker(worker)
        self._record.workers = True


class ProcessKilled(Exception):
    """Rolls back the transaction before whose commit its process is killed."""


class StoreLink:
    """The connection of a process to the store; `cut_until` and `silent` say whether and how it is cut."""

    def __init__(self, loop: VirtualLoop, party: LoopParty, faults: FaultRates, chance: Random) -> None:
        self.loop = loop
        self.party = party
        self.faults = faults
        self.chance = chance
        self.cut_until = 0.0
        self.silent = False
        self.renewed = 0.0  # when the last heartbeat that it knows of was begun
        self.over = False  # the world has ended: nothing goes through any more

    async def send(self) -> None:
        """Deliver a transaction to the store, or raise before the store has it."""
        await self._pass()
        if self.chance.random() < self.faults.error:
            raise self.chance.choice((Unavailable, StoreBusy))("injected before the commit")

    def committing(self, record: CommitRecord) -> None:
        """Hear of a transaction that is about to be committed; `ProcessKilled` rolls it back and ends its caller."""

    async def receive(self, record: CommitRecord) -> None:  # noqa: ARG002 - for subclasses
        """Deliver the answer to a commit, or raise although the commit is durable."""
        await self._pass()
        if self.chance.random() < self.faults.lost:
            raise Unavailable("injected after the commit")

    async def hang(self) -> NoReturn:
        """Wait for ever, as the code of a killed process does; it is resumed when the world ends."""
        await asyncio.sleep(0)
        raise Unavailable("the world has ended")

    async def read(self) -> None:
        """Deliver a query to the store, or raise."""
        await self.send()

    async def _pass(self) -> None:
        if self.over:
            raise Unavailable("the world has ended")
        if self.chance.random() < self.faults.slow:
            await asyncio.sleep(self.chance.random() * self.faults.longest)
        if self.cut_until > self.loop.time():
            await asyncio.sleep(0.05)
            while self.silent and self.cut_until > self.loop.time():
                await asyncio.sleep(0.5)
            raise Unavailable("the connection is cut")


class FaultyReader:
    """Reads that may be late, or fail."""

    def __init__(self, inner: Reader, link: StoreLink) -> None:
        self._inner = inner
        self._link = link

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._inner, name)

        async def read(*args: Any, **named: Any) -> Any:
            await self._link.read()
            return await method(*args, **named)

        return read


class FaultyStore:
    """The store as one process sees it."""

    def __init__(
        self,
        inner: Store,
        link: StoreLink,
        committed: Callable[[LoopParty, str, CommitRecord], None],
        former: Callable[[], Former],
    ) -> None:
        self._inner = inner
        self._link = link
        self._committed = committed
        self._former = former
        self.reader = cast("Reader", FaultyReader(inner.reader, link))
        self.retention = inner.retention
        self.serializes_writes = link.chance.random() < 0.5

    async def open(self) -> None:
        """Connect: nothing to be done, the world has opened it."""

    async def close(self) -> None:
        """Let go: nothing to be done, others use it too."""

    async def is_sole_user(self) -> bool:
        return False

    async def transact(self, function: TxFunction[T]) -> T:
        """Run a function; the world is told of every commit before anybody else can act."""
        link, record = self._link, CommitRecord()
        begun = link.loop.time()
        await link.send()
        twice = link.chance.random() < link.faults.conflict
        name = getattr(function, "__qualname__", repr(function))
        asked = name.startswith(("accept_function", "Worker._accept_with_claims"))
        stale = self._former() if asked and link.chance.random() < link.faults.stale else FRESH

        async def recorded(tx: Tx) -> T:
            nonlocal twice, record, stale
            record = CommitRecord(begun=tx.now)
            former, stale = stale, FRESH
            result = await function(cast("Tx", RecordingTx(tx, record, former)))
            if twice:
                twice = False
                raise WriteConflict("injected")
            link.committing(record)
            return result

        try:
            result = await self._inner.transact(recorded)
        except ProcessKilled:
            await link.hang()
        self._committed(link.party, name, record)
        await link.receive(record)
        if record.workers:
            link.renewed = max(link.renewed, begun)
        return result

    def subscribe(self, listener: Callable[[Topic], None]) -> Callable[[], None]:
        """Pass wake-up calls on to the process that listens, late or not at all."""
        return self._inner.subscribe(lambda topics: self._deliver(listener, topics))

    def _deliver(self, listener: Callable[[Topic], None], topics: Topic) -> None:
        link = self._link
        if link.party.stopped or link.chance.random() >= link.faults.deaf:
            token = PARTY.set(link.party)
            link.loop.call_later(link.chance.random() * 0.01, listener, topics)
            PARTY.reset(token)
