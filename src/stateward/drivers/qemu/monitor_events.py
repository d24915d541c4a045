"""The events of QEMU monitors, as hints that machines may have changed."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from stateward.aio.supervise import cancel_tasks
from stateward.drivers.port import Meter
from stateward.drivers.process.supervisor import MachineScan
from stateward.drivers.qemu.errors import MonitorError
from stateward.drivers.qemu.monitor import open_event_monitor

SCAN_INTERVAL_S = 1.0
"""How often to look for new machines, which another controller may have created."""


class MonitorEvents:
    """Listens to the machines of a region, and passes hints to all watchers."""

    def __init__(
        self, scan: Callable[[], Awaitable[MachineScan]], machine: Callable[[str], Path], meter: Meter
    ) -> None:
        self._scan = scan
        self._machine = machine
        self._meter = meter
        self._watchers: set[asyncio.Queue[str]] = set()
        self._followed: set[str] = set()
        self._created = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None

    def notify(self, key: str) -> None:
        """Pass a hint to all watchers."""
        for watcher in self._watchers:
            watcher.put_nowait(key)

    def notify_created(self, key: str) -> None:
        """Pass a hint of a new machine, and listen to it from now on."""
        self._created.set()
        self.notify(key)

    async def watch(self) -> AsyncGenerator[str, None]:
        """Yield the keys of machines that may have changed."""
        queue: asyncio.Queue[str] = asyncio.Queue()
        self._watchers.add(queue)
        self._follower = self._follower or asyncio.create_task(self._follow_new())
        try:
            while True:
                yield await queue.get()
        finally:
            self._watchers.discard(queue)
            if not self._watchers:
                await self.close()

    async def close(self) -> None:
        """Stop listening."""
        follower, self._follower = self._follower, None
        if follower is not None:
            await cancel_tasks([follower])

    async def _follow_new(self) -> None:
        before: set[str] = set()
        async with asyncio.TaskGroup() as listening:
            while True:
                self._created.clear()
                alive = {machine.record.key for machine in (await self._scan()).machines if machine.process is not None}
                for key in before ^ alive:
                    self.notify(key)
                before = alive
                for key in alive - self._followed:
                    self._followed.add(key)
                    listening.create_task(self._follow(key))
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._created.wait(), SCAN_INTERVAL_S)

    async def _follow(self, key: str) -> None:
        """Listen to a machine until it ends, which is a hint too; after a monitor error the next scan tries again."""
        try:
            async with open_event_monitor(self._machine(key), self._meter) as monitor:
                async for _ in monitor.events():
                    self.notify(key)
            self.notify(key)
        except MonitorError:
            pass
        finally:
            self._followed.discard(key)
