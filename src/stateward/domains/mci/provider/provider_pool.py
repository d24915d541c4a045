"""Pool of provider clients: one per connection in use, created at the first use.

A change of a connection's record replaces its client, and never by one of an older record. Operations name the lane of
their VM: a client that leads elsewhere knows nothing about it. Grants do not belong to the client: they are checked at
each use for a namespace.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from time import monotonic

from msgspec import Struct
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


class OpenClient(Struct, frozen=True):
    """A client in use, with the connection that it was made of, and the version of its record."""

    version: int
    connection: CloudConnection
    client: ProviderClient


class ProviderClients:
    """Finds or creates the client of a connection."""

    def __init__(
        self, drivers: DriverFactory, catalogue: Catalogue, called: OnProviderCall, *, tick: float = POLL_MIN_S
    ) -> None:
        self._drivers, self._catalogue, self._on_call, self._tick = drivers, catalogue, called, tick
        self._open: dict[str, OpenClient] = {}
        self._read: dict[str, float] = {}
        self._records: dict[str, CloudConnection] = {}
        self._reading: dict[str, asyncio.Task[ProviderClient]] = {}

    async def by_name(self, name: str) -> ProviderClient:
        """Return the client of a connection by name."""
        known = self._open.get(name)
        if known is not None and monotonic() - self._read.get(name, -inf) < RECORD_CACHE_S:
            return known.client
        return await asyncio.shield(self._reading.get(name) or self._start_read(name))

    async def for_lane(self, name: str, lane: str) -> ProviderClient:
        """Return the client of a connection that leads to a lane; raise if the connection leads elsewhere."""
        client = await self.by_name(name)
        if client.lane != lane:  # the cached record may be older than the VM
            client = await asyncio.shield(self._start_read(name))
        if client.lane != lane:
            raise Temporary(f"connection {name!r} leads to {client.lane}, and not to {lane}")
        return client

    async def for_lane_if_granted(self, name: str, lane: str, ns: str) -> ProviderClient:
        """Return the client of a connection and a lane for a namespace; refuse a namespace without a grant."""
        client = await self.for_lane(name, lane)
        try:
            check_grant(self._records[name], ns)
        except NotGranted as error:
            raise Permanent(str(error)) from error
        return client

    async def for_lane_if_adopting(self, name: str, lane: str, ns: str) -> ProviderClient:
        """Return the client of a connection and a lane for a namespace that may adopt there; refuse any other."""
        client = await self.for_lane(name, lane)
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
        if self._reading.get(name) is task:
            del self._reading[name]
        if not task.cancelled():
            task.exception()

    async def _read_client(self, name: str) -> ProviderClient:
        began, reading = monotonic(), asyncio.current_task()
        record, version = await self._catalogue.stored_connection(name)
        client = await self._use(record, version)
        if self._reading.get(name) is reading:  # otherwise the record may have changed since it was read
            self._read[name] = began
        return client

    async def _use(self, record: CloudConnection, version: int) -> ProviderClient:
        """Return the client of a stored record; it replaces the client of an older one."""
        known, connection = self._open.get(record.name), _without_grants(record)
        if known is not None and version < known.version:
            return known.client
        self._records[record.name] = record
        if known is not None and known.connection == connection:
            self._open[record.name] = replace(known, version=version)
            return known.client
        client = self._make_client(connection)
        self._open[record.name] = OpenClient(version, connection, client)
        if known is not None:
            await known.client.close()
        return client

    async def for_connection(self, connection: CloudConnection) -> ProviderClient:
        """Return the client of a connection's stored record, which may be newer than the given one."""
        known = self._open.get(connection.name)
        if known is not None and known.connection == _without_grants(connection):
            return known.client
        return await asyncio.shield(self._start_read(connection.name))

    async def check(self, connection: CloudConnection) -> None:
        """Refuse a connection whose driver or options are unknown; the client in use stays."""
        known = self._open.get(connection.name)
        if known is None or known.connection != _without_grants(connection):
            await self._make_client(connection).close()

    def _make_client(self, connection: CloudConnection) -> ProviderClient:
        serves = _listing_ttl_s(connection.options)
        return ProviderClient(self._make(connection), monotonic, tick=self._tick, serves=serves, lane=connection.lane)

    def invalidate(self, name: str) -> None:
        """Read the record of a connection again before its next use; a read that is under way may have the old one."""
        self._read.pop(name, None)
        self._reading.pop(name, None)

    async def discard(self, name: str) -> None:
        """Close the client of a removed connection."""
        self.invalidate(name)
        known = self._open.pop(name, None)
        self._records.pop(name, None)
        if known is not None:
            await known.client.close()

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
        for known in self._open.values():
            await known.client.close()
        self._open.clear()


def _without_grants(connection: CloudConnection) -> CloudConnection:
    """Return what a client depends on: grants do not concern it."""
    return replace(connection, namespaces=None, enabled=True)


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
