"""Short transactions for the tests of the store port."""

import asyncio
from collections.abc import Callable
from typing import Any

from stateward.store import Changes, Store, Topic, Tx
from stateward.store.records import Claim, Object, WorkerRecord
from tests.contract.samples import key


async def write(store: Store, changes: Changes | None = None, **fields: Any) -> None:
    """Apply changes in one transaction."""

    async def function(tx: Tx) -> None:
        await tx.apply(Changes(**fields) if changes is None else changes)

    await store.transact(function)


async def ask(store: Store, method: str, *arguments: Any) -> Any:
    """Return what one method of a transaction returns."""

    async def function(tx: Tx) -> Any:
        return await getattr(tx, method)(*arguments)

    return await store.transact(function)


async def stored(store: Store, name: str) -> Object:
    """Return an object that is there."""
    found = await store.reader.object(key(name))
    assert found is not None
    return found


async def claim_work(store: Store, owner: str = "worker", **slots: int) -> list[Claim]:
    """Claim work: of the default lane, or of the lanes named."""
    claims: list[Claim] = await ask(store, "claim", slots or {"": 1000}, owner)
    return claims


async def claim_names(store: Store, owner: str = "worker", **slots: int) -> list[str]:
    """Claim work and return the names of the operations."""
    return [claim.work.op for claim in await claim_work(store, owner, **slots)]


async def send_heartbeats(store: Store, *workers: WorkerRecord) -> None:
    """Send heartbeats."""
    for worker in workers:
        await ask(store, "heartbeat", worker)


async def until(store: Store, moment: float) -> None:
    """Return when the store's clock has passed a moment."""
    while await store.reader.time() <= moment:
        await asyncio.sleep(0)


class TopicRecorder:
    """Records the topics of commits."""

    def __init__(self, store: Store) -> None:
        self.heard: list[Topic] = []
        self._news = asyncio.Event()
        self.stop: Callable[[], None] = store.subscribe(self._hear)

    async def hears(self, topic: Topic) -> None:
        """Return when something of a topic has been heard."""
        while not any(topic & heard for heard in self.heard):
            self._news.clear()
            await self._news.wait()

    def _hear(self, topics: Topic) -> None:
        self.heard.append(topics)
        self._news.set()
