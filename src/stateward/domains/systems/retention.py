"""Retention of ended deploys and teardowns: the newest are kept, and those that can still be rolled back.

`system deploys` lists these records, and a rollback uses them. The records of a deleted system are removed with it. The
journal keeps the history.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress

from stateward.domains.systems.address_claims import remove_unused_addresses
from stateward.domains.systems.backends.port import SystemRef
from stateward.domains.systems.context import SystemContext
from stateward.domains.systems.instance_limits import forget_old_bounds
from stateward.domains.systems.lifecycle import DEPLOY, TEARDOWN, DeployState, TeardownState
from stateward.domains.systems.model import ChangeSpec, spec_of
from stateward.engine import Denied
from stateward.engine.troubles import FaultIsolation
from stateward.lifecycle import CONTROLLER, FINAL
from stateward.store.records import Object

log = logging.getLogger("stateward.systems")

KEPT_PER_SYSTEM = 200
"""How many ended deploys, and how many ended teardowns, a system keeps."""

PRUNE_INTERVAL_S = 600.0
"""The time between two prunings."""

WHO = "systems"
ENDED = frozenset(state.word for table in (DeployState, TeardownState) for state in table if state.state_class is FINAL)


class ChangeRetention:
    """Prunes the records of deploys and teardowns."""

    def __init__(self, context: SystemContext) -> None:
        self._context = context
        self._faults = FaultIsolation(log)

    async def run(self) -> None:
        """Prune all systems periodically, and the records of ports that no service has any more, for ever."""
        while True:
            for system in await self._context.systems():
                with self._faults.isolate(f"pruning of the records of system {system.id} in {system.ns}"):
                    await self.prune(SystemRef(system.ns, system.id))
            with self._faults.isolate("removal of unused addresses"):
                await remove_unused_addresses(self._context.engine)
            with self._faults.isolate("removal of old bounds of instances"):
                await forget_old_bounds(self._context.engine)
            await asyncio.sleep(PRUNE_INTERVAL_S)

    async def prune(self, system_ref: SystemRef, kept: int = KEPT_PER_SYSTEM) -> None:
        """Remove the surplus records of a system."""
        for kind in (DEPLOY.kind, TEARDOWN.kind):
            for record in list(surplus(await self._context.changes(system_ref, kind), kept)):
                await self._forget(record)

    async def clear(self, system_ref: SystemRef) -> None:
        """Remove all records of a system that is deleted."""
        for kind in (DEPLOY.kind, TEARDOWN.kind):
            for record in await self._context.changes(system_ref, kind):
                if record.state in ENDED:
                    await self._forget(record)

    async def _forget(self, record: Object) -> None:
        with suppress(Denied):  # another process was faster
            await self._context.engine.act(
                record.ns, record.id, "forget", actor=CONTROLLER, who=WHO, version=record.version, spec={}, seen={}
            )


def surplus(records: Iterable[Object], kept: int) -> Iterator[Object]:
    """Return the surplus records: all but the newest, and the last successful deploy of each path.

    A rollback of a path undoes that deploy.
    """
    newest = sorted(
        (record for record in records if record.state in ENDED), key=lambda record: record.created, reverse=True
    )
    standing: set[str] = set()
    for number, record in enumerate(newest):
        change = spec_of(record, ChangeSpec) if record.state == DeployState.SUCCEEDED else None
        stands = change is not None and change.undoes is None and change.path not in standing
        if stands and change is not None:
            standing.add(change.path)
        if number >= kept and not stands:
            yield record
