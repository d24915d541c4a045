"""Drift: the server changes without our doing, or does not answer."""

from random import Random

import pytest
from embedded import NS, ZONE, Records, records_on

from stateward_dns.drift import DriftDetector, record_event
from stateward_dns.model import RRset, RRsetKey
from stateward_dns.simulated import SimulatedServer

WWW = RRsetKey("www", "A")
OURS, OTHER = RRset(300, ("192.0.2.1",)), RRset(300, ("198.51.100.7",))


async def check(records: Records, server: SimulatedServer) -> None:
    await DriftDetector(records.engine, server, Random(1), 1.0).check_all()


async def test_drift_is_seen_repaired_and_tells_what_is_served() -> None:
    server = SimulatedServer()
    async with records_on(server) as records:
        await records.create_zone()
        await records.create()
        await check(records, server)
        assert await records.state("www") == "active"
        server.zones[ZONE][WWW] = OTHER
        await check(records, server)
        found = await records.object("www")
        assert (found.state, found.error) == ("drifted", "the server serves 198.51.100.7 with TTL 300")
        await records.do("www", "repair")
        assert (await records.state("www"), server.zones[ZONE][WWW]) == ("active", OURS)


async def test_drift_that_ends_by_itself_is_seen() -> None:
    server = SimulatedServer()
    async with records_on(server) as records:
        await records.create_zone()
        await records.create()
        del server.zones[ZONE][WWW]
        await check(records, server)
        assert await records.state("www") == "drifted"
        server.zones[ZONE][WWW] = OURS
        await check(records, server)
        assert await records.state("www") == "active"


async def test_server_without_an_answer_is_not_a_server_without_the_zone() -> None:
    server = SimulatedServer()
    async with records_on(server) as records:
        await records.create_zone()
        await records.create()
        server.is_silent = True
        await check(records, server)
        assert (await records.state(ZONE), await records.state("www")) == ("unknown", "active")
        server.is_silent = False
        await check(records, server)
        assert await records.state(ZONE) == "ready"


async def test_lost_zone_is_added_again_and_its_records_are_repaired() -> None:
    server = SimulatedServer()
    async with records_on(server) as records:
        await records.create_zone()
        await records.create()
        del server.zones[ZONE], server.owners[ZONE]
        await check(records, server)
        assert (await records.state(ZONE), await records.state("www")) == ("lost", "drifted")
        await records.do(ZONE, "retry")
        await records.do("www", "repair")
        assert server.zones[ZONE] == {WWW: OURS}


async def test_records_of_a_lost_zone_can_be_deleted_and_then_the_zone() -> None:
    server = SimulatedServer()
    async with records_on(server) as records:
        await records.create_zone()
        await records.create()
        del server.zones[ZONE]
        server.owners[ZONE] = "other/example.org"
        await check(records, server)
        assert (await records.do("www", "delete")).status == "succeeded"
        assert (await records.do(ZONE, "delete")).status == "succeeded"
        assert server.owners == {ZONE: "other/example.org"}


async def test_action_without_an_answer_ends_unknown_and_the_server_resolves_it() -> None:
    server = SimulatedServer()
    async with records_on(server) as records:
        await records.create_zone()
        await records.create()
        server.is_silent = True  # it does what it is told, and nobody learns of it
        begun = (await records.engine.act(NS, "www", "disable")).op
        await records.engine.cancel(NS, begun.id)
        await records.engine.wait(NS, begun.id, 30)
        assert await records.state("www") in ("unknown", "active")
        server.is_silent = False
        await check(records, server)
        assert (await records.state("www")) == ("active" if WWW in server.zones[ZONE] else "disabled")


@pytest.mark.parametrize(
    ("state", "shown", "event"),
    [
        ("active", OURS, None), ("active", None, "shows nothing"), ("active", OTHER, "shows other"),
        ("drifted", OURS, "shows it"), ("drifted", None, None), ("drifted", OTHER, None),
        ("unknown", OURS, "shows it"), ("unknown", None, "shows nothing"), ("unknown", OTHER, "shows other"),
        ("disabled", OURS, "shows it"), ("disabled", None, None), ("disabled", OTHER, "shows other"),
    ],
)  # fmt: skip
def test_event_of_a_record(state: str, shown: RRset | None, event: str | None) -> None:
    assert record_event(state, OURS, shown) == event
