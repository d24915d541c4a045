"""Crashes: the process is killed at every commit and at every await of a handler, and nothing is doubled or lost."""

from embedded import NS, ZONE

from stateward.testing import CrashRun, crash_everywhere
from stateward_dns.kinds import kinds_on
from stateward_dns.model import RRset, RRsetKey
from stateward_dns.simulated import SimulatedServer


async def life_of_a_record(run: CrashRun) -> None:
    server = SimulatedServer(on_change=run.effects.apply)
    engine = await run.start(lambda: kinds_on(server))
    await engine.run(NS, ZONE, "create", kind="dns.zone", spec={})
    spec = {"zone": ZONE, "name": "www", "values": ["192.0.2.1"]}
    await engine.run(NS, "www", "create", kind="dns.record", spec=spec)
    await engine.run(NS, "www", "change", args={"values": ["192.0.2.2"]})
    assert server.zones[ZONE] == {RRsetKey("www", "A"): RRset(300, ("192.0.2.2",))}
    await engine.run(NS, "www", "disable")
    await engine.run(NS, "www", "delete")
    await engine.run(NS, ZONE, "delete")
    assert server.zones == {}


def test_crash_at_any_point_neither_doubles_nor_loses_anything() -> None:
    report = crash_everywhere(life_of_a_record)
    assert report.points > 25
    assert report.effects == 5  # zone added, record written twice, record removed, zone removed
