"""Crashes: the process is killed at every commit and at every await of a handler, and nothing is doubled or lost."""

from random import Random
from typing import Any

from embedded import NS, ZONE

from stateward.engine import Kind
from stateward.testing import CrashRun, Effects, crash_everywhere, simulate
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


def test_random_requests_under_crashes_and_faults_keep_every_promise() -> None:
    servers: dict[Effects, SimulatedServer] = {}

    def kinds_in_world(effects: Effects) -> list[Kind]:
        """Return the kinds of a process; those of one world share a server."""
        return kinds_on(servers.setdefault(effects, SimulatedServer(delay_s=0.1)))

    def spec(random: Random) -> dict[str, Any]:
        name, value = random.choice(("www", "api", "@")), f"192.0.2.{random.randrange(1, 9)}"
        return {"zone": f"dns.zone-{random.randrange(4)}", "name": name, "values": [value]}

    report = simulate(kinds_in_world, 10, specs={"dns.record": spec})
    assert report.operations > 100
