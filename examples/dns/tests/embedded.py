"""An embedded engine with the kinds of the domain, and the words by which tests speak to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from stateward.engine import Engine, Object, Operation
from stateward.store import open_store
from stateward_dns.kinds import kinds_on
from stateward_dns.server_port import DnsServer

NS = "default"
ZONE = "example.org"


class Records:
    """Zones and records in one namespace."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def create_zone(self, zone: str = ZONE) -> Operation:
        return await self._ended((await self.engine.create(NS, zone, "dns.zone", spec={})).op)

    async def create(self, id_: str = "www", **spec: Any) -> Operation:
        wanted = {"zone": ZONE, "name": id_, "values": ["192.0.2.1"], **spec}
        return await self._ended((await self.engine.create(NS, id_, "dns.record", spec=wanted)).op)

    async def do(self, id_: str, action: str, **args: Any) -> Operation:
        return await self._ended((await self.engine.act(NS, id_, action, args=args)).op)

    async def state(self, id_: str) -> str:
        return str((await self.engine.get(NS, id_)).state)

    async def spec(self, id_: str) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode((await self.object(id_)).spec)
        return found

    async def object(self, id_: str) -> Object:
        return await self.engine.record(NS, id_)

    async def _ended(self, operation: Operation) -> Operation:
        return await self.engine.wait_record(NS, operation.id, 30)


@asynccontextmanager
async def records_on(server: DnsServer, database: str = ":memory:") -> AsyncIterator[Records]:
    """Run an engine whose handlers use a server."""
    async with Engine(open_store(database), kinds_on(server)) as engine:
        yield Records(engine)
