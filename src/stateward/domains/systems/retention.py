"""The records of deploys and teardowns that have ended: the newest are kept, and what can still be rolled back.

They are what `system deploys` lists and what a rollback goes back by. Nobody needs the thousandth; and those of a
system that is removed go with it. What has happened stays in the journal.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress

from stateward.domains.systems.backends.port import SystemRef
from stateward.domains.systems.context import SystemContext
from stateward.domains.systems.lifecycle import DEPLOY, TEARDOWN, DeployState, TeardownState
from stateward.domains.systems.model import ChangeSpec, spec_of
from stateward.engine import Denied
from stateward.engine.troubles import FaultIsolation
from stateward.lifecycle import CONTROLLER, FINAL
from stateward.store.records import Object

log = logging.getLogger("stateward.systems")

KEPT_PER_SYSTEM = 200
"""How many ended deploys, and how many ended teardowns, are kept of a system."""

PRUNE_INTERVAL_S = 600.0
"""How many seconds pass between two looks at the records."""

WHO = "systems"
ENDED = frozenset(one.word for table in (DeployState, TeardownState) for one in table if one.state_class is FINAL)


class ChangeRetention:
    """Keeps the records of systems short."""

    def __init__(self, context: SystemContext) -> None:
        self._context = context
        self._faults = FaultIsolation(log)

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            for one in await self._context.systems():
                with self._faults.isolate(f"pruning of the records of system {one.id} in {one.ns}"):
                    await self.prune(SystemRef(one.ns, one.id))
            await asyncio.sleep(PRUNE_INTERVAL_S)

    async def prune(self, system_ref: SystemRef, kept: int = KEPT_PER_SYSTEM) -> None:
        """Forget the records of a system that are too many."""
        for kind in (DEPLOY.kind, TEARDOWN.kind):
            for one in list(surplus(await self._context.changes(system_ref, kind), kept)):
                await self._forget(one)

    async def clear(self, system_ref: SystemRef) -> None:
        """Forget all records of a system that goes."""
        for kind in (DEPLOY.kind, TEARDOWN.kind):
            for one in await self._context.changes(system_ref, kind):
                if one.state in ENDED:
                    await self._forget(one)

    async def _forget(self, one: Object) -> None:
        with suppress(Denied):  # another was faster
            await self._context.engine.act(
                one.ns, one.id, "forget", actor=CONTROLLER, who=WHO, version=one.version, spec={}, seen={}
            )


def surplus(found: Iterable[Object], kept: int) -> Iterator[Object]:
    """Return the records that are too many: those behind the newest, but for the last deploy of each path that stands.

    It is the one that a rollback of that path takes back.
    """
    newest = sorted((one for one in found if one.state in ENDED), key=lambda one: one.created, reverse=True)
    standing: set[str] = set()
    for number, one in enumerate(newest):
        change = spec_of(one, ChangeSpec) if one.state == DeployState.SUCCEEDED else None
        stands = change is not None and change.undoes is None and change.path not in standing
        if stands and change is not None:
            standing.add(change.path)
        if number >= kept and not stands:
            yield one
