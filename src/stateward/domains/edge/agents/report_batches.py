"""Batching of agent messages: many messages become few transactions. While one batch commits, the next fills."""

from collections.abc import Sequence
from random import Random

from stateward.agents.messages import AgentOrder
from stateward.domains.edge.agents.agent_reports import AgentMessage, ReportResult, process_messages
from stateward.domains.edge.agents.connections import (
    ConnectRequest,
    ConnectResult,
    Disconnect,
    connect_agents,
    disconnect_agents,
)
from stateward.domains.edge.agents.inventory_sync import Inventory, SyncResult, sync_inventories
from stateward.domains.edge.agents.orders import due_orders
from stateward.engine import Engine
from stateward.engine.transaction_batcher import TransactionBatcher
from stateward.errors import StatewardError
from stateward.naming import new_id
from stateward.store.records import Key


class ReportBatcher:
    """Batches calls by type; each caller gets its own result."""

    def __init__(self, engine: Engine, chance: Random) -> None:
        self._store, self._kinds = engine.store, engine.kinds
        self._greetings: TransactionBatcher[ConnectRequest, ConnectResult] = TransactionBatcher(self._greet, chance)
        self._lists: TransactionBatcher[Inventory, SyncResult] = TransactionBatcher(self._settle, chance, max_size=100)
        self._words: TransactionBatcher[AgentMessage, ReportResult] = TransactionBatcher(self._hear, chance)
        self._partings: TransactionBatcher[Disconnect, bool] = TransactionBatcher(self._part, chance)
        self._tending: TransactionBatcher[Key, AgentOrder | None] = TransactionBatcher(self._tend, chance)

    async def connect(self, request: ConnectRequest) -> ConnectResult:
        """Connect an agent, or reject it."""
        return await self._greetings.submit(request)

    async def sync_inventory(self, inventory: Inventory) -> SyncResult:
        """Reconcile a complete inventory."""
        return await self._lists.submit(inventory)

    async def process_message(self, message: AgentMessage) -> ReportResult:
        """Process a message about an instance, or about the agent itself."""
        return await self._words.submit(message)

    async def disconnect(self, disconnect: Disconnect) -> bool:
        """Record a lost connection; returns whether the cloudlet went offline."""
        return await self._partings.submit(disconnect)

    async def due_order(self, instance: Key) -> AgentOrder | None:
        """Return the order due for an instance; starts an undo that has yet to start."""
        return await self._tending.submit(instance)

    async def drain(self) -> None:
        """Wait until all calls have their result."""
        for batcher in (self._greetings, self._lists, self._words, self._partings, self._tending):
            await batcher.drain()

    async def _greet(self, all_: Sequence[ConnectRequest]) -> Sequence[ConnectResult | StatewardError]:
        return await self._store.transact(lambda tx: connect_agents(tx, self._kinds, new_id, all_))

    async def _settle(self, all_: Sequence[Inventory]) -> Sequence[SyncResult | StatewardError]:
        return await self._store.transact(lambda tx: sync_inventories(tx, all_))

    async def _hear(self, all_: Sequence[AgentMessage]) -> Sequence[ReportResult | StatewardError]:
        return await self._store.transact(lambda tx: process_messages(tx, all_))

    async def _part(self, all_: Sequence[Disconnect]) -> Sequence[bool | StatewardError]:
        return await self._store.transact(lambda tx: disconnect_agents(tx, all_))

    async def _tend(self, all_: Sequence[Key]) -> Sequence[AgentOrder | StatewardError | None]:
        return await self._store.transact(lambda tx: due_orders(tx, all_))
