"""A simulated DNS server, for the demo and for fast tests: the same promises, in memory."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from stateward.engine import Permanent, Unknown
from stateward_dns.model import RRset, RRsetKey


class SimulatedServer:
    """A DNS server in memory, which answers after `delay_s` seconds.

    While it `is_silent`, it does what it is told, and nobody learns of it. `on_change` is called with every change.
    """

    address = "simulated"

    def __init__(self, delay_s: float = 0.0, on_change: Callable[[str], Awaitable[None]] | None = None) -> None:
        self.delay_s, self.is_silent, self._on_change = delay_s, False, on_change
        self.owners: dict[str, str] = {}
        self.zones: dict[str, dict[RRsetKey, RRset]] = {}

    async def read_owner(self, zone: str) -> str | None:
        await self._answer()
        return self.owners.get(zone)

    async def serves(self, zone: str) -> bool:
        await self._answer()
        return zone in self.zones

    async def add_zone(self, zone: str, owner: str) -> None:
        if self.owners.setdefault(zone, owner) != owner:
            raise Permanent(f"the server has the zone {zone} already, and not for this namespace")
        if zone not in self.zones:
            self.zones[zone] = {}
            await self._note_change(f"zone {zone} added")
        await self._answer()

    async def remove_zone(self, zone: str, owner: str) -> None:
        if self.owners.get(zone) == owner:
            del self.owners[zone], self.zones[zone]
            await self._note_change(f"zone {zone} removed")
        await self._answer()

    async def read_rrset(self, zone: str, key: RRsetKey) -> RRset | None:
        await self._answer()
        return self._zone(zone).get(key)

    async def write_rrset(self, zone: str, key: RRsetKey, wanted: RRset | None, *, is_new: bool = False) -> None:
        served = self._zone(zone).get(key)
        if is_new and served not in (None, wanted):
            raise Permanent(f"the server serves {key} of {zone} already")
        if wanted is None:
            self._zone(zone).pop(key, None)
        else:
            self._zone(zone)[key] = wanted
        if served != wanted:
            await self._note_change(f"{key} of {zone}: {wanted}")
        await self._answer()

    async def read_zone(self, zone: str) -> Mapping[RRsetKey, RRset] | None:
        await self._answer()
        return self.zones.get(zone)

    def _zone(self, zone: str) -> dict[RRsetKey, RRset]:
        if zone not in self.zones:
            raise Permanent(f"the server does not serve {zone}")
        return self.zones[zone]

    async def _note_change(self, what: str) -> None:
        if self._on_change is not None:
            await self._on_change(what)

    async def _answer(self) -> None:
        await asyncio.sleep(self.delay_s)
        if self.is_silent:
            raise Unknown("the simulated DNS server gives no answer")
