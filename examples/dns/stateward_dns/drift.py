"""Drift: what the server serves against what is recorded, zone by zone, at intervals.

A transfer of the zone shows all of its records at once. What it shows counts only for objects at rest, and only if they
have not changed since the server was asked: the engine checks that when it records the sightings. A server that does
not answer has shown nothing: its zones become `unknown`, and their records keep their states.
"""

import logging
from collections.abc import Iterator, Mapping
from random import Random

from stateward.engine import Engine, Object, Selector, Sighting, WorkError, list_all, to_json
from stateward_dns import kinds
from stateward_dns.lifecycle import RECORD, ZONE, RecordState, ZoneState
from stateward_dns.model import RRset, RRsetKey, rrset_key, wanted_rrset
from stateward_dns.server_port import DnsServer

log = logging.getLogger("stateward.dns")

WATCHED_ZONES = (ZoneState.READY, ZoneState.UNKNOWN, ZoneState.LOST)
WATCHED_RECORDS = (RecordState.ACTIVE, RecordState.DISABLED, RecordState.DRIFTED, RecordState.UNKNOWN)


class DriftDetector:
    """Compares all zones with the server."""

    def __init__(self, engine: Engine, server: DnsServer, random: Random, every_s: float) -> None:
        self._engine, self._server, self._random, self._every_s = engine, server, random, every_s

    def interval_s(self) -> float:
        """Return the seconds until the next comparison; with jitter, because several processes compare."""
        return self._every_s * self._random.uniform(0.7, 1.3)

    async def check_all(self) -> None:
        """Compare the zones of all namespaces once."""
        for ns in await self._engine.store.reader.namespaces():
            async for zone in list_all(self._engine.store.reader, Selector(ns, ZONE.kind, states=WATCHED_ZONES)):
                await self.check(zone)

    async def check(self, zone: Object) -> None:
        """Compare one zone with the server."""
        reader = self._engine.store.reader
        at = await reader.time()  # before the question: what is older than the answer does not count
        try:
            served = await self._server.read_zone(zone.id)
        except WorkError as error:
            await self._engine.observe([Sighting(zone.ns, zone.id, "no answer", at, reason=str(error))])
            return
        records = Selector(zone.ns, RECORD.kind, parent=zone.id, states=WATCHED_RECORDS)
        found = [one async for one in list_all(reader, records)]
        await self._engine.observe(list(sightings(zone, found, served, at)))


def sightings(
    zone: Object, records: list[Object], served: Mapping[RRsetKey, RRset] | None, at: float
) -> Iterator[Sighting]:
    """Yield what an answer of the server changes: of the zone, and of its records."""
    if zone.state != (ZoneState.LOST if served is None else ZoneState.READY):
        yield Sighting(zone.ns, zone.id, "shows nothing" if served is None else "shows it", at)
    for record in records:
        spec = kinds.record.read_spec(record)
        shown = (served or {}).get(rrset_key(spec))
        if (event := record_event(record.state, wanted_rrset(spec), shown)) is not None:
            reason = None if event == "shows it" else f"the server serves {_text(shown)}"
            yield Sighting(record.ns, record.id, event, at, to_json({"served": shown}), reason)


def record_event(state: str, wanted: RRset, shown: RRset | None) -> str | None:
    """Return the event of a record at rest, given what the server shows; None if it is as recorded."""
    if shown == wanted:
        return None if state == RecordState.ACTIVE else "shows it"
    if shown is None:
        return "shows nothing" if state in (RecordState.ACTIVE, RecordState.UNKNOWN) else None
    return None if state == RecordState.DRIFTED else "shows other"


def _text(shown: RRset | None) -> str:
    return "nothing there" if shown is None else f"{', '.join(shown.values)} with TTL {shown.ttl}"
