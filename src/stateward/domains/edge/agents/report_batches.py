"""Batching of agent messages: many messages become few transactions. While one batch commits, the next fills."""

from functools import partial
from random import Random
from typing import Any

from stateward.domains.edge.agents.agent_reports import process_messages
from stateward.domains.edge.agents.connections import connect_agents, disconnect_agents
from stateward.domains.edge.agents.inventory_sync import sync_inventories
from stateward.domains.edge.agents.measures import store_measures
from stateward.domains.edge.agents.orders import due_orders
from stateward.engine import Engine
from stateward.engine.transaction_batcher import TransactionBatcher, transaction_batcher


class ReportBatcher:
    """Batches calls by type; each caller gets its own result.

    connect          connect an agent, or reject it
    sync_inventory   reconcile a complete inventory
    process_message  process a message about an instance, or about the agent itself
    disconnect       record a lost connection; tells whether the cloudlet went offline
    due_order        return the order due for an instance; starts an undo that has yet to start
    store_measures   keep the measures of a cloudlet, and begin or end alerts
    """

    def __init__(self, engine: Engine, chance: Random, idle_s: float) -> None:
        batcher = partial(transaction_batcher, engine.store, chance)
        connects = batcher(partial(connect_agents, kinds=engine.kinds))
        inventories = batcher(partial(sync_inventories, idle_s=idle_s), max_size=100)
        messages = batcher(partial(process_messages, idle_s=idle_s))
        disconnects = batcher(disconnect_agents)
        orders = batcher(due_orders)
        measures = batcher(store_measures, max_size=100)
        self.connect, self.sync_inventory, self.process_message = connects.submit, inventories.submit, messages.submit
        self.disconnect, self.due_order, self.store_measures = disconnects.submit, orders.submit, measures.submit
        self._batchers: list[TransactionBatcher[Any, Any]] = [
            connects, inventories, messages, disconnects, orders, measures
        ]  # fmt: skip

    async def drain(self) -> None:
        """Wait until all calls have their result."""
        for batcher in self._batchers:
            await batcher.drain()
