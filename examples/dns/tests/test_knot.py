"""The same on a real DNS server: queries, dynamic updates, the catalog and transfers over the network."""

import asyncio
from contextlib import closing
from pathlib import Path
from random import Random
from socket import socket

import pytest
from embedded import NS, ZONE, records_on
from knot_server import KnotServer
from msgspec.structs import replace

from stateward.engine import Permanent, Temporary, Unknown
from stateward_dns.drift import DriftDetector
from stateward_dns.dynamic_updates import DynamicUpdates
from stateward_dns.model import RRset, RRsetKey

WWW = RRsetKey("www", "A")
ONE, OTHER = RRset(300, ("192.0.2.1",)), RRset(60, ("198.51.100.7",))


async def test_life_of_a_zone_and_its_records(knot: KnotServer) -> None:
    server = DynamicUpdates(knot.at)
    async with records_on(server) as records:
        assert (await records.create_zone()).error is None
        assert (await records.create()).error is None
        assert (await records.create("mail", name="@", type="MX", values=["10 mail"])).error is None
        assert await server.read_zone(ZONE) == {WWW: ONE, RRsetKey("@", "MX"): RRset(300, ("10 mail.example.org.",))}
        assert (await records.do("www", "change", values=["192.0.2.9"], ttl=60)).error is None
        assert await server.read_rrset(ZONE, WWW) == RRset(60, ("192.0.2.9",))
        await records.do("www", "disable")
        assert await server.read_rrset(ZONE, WWW) is None
        await records.do("www", "enable")
        await server.write_rrset(ZONE, WWW, OTHER)  # by somebody else
        await DriftDetector(records.engine, server, Random(1), 1.0).check_all()
        assert await records.state("www") == "drifted"
        await records.do("www", "delete")
        await records.do("mail", "delete")
        assert (await records.do(ZONE, "delete")).error is None
        assert not await server.serves(ZONE)
        assert (await records.create_zone()).error is None  # a zone of the same name begins anew
        assert await server.read_zone(ZONE) == {}
        await records.do(ZONE, "delete")


async def test_messages_may_be_repeated(knot: KnotServer) -> None:
    server, zone = DynamicUpdates(knot.at), "repeated.example"
    for _ in range(2):
        await server.add_zone(zone, "a")
    while not await server.serves(zone):
        await asyncio.sleep(0.01)
    for _ in range(2):
        await server.write_rrset(zone, WWW, ONE, is_new=True)
    with pytest.raises(Permanent, match=r"serves www/A of repeated.example already: 192.0.2.1"):
        await server.write_rrset(zone, WWW, OTHER, is_new=True)
    with pytest.raises(Permanent, match="not for this namespace"):
        await server.add_zone(zone, "b")
    await server.remove_zone(zone, "b")
    assert await server.read_rrset(zone, WWW) == ONE
    for _ in range(2):
        await server.remove_zone(zone, "a")


async def test_records_of_a_zone_that_the_server_has_lost_can_be_deleted(knot: KnotServer) -> None:
    server, zone = DynamicUpdates(knot.at), "lost.example"
    async with records_on(server) as records:
        await records.create_zone(zone)
        await records.create("www", zone=zone)
        await server.remove_zone(zone, f"{NS}/{zone}")
        while await server.serves(zone):
            await asyncio.sleep(0.01)
        await DriftDetector(records.engine, server, Random(1), 1.0).check_all()
        assert (await records.state(zone), await records.state("www")) == ("lost", "drifted")
        assert (await records.do("www", "delete")).error is None
        assert (await records.do(zone, "delete")).error is None


async def test_text_comes_back_as_it_was_given(knot: KnotServer) -> None:
    async with records_on(DynamicUpdates(knot.at)) as records:
        await records.create_zone("texts.example")
        text = '"v=spf1 \\"quoted\\" \\\\ -all" "second"'
        assert (await records.create("spf", zone="texts.example", type="TXT", values=[text])).error is None
        await DriftDetector(records.engine, DynamicUpdates(knot.at), Random(1), 1.0).check_all()
        assert await records.state("spf") == "active"


async def test_wrong_key_is_told(knot: KnotServer) -> None:
    server = DynamicUpdates(replace(knot.at, key_secret="d3Jvbmc="))
    with pytest.raises(Permanent, match="does not accept the key stateward"):
        await server.add_zone("example.com", "a")


async def test_zone_that_the_server_does_not_have_is_told(knot: KnotServer) -> None:
    server = DynamicUpdates(knot.at)
    assert await server.read_zone("example.com") is None
    with pytest.raises(Permanent, match="REFUSED"):
        await server.read_rrset("example.com", WWW)


async def test_crash_of_the_server_loses_nothing(knot: KnotServer) -> None:
    server = DynamicUpdates(knot.at)
    async with records_on(server) as records:
        await records.create_zone("crash.example")
        await records.create("www", zone="crash.example")
        knot.kill()
        with pytest.raises(Temporary, match="no DNS server listens"):
            await server.write_rrset("crash.example", WWW, OTHER)
        with pytest.raises(Unknown, match="no DNS server listens"):  # nobody can say what it serves
            await server.read_rrset("crash.example", WWW)
        await DriftDetector(records.engine, server, Random(1), 1.0).check_all()
        assert await records.state("crash.example") == "unknown"
        knot.start()
        await DriftDetector(records.engine, server, Random(1), 1.0).check_all()
        assert (await records.state("crash.example"), await records.state("www")) == ("ready", "active")


async def test_silent_server_is_unknown(tmp_path: Path) -> None:
    with closing(KnotServer(tmp_path)) as unstarted, socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        server = DynamicUpdates(replace(unstarted.at, port=silent.getsockname()[1], timeout_s=0.2))
        with pytest.raises(Unknown, match="gives no answer"):
            await server.write_rrset(ZONE, WWW, ONE)
