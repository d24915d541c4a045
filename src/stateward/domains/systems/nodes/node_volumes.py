"""The removal of the volumes of deleted systems from nodes.

A node keeps the volumes of a system when its instances leave, and only its agent knows which ones it has. So the
deletion of a system is noted with each node on which containers of it were placed. The process that has the connection
of the node asks its agent to remove the volumes, and clears the note when the agent has answered. A node that is away,
or whose agent runs without an engine, is asked when it returns with one, and starts no container of a new system of the
same name before: that one finds no old data. A node that is registered again has its notes.
"""

import asyncio
import logging
from collections.abc import Collection
from functools import partial

from msgspec.structs import replace

from stateward.agents.agent_hub import AgentHub
from stateward.agents.node_messages import MAX_SYSTEMS
from stateward.domains.systems.backends.port import SystemRef
from stateward.domains.systems.errors import NodeCannotAnswer
from stateward.domains.systems.lifecycle import NODE, SERVING
from stateward.domains.systems.nodes.node_model import NodeStatus, node_status
from stateward.domains.systems.nodes.node_records import loaded_node, save_seen, unit_of_work
from stateward.engine import list_all
from stateward.engine.transitions import journal
from stateward.lifecycle import CONTROLLER
from stateward.store.filters import Selector
from stateward.store.port import Tx
from stateward.store.records import Key, Object

log = logging.getLogger("stateward.systems")

SYSTEM_DELETED = "system deleted"
"""The journal entry of a node that may have volumes of a deleted system."""

POLL_INTERVAL_S = 0.1
WAIT_S = 30.0
"""How long a deletion waits for the nodes that are connected; their volumes are removed later, if that takes longer."""


class NodeVolumes:
    """The volumes of deleted systems on nodes; `hub` has the connections of this process."""

    def __init__(self, hub: AgentHub) -> None:
        self._engine, self._hub = hub.engine, hub
        self._removing: set[Key] = set()

    async def on_system_deleted(self, system_ref: SystemRef) -> None:
        """Have the volumes of a system removed, and wait for the nodes that are connected."""
        reader, every_node = self._engine.store.reader, Selector(system_ref.ns, NODE.kind)
        nodes = [node.key async for node in list_all(reader, every_node) if _may_have_volumes(node, system_ref.system)]
        await self._engine.store.transact(partial(_note, nodes=nodes, system=system_ref.system))
        try:
            async with asyncio.timeout(WAIT_S):
                while any(_keeps_waiting(node, system_ref) for node in (await reader.objects(nodes)).values()):
                    await asyncio.sleep(POLL_INTERVAL_S)
        except TimeoutError:
            log.warning("volumes of system %s in %s are not removed yet", system_ref.system, system_ref.ns)

    async def deleted_systems(self, node: Key) -> tuple[str, ...]:
        """Return the systems whose volumes are to be removed from a node, if its agent can."""
        return _deleted_systems(await self._engine.store.reader.object(node))

    async def to_remove(self, nodes: Collection[Key]) -> list[Key]:
        """Return those of these nodes from which volumes are to be removed."""
        records = await self._engine.store.reader.objects(nodes)
        return [key for key, record in records.items() if _deleted_systems(record)]

    async def remove(self, node: Key) -> None:
        """Remove the volumes of deleted systems from a node that is connected to this process; else, later."""
        if node in self._removing:
            return
        self._removing.add(node)
        try:
            while systems := (await self.deleted_systems(node))[:MAX_SYSTEMS]:
                connection = self._hub.serving_connection(node)
                if connection is None:
                    return
                await self._hub.requests.remove_volumes(connection, systems)
                await self._engine.store.transact(partial(_clear, node=node, systems=systems))
        except NodeCannotAnswer as error:
            log.warning("volumes of deleted systems are left on a node, and are removed later: %s", error)
        finally:
            self._removing.discard(node)


def _deleted_systems(node: Object | None) -> tuple[str, ...]:
    status = NodeStatus() if node is None or node.removed else node_status(node)
    return status.deleted_systems if status.containers else ()


def _may_have_volumes(node: Object, system: str) -> bool:
    status = node_status(node)
    return status.has_had_engine or status.containers if status.systems is None else system in status.systems


def _keeps_waiting(node: Object, system_ref: SystemRef) -> bool:
    status = node_status(node)
    is_asked = not node.removed and node.state in SERVING and status.connected and status.containers
    return is_asked and system_ref.system in status.deleted_systems


async def _note(tx: Tx, nodes: Collection[Key], system: str) -> None:
    async with unit_of_work(tx, nodes) as uow:
        for record in filter(None, (loaded_node(uow, node) for node in nodes)):
            status = node_status(record)
            if not _may_have_volumes(record, system):
                continue
            noted = tuple(sorted({*status.deleted_systems, system}))
            left = None if status.systems is None else tuple(other for other in status.systems if other != system)
            save_seen(uow, record, replace(status, deleted_systems=noted, systems=left))
            journal(uow, record, record.op, CONTROLLER, "", SYSTEM_DELETED, reason=system)


async def _clear(tx: Tx, node: Key, systems: tuple[str, ...]) -> None:
    async with unit_of_work(tx, [node]) as uow:
        record = loaded_node(uow, node)
        if record is not None:
            left = tuple(system for system in node_status(record).deleted_systems if system not in systems)
            save_seen(uow, record, replace(node_status(record), deleted_systems=left))
