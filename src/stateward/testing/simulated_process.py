"""A simulated process: an engine with a connection to the store; it can be killed, stopped, cut off or shut down."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import copy_context
from random import Random
from typing import Any, Protocol

from stateward.engine.engine import Engine
from stateward.engine.kinds import Kind
from stateward.store.errors import StoreError
from stateward.store.port import Store
from stateward.testing.faulty_store import CommitRecord, FaultRates, FaultyStore, Former, StoreLink
from stateward.testing.virtual_loop import PARTY, LoopParty, VirtualLoop


class Running(Protocol):
    """The background tasks of a process, as `DomainRuntime.running` has them."""

    def __call__(self, engine: Engine, *, works: bool) -> AbstractAsyncContextManager[None]: ...


class SimulatedProcess(LoopParty):
    """One process of the deployment; its background tasks run if they are given."""

    def __init__(
        self,
        name: str,
        loop: VirtualLoop,
        store: Store,
        kinds: list[Kind],
        faults: FaultRates,
        chance: Random,
        new_id: Callable[[], str],
        committed: Callable[[LoopParty, str, CommitRecord], None],
        former: Callable[[], Former],
        lease: float,
        bind_engine: Callable[[Engine], None] | None = None,
        running: Running | None = None,
    ) -> None:
        super().__init__(name)
        self._bind_engine = bind_engine or (lambda _: None)
        self._running = running
        self._over = asyncio.Event()
        self._loop = loop
        self._kinds = kinds
        self._chance = chance
        self._new_id = new_id
        self.lease = lease
        self.slots = chance.choice((1, 2, 3, 8))
        self.works = chance.random() < 0.9
        self.ahead = chance.choice((0.2, 60.0))
        self.link = self.make_link(loop, faults, chance)
        self.store = FaultyStore(store, self.link, committed, former)
        self.context = copy_context()
        self.context.run(PARTY.set, self)
        self.engine: Engine | None = None
        self.dead = False
        self.leaving = False
        self.awake_since = 0.0

    def make_link(self, loop: VirtualLoop, faults: FaultRates, chance: Random) -> StoreLink:
        """Return the connection to the store."""
        return StoreLink(loop, self, faults, chance)

    @property
    def up(self) -> bool:
        """Whether it can be asked for something."""
        return self.engine is not None and not (self.dead or self.stopped or self.leaving)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something as part of this process."""
        self._loop.create_task(work, context=self.context)

    def start(self) -> None:
        self.spawn(self._live())

    async def _live(self) -> None:
        while self.engine is None:
            engine = Engine(
                self.store,
                self._kinds,
                works=self.works,
                slots=self.slots,
                lease_s=self.lease,
                process=self.name,
                new_id=self._new_id,
                chance=self._chance,
                prefetch_window_s=self.ahead,
            )
            self._bind_engine(engine)
            try:
                async with engine, self._running(engine, works=self.works) if self._running else nullcontext():
                    self.engine = engine
                    await self._over.wait()
            except StoreError:
                if self.engine is not None:
                    raise
                await asyncio.sleep(0.5)
        self.dead = True

    def kill(self) -> None:
        """Stop it for ever, at whatever it does."""
        self.dead = self.stopped = True

    def stop(self) -> None:
        """Stop it for a while."""
        self.stopped = True

    def go_on(self) -> None:
        """Let it go on, unaware that time has passed."""
        if not self.dead:
            self.awake_since = self._loop.time()
            self._loop.resume(self)

    def leave(self) -> None:
        """Shut it down properly."""
        self.leaving = True
        self._over.set()
