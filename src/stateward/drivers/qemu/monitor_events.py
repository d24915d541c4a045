"""Hints that machines may have changed: the events of their monitors."""

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
"""How often new machines, which others may have made, are looked for, in seconds."""


class MonitorEvents:
    """Listens to the machines of a place, for everybody who watches."""

    def __init__(
        self, scan: Callable[[], Awaitable[MachineScan]], machine: Callable[[str], Path], meter: Meter
    ) -> None:
        self._look = scan
        self._machine = machine
        self._meter = meter
        self._watchers: set[asyncio.Queue[str]] = set()
        self._followed: set[str] = set()
        self._made = asyncio.Event()
        self._finding: asyncio.Task[None] | None = None

    def notify(self, key: str) -> None:
        """Give everybody a hint."""
        for watcher in self._watchers:
            watcher.put_nowait(key)

    def notify_created(self, key: str) -> None:
        """Give everybody a hint of a new machine, which shall be listened to from now on."""
        self._made.set()
        self.notify(key)

    async def watch(self) -> AsyncGenerator[str, None]:
        """Yield the keys of machines that may have changed."""
        queue: asyncio.Queue[str] = asyncio.Queue()
        self._watchers.add(queue)
        self._finding = self._finding or asyncio.create_task(self._follow_new())
        try:
            while True:
                yield await queue.get()
        finally:
            self._watchers.discard(queue)
            if not self._watchers:
                await self.close()

    async def close(self) -> None:
        """Listen no longer."""
        finding, self._finding = self._finding, None
        if finding is not None:
            await cancel_tasks([finding])

    async def _follow_new(self) -> None:
        before: set[str] = set()
        async with asyncio.TaskGroup() as listening:
            while True:
                self._made.clear()
                alive = {one.record.key for one in (await self._look()).machines if one.process is not None}
                for key in before ^ alive:
                    self.notify(key)
                before = alive
                for key in alive - self._followed:
                    self._followed.add(key)
                    listening.create_task(self._follow(key))
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._made.wait(), SCAN_INTERVAL_S)

    async def _follow(self, key: str) -> None:
        """Listen to a machine until it ends, which is worth a hint too; one that cannot be heard is tried again."""
        try:
            async with open_event_monitor(self._machine(key), self._meter) as monitor:
                async for _ in monitor.events():
                    self.notify(key)
            self.notify(key)
        except MonitorError:
            pass
        finally:
            self._followed.discard(key)
