"""Listings of the instances on nodes.

An instance names its node in a label, and labels have no index: the store reads the labels of all instances of the
namespace to find those of one node. So the instances of several nodes are listed together, and callers that ask about
one node each at the same time share a listing.
"""

from collections.abc import Collection, Sequence

import msgspec

from stateward.aio.coalescer import CallCoalescer
from stateward.domains.systems.lifecycle import INSTANCE
from stateward.domains.systems.nodes.node_model import NODE_LABEL
from stateward.engine import Engine, list_all
from stateward.store.filters import Selector
from stateward.store.records import Key, Object

MAX_NODES = 100_000
"""How many nodes share a listing."""


class NodeInstances:
    """Reads the instances of nodes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._asked: CallCoalescer[Key, list[Object]] = CallCoalescer(self._answer, MAX_NODES)

    async def of(self, node: Key) -> list[Object]:
        """Return the instances of a node, by a listing that begins now, and that others may share."""
        return await self._asked.ask(node)

    async def by_node(self, nodes: Collection[Key]) -> dict[Key, list[Object]]:
        """Return the instances of each of these nodes, by one listing of each namespace."""
        instances: dict[Key, list[Object]] = {node: [] for node in nodes}
        by_ns: dict[str, list[str]] = {}
        for node in instances:
            by_ns.setdefault(node.ns, []).append(node.id)
        for ns, names in by_ns.items():
            only = ((NODE_LABEL, names[0]),) if len(names) == 1 else ()
            async for instance in list_all(self._engine.store.reader, Selector(ns, INSTANCE.kind, labels=only)):
                name = msgspec.json.decode(instance.labels, type=dict[str, str]).get(NODE_LABEL, "")
                if (key := Key(ns, name)) in instances:
                    instances[key].append(instance)
        return instances

    async def _answer(self, nodes: Sequence[Key]) -> list[list[Object]]:
        instances = await self.by_node(nodes)
        return [instances[node] for node in nodes]
