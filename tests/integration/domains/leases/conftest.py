"""The leases domain on both stores, with helpers that create leases and wait for them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from stateward.domains.leases.model import Lease, LeaseHost
from stateward.domains.leases.runtime import LeasesRuntime
from stateward.domains.leases.service import LeaseCaller
from stateward.domains.leases.settings import Settings
from stateward.engine import Engine, NotFound
from stateward.plugin.runtime import ProcessContext
from stateward.store.port import Store
from tests.integration.domains.leases.checked_store import CheckedStore
from tests.integration.domains.leases.scripted_resource import ScriptedResource

NS = "ns"
ME = LeaseCaller(who="me", ns=NS)
LIMIT = 60.0


class LeaseHarness:
    """An engine with the leases domain, and helpers that create leases and wait for them."""

    def __init__(self, engine: Engine, plugin: LeasesRuntime, things: ScriptedResource) -> None:
        self.engine, self.plugin, self.things = engine, plugin, things

    async def hosts(self, *names: str, **properties: Any) -> None:
        """Register hosts."""
        for name in names:
            await self.plugin.hosts.register(
                ME, {"name": name, "vcpus": 8, "memory_mb": 8192, "local_gb": 80, **properties}
            )

    async def host(self, name: str) -> LeaseHost:
        """Return a host."""
        return await self.plugin.hosts.get(NS, name)

    async def lease(
        self, name: str, *reservations: dict[str, Any], start: float = 0.0, end: float = 3600.0, **more: Any
    ) -> Lease:
        """Create a lease, from and to so many seconds from now; of one host without other reservations."""
        given = {
            "name": name,
            "start_date": at(start) if start else "now",
            "end_date": at(end),
            "reservations": [*reservations] or [hosts()],
            **more,
        }
        return await self.plugin.leases.create(ME, given)

    async def now(self, lease: Lease) -> Lease:
        """Return a lease as it is now."""
        return await self.plugin.leases.get(NS, lease.object.id)

    async def until(self, lease: Lease, *states: str) -> Lease:
        """Wait until a lease is in one of these states."""
        async with asyncio.timeout(LIMIT):
            while (found := await self.now(lease)).object.state not in states:
                await asyncio.sleep(0.02)
            return found

    async def gone(self, lease: Lease) -> None:
        """Wait until the lease is removed."""
        async with asyncio.timeout(LIMIT):
            while True:
                try:
                    await self.now(lease)
                except NotFound:
                    return
                await asyncio.sleep(0.02)

    async def moves(self, lease: Lease) -> list[tuple[str, str | None]]:
        """Return what happened to a lease: each event, and the status that it led to."""
        entries = await self.engine.history(NS, lease.object.id)
        return [(entry.event, entry.target) for entry in entries]


def at(seconds: float) -> str:
    """Return a time so many seconds from now, as precisely as it can be said."""
    whole, part = divmod(time.time() + seconds, 1)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{int(part * 1e6):06d}"


def hosts(least: int = 1, most: int | None = None, **more: Any) -> dict[str, Any]:
    """Return a reservation of hosts."""
    return {"resource_type": "physical:host", "min": least, "max": most or least, **more}


def thing(name: str) -> dict[str, Any]:
    """Return a reservation of a scripted resource."""
    return {"resource_type": "test:thing", "thing": name}


Opening = Callable[..., "Opened"]


class Opened:
    """An engine with leases that is opened as a context; every commit of it is checked."""

    def __init__(
        self, store: Store, folder: Path, settings: Settings, things: ScriptedResource, *, works: bool, lease_s: float
    ) -> None:
        self._plugin = LeasesRuntime(ProcessContext(folder), settings, [things])
        self._engine = Engine(CheckedStore(store), self._plugin.kinds, works=works, lease_s=lease_s)
        self._plugin.bind_engine(self._engine)
        self._things = things

    async def __aenter__(self) -> LeaseHarness:
        await self._engine.__aenter__()
        return LeaseHarness(self._engine, self._plugin, self._things)

    async def __aexit__(self, *_: object) -> None:
        self._things.release.set()
        await self._engine.__aexit__()


@pytest.fixture
def opening(new_store: Callable[[], Store], tmp_path: Path) -> Opening:
    """Return a function that opens an engine with leases, as often as it is called."""

    def opened(
        settings: Settings | None = None,
        things: ScriptedResource | None = None,
        *,
        works: bool = True,
        lease_s: float = 15.0,
    ) -> Opened:
        given = settings or Settings(replace_after=0.0), things or ScriptedResource()
        return Opened(new_store(), tmp_path, *given, works=works, lease_s=lease_s)

    return opened


@pytest.fixture
async def site(opening: Opening) -> AsyncIterator[LeaseHarness]:
    async with opening() as leasing:
        yield leasing
