"""Containers of machines that have ended: they are kept for a while, and then removed.

How long ago a container has ended is read from the engine, so a server that was restarted knows it, too.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

from stateward.containers import ContainerEngine, ContainerRecord, EngineRefused, EngineUnavailable
from stateward.drivers.container.reboot_records import RebootRecord, RebootRecords
from stateward.drivers.port import Meter

SWEEP_INTERVAL_S = 60.0
PARALLEL_CALLS = 8


class EndedContainers:
    """The ended containers of one region of an engine."""

    def __init__(self, engine: ContainerEngine, records: RebootRecords, keep_s: float, meter: Meter) -> None:
        self._engine, self._records, self._keep_s, self._meter = engine, records, keep_s, meter
        self._ended_at: dict[str, float] = {}  # by the container's id; listings do not show it
        self._next_sweep = 0.0
        self._gate = asyncio.Semaphore(PARALLEL_CALLS)

    async def sweep(self, containers: Sequence[ContainerRecord], records: Sequence[RebootRecord]) -> None:
        """Remove what has ended long ago of a listing of all containers, and records that have no container.

        The records were listed before the containers, so no record is of a container that is not listed yet.
        """
        if time.monotonic() < self._next_sweep:
            return
        self._next_sweep = time.monotonic() + min(self._keep_s, SWEEP_INTERVAL_S)
        ended = [container for container in containers if container.state.has_ended]
        self._ended_at = {
            container.id: self._ended_at[container.id] for container in ended if container.id in self._ended_at
        }
        keys = {container.key for container in containers}
        with suppress(EngineRefused, EngineUnavailable):  # the next sweep tries again
            await self._records.remove(record for record in records if record.key not in keys)
        await asyncio.gather(
            *(self._remove_old(container, records) for container in ended if self._may_be_old(container.id))
        )

    def _may_be_old(self, container: str) -> bool:
        ended_at = self._ended_at.get(container)
        return ended_at is None or time.time() - ended_at > self._keep_s

    async def _remove_old(self, listed: ContainerRecord, records: Sequence[RebootRecord]) -> None:
        """Inspect a container, and remove it if it has ended long ago; it may run again since it was listed."""
        async with self._gate:
            with suppress(EngineRefused, EngineUnavailable):  # as when another process has removed it
                self._meter("inspect")
                container = await self._engine.inspect_container(listed.id)
                if not container.state.has_ended:
                    return
                first_seen = self._ended_at.get(listed.id, time.time())
                self._ended_at[listed.id] = first_seen if container.finished_at is None else container.finished_at
                if self._may_be_old(listed.id):
                    await self._records.remove(record for record in records if record.key == listed.key)
                    self._meter("remove")
                    await self._engine.remove_container(listed.id)
