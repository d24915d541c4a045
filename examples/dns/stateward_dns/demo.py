"""The demo: a zone on a simulated server, whose records change, drift and are repaired."""

import asyncio
from random import Random

from stateward.engine import Denied, Engine
from stateward_dns.model import RRset, RRsetKey
from stateward_dns.simulated import SimulatedServer

NS, ZONE, NAMES = "demo", "shop.example", ("www", "api", "mail")
PAUSE_S = 4.0


class DnsDemo:
    """Keeps a few records in motion."""

    def __init__(self, server: SimulatedServer, random: Random) -> None:
        self._server, self._random = server, random

    async def run(self, engine: Engine) -> None:
        """Create what is missing, then change something at intervals, until cancelled."""
        await self._create(engine, ZONE, "dns.zone", {"about": "the shop of the demo"})
        for name in NAMES:
            await self._create(engine, f"{name}.{ZONE}", "dns.record", self._spec(name))
        while True:
            await asyncio.sleep(PAUSE_S * self._random.uniform(0.5, 1.5))
            await self._change_something(engine, self._random.choice(NAMES))

    async def _change_something(self, engine: Engine, name: str) -> None:
        id_ = f"{name}.{ZONE}"
        found = await engine.get(NS, id_)
        choices = {"active": ["change", "disable", ""], "disabled": ["enable"], "drifted": ["repair"]}
        action = self._random.choice(choices.get(found.state, [""]))
        if action:
            await _act(engine, id_, action, {"values": [self._address()]} if action == "change" else {})
        elif ZONE in self._server.zones:  # somebody changes it by hand
            self._server.zones[ZONE][RRsetKey(name, "A")] = RRset(60, (self._address(),))

    async def _create(self, engine: Engine, id_: str, kind: str, spec: dict[str, object]) -> None:
        try:
            made = await engine.create(NS, id_, kind, spec=spec, who="demo")
            await engine.wait(NS, made.op.id)
        except Denied:
            return  # it is there already

    def _spec(self, name: str) -> dict[str, object]:
        return {"zone": ZONE, "name": name, "values": [self._address()]}

    def _address(self) -> str:
        return f"192.0.2.{self._random.randrange(1, 255)}"


async def _act(engine: Engine, id_: str, action: str, args: dict[str, object]) -> None:
    try:
        await engine.act(NS, id_, action, args=args, who="demo")
    except Denied:
        return  # something else happens to it just now
