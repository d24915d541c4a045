"""Crashes: the process is killed at every commit and at every await of a handler, and nothing is doubled or lost."""

from typing import Any

from embedded import NS, ZONE

from stateward.engine import Engine
from stateward.testing import CrashRun, crash_everywhere
from stateward_dns.kinds import kinds_on
from stateward_dns.model import RRset, RRsetKey
from stateward_dns.simulated import SimulatedServer


async def done(engine: Engine, id_: str, action: str, **how: Any) -> None:
    accepted = await engine.act(NS, id_, action, **how)
    assert (await engine.wait(NS, accepted.op.id)).status == "succeeded"


async def created(engine: Engine, id_: str, kind: str, spec: dict[str, Any]) -> None:
    accepted = await engine.create(NS, id_, kind, spec=spec)
    assert (await engine.wait(NS, accepted.op.id)).status == "succeeded"


async def life_of_a_record(run: CrashRun) -> None:
    server = SimulatedServer(on_change=run.effects.apply)
    engine = await run.start(lambda: kinds_on(server))
    await created(engine, ZONE, "dns.zone", {})
    await created(engine, "www", "dns.record", {"zone": ZONE, "name": "www", "values": ["192.0.2.1"]})
    await done(engine, "www", "change", args={"values": ["192.0.2.2"]})
    assert server.zones[ZONE] == {RRsetKey("www", "A"): RRset(300, ("192.0.2.2",))}
    await done(engine, "www", "disable")
    await done(engine, "www", "delete")
    await done(engine, ZONE, "delete")
    assert server.zones == {}


def test_crash_at_any_point_neither_doubles_nor_loses_anything() -> None:
    report = crash_everywhere(life_of_a_record)
    assert report.points > 25
    assert report.effects == 5  # zone added, record written twice, record removed, zone removed
