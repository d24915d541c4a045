"""Pool of provider clients: one per connection in use, created at the first use.

A change of a connection's record replaces its client. Grants do not belong to the client: they are checked at each use
for a namespace.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from time import monotonic

from msgspec.structs import replace

from stateward.domains.mci.errors import NotGranted
from stateward.domains.mci.guards.connection_grants import (
    ADOPT_OPTION,
    adopting_namespaces,
    check_adoption,
    check_grant,
)
from stateward.domains.mci.model import CloudConnection
from stateward.domains.mci.provider.catalogue import Catalogue
from stateward.domains.mci.provider.provider_client import POLL_MIN_S, ProviderClient
from stateward.drivers import Driver, ProviderRegion
from stateward.drivers.simulated import CloudUnavailable
from stateward.engine import Denied, Permanent, Temporary
from stateward.errors import BadInput
from stateward.plugin.driver_factory import DriverFactory

OnProviderCall = Callable[[str, str], None]

LISTING_TTL_OPTION, LISTING_TTL_MAX_S = "fresh", 3_600.0
"""The option of every connection that says how many seconds a listing serves readers, and its upper limit."""

RECORD_CACHE_S = 1.0
"""How long a connection record is cached: an action on 10,000 VMs reads it once."""


class ProviderClients:
    """Finds or creates the client of a connection."""

    def __init__(
        self, drivers: DriverFactory, catalogue: Catalogue, called: OnProviderCall, *, tick: float = POLL_MIN_S
    ) -> None:
        self._drivers, self._catalogue, self._on_call, self._tick = drivers, catalogue, called, tick
        self._open: dict[str, tuple[CloudConnection, ProviderClient]] = {}
        self._read: dict[str, float] = {}
        self._records: dict[str, CloudConnection] = {}
        self._reading: dict[str, asyncio.Task[ProviderClient]] = {}

    async def by_name(self, name: str) -> ProviderClient:
        """Return the client of a connection by name."""
        known = self._open.get(name)
        if known is not None and monotonic() - self._read.get(name, -inf) < RECORD_CACHE_S:
            return known[1]
        return await asyncio.shield(self._reading.get(name) or self._start_read(name))

    async def by_name_if_granted(self, name: str, ns: str) -> ProviderClient:
        """Return the client of a connection for a namespace; refuse a namespace without a grant."""
        client = await self.by_name(name)
        try:
            check_grant(self._records[name], ns)
        except NotGranted as error:
            raise Permanent(str(error)) from error
        return client

    async def by_name_if_adopting(self, name: str, ns: str) -> ProviderClient:
        """Return the client of a connection for a namespace that may adopt machines there; refuse any other."""
        client = await self.by_name(name)
        try:
            check_adoption(self._records[name], ns)
        except Denied as error:
            raise Permanent(str(error)) from error
        return client

    def _start_read(self, name: str) -> "asyncio.Task[ProviderClient]":
        """Read a connection record for all concurrent callers."""
        task = self._reading[name] = asyncio.ensure_future(self._read_client(name))
        task.add_done_callback(lambda _: self._end_read(name, task))
        return task

    def _end_read(self, name: str, task: "asyncio.Task[ProviderClient]") -> None:
        """Allow the next read; the exception belongs to the waiting callers, even if none is left."""
        self._reading.pop(name, None)
        if not task.cancelled():
            task.exception()

    async def _read_client(self, name: str) -> ProviderClient:
        began = monotonic()
        record = self._records[name] = await self._catalogue.connection_of_machines(name)
        client = await self.for_connection(record)
        self._read[name] = began
        return client

    async def for_connection(self, connection: CloudConnection) -> ProviderClient:
        """Return the client of a connection; replace the client if the connection has changed."""
        connection = replace(connection, namespaces=None, enabled=True)  # grants do not concern the client
        known = self._open.get(connection.name)
        if known is not None and known[0] == connection:
            return known[1]
        serves = _listing_ttl_s(connection.options)
        client = ProviderClient(self._make(connection), monotonic, tick=self._tick, serves=serves)
        self._open[connection.name] = connection, client
        if known is not None:
            await known[1].close()
        return client

    def invalidate(self, name: str) -> None:
        """Read the record of a connection again before its next use."""
        self._read.pop(name, None)

    async def discard(self, name: str) -> None:
        """Close the client of a removed connection."""
        self.invalidate(name)
        _, client = self._open.pop(name, (None, None))
        if client is not None:
            await client.close()

    async def driver_for(self, connection: CloudConnection) -> Driver:
        """Return the driver of a connection."""
        return (await self.for_connection(connection)).driver

    def _make(self, connection: CloudConnection) -> Driver:
        adopting_namespaces(connection.options)  # refuses what it cannot read
        ours = (LISTING_TTL_OPTION, ADOPT_OPTION)
        options = {name: value for name, value in connection.options.items() if name not in ours}
        place = ProviderRegion(connection.provider, connection.region, connection.zone, connection.credential, options)
        try:
            return self._drivers.make(connection.driver, place, partial(self._on_call, connection.provider))
        except CloudUnavailable as error:  # another process has the simulated clouds
            raise Temporary(str(error)) from error

    async def close(self) -> None:
        """Close all clients."""
        for _, client in self._open.values():
            await client.close()
        self._open.clear()


def _listing_ttl_s(options: Mapping[str, str]) -> float | None:
    if LISTING_TTL_OPTION not in options:
        return None
    try:
        seconds = float(options[LISTING_TTL_OPTION])
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds <= LISTING_TTL_MAX_S:
        raise BadInput(
            LISTING_TTL_OPTION, options[LISTING_TTL_OPTION], f"a number of seconds from 0 to {LISTING_TTL_MAX_S:g}"
        )
    return seconds
