"""The domain in a process: settings, the demo, and the zone file."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest
from embedded import ZONE

from stateward.engine import Engine, Kind
from stateward.lifecycle import check
from stateward.plugin import BadInput, ProcessContext
from stateward_dns import domain
from stateward_dns.demo import NS, DnsDemo
from stateward_dns.demo import ZONE as DEMO_ZONE
from stateward_dns.drift import DriftDetector
from stateward_dns.kinds import kinds_on
from stateward_dns.model import RRset, RRsetKey
from stateward_dns.routes import NoZoneFile, zone_file
from stateward_dns.runtime import create_runtime
from stateward_dns.settings import DnsSettings
from stateward_dns.simulated import SimulatedServer


def test_no_object_can_get_stuck() -> None:
    assert [check(lifecycle) for lifecycle in domain.all_lifecycles] == [(), ()]


def test_process_without_a_server_says_which_setting_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="dns_host: must be set"):
        create_runtime(ProcessContext(tmp_path))


def test_key_that_is_no_key_is_refused_and_not_repeated(tmp_path: Path) -> None:
    settings = DnsSettings(host="127.0.0.1", key_secret="no key")
    with pytest.raises(BadInput) as refused:
        create_runtime(ProcessContext(tmp_path, settings={"dns": settings}))
    assert str(refused.value) == "dns_key_secret: must be the TSIG key in Base64, as the server's configuration has it"


def test_host_must_be_an_address(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"dns_host: 'ns.example.net' must be an IP address"):
        create_runtime(ProcessContext(tmp_path, settings={"dns": DnsSettings(host="ns.example.net")}))


def test_kinds_of_the_process_are_those_that_are_declared(tmp_path: Path) -> None:
    runtime = create_runtime(ProcessContext(tmp_path, settings={"dns": DnsSettings(host="::1", key_secret="a2V5")}))
    assert [kind.lifecycle for kind in runtime.kinds] == list(domain.all_lifecycles)
    assert all(set(kind.lifecycle.actions) == set(kind.handlers) for kind in runtime.kinds)


async def test_zone_file_has_what_is_served() -> None:
    server = SimulatedServer()
    server.zones[ZONE] = {
        RRsetKey("www", "A"): RRset(60, ("192.0.2.1", "192.0.2.2")),
        RRsetKey("@", "TXT"): RRset(300, ('"hello"',)),
    }
    text = '$ORIGIN example.org.\n@\t300\tIN\tTXT\t"hello"\nwww\t60\tIN\tA\t192.0.2.1\nwww\t60\tIN\tA\t192.0.2.2\n'
    assert await zone_file(server, ZONE) == text
    with pytest.raises(NoZoneFile, match="does not serve it"):
        await zone_file(server, "example.com")
    server.is_silent = True
    with pytest.raises(NoZoneFile, match="gives no answer"):
        await zone_file(server, ZONE)


@pytest.fixture
def server() -> SimulatedServer:
    return SimulatedServer(delay_s=0.5)


@pytest.fixture
def kinds(server: SimulatedServer) -> Iterable[Kind]:
    return kinds_on(server)


async def test_demo_keeps_records_changing(engine: Engine, server: SimulatedServer) -> None:
    """Ten minutes of the demo, in virtual time."""
    demo = asyncio.create_task(DnsDemo(server, Random(7)).run(engine))
    detector = DriftDetector(engine, server, Random(7), 5.0)
    for _ in range(120):
        await asyncio.sleep(5.0)
        await detector.check_all()
    assert not demo.done()
    demo.cancel()
    events = {entry.event for entry in await engine.history(NS, f"www.{DEMO_ZONE}")}
    assert {"create", "change", "disable", "enable", "shows other", "repair"} <= events
