"""The rehearsal: a deployment under load, while its database fails in every way that it is made to survive."""

# real time: kills and pauses come at times that a seed draws; each outcome is judged, none is expected
import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import takewhile
from pathlib import Path
from random import Random

from msgspec import Struct, field

from tests.chaos.aftermath import query
from tests.chaos.crane_yard import witnessed
from tests.chaos.ledger import What
from tests.chaos.processes import Site
from tests.chaos.report import judged
from tests.chaos.storm import Storm, Weather
from tests.rehearsal import outcome_checks
from tests.rehearsal.agents import Agents
from tests.rehearsal.cluster import PATIENCE, Cluster, until
from tests.rehearsal.deployment import SERVERS, WORKERS, Deployment
from tests.rehearsal.faults import Fault, FaultTarget
from tests.rehearsal.load import NS, Callers
from tests.rehearsal.network import Network

EDGE, YARD = "edge", "yard"
LEDGER = "agents.ledger"
LEASE = 5.0

CALM = ("--callers", "2", "--cranes", "24")
BLOWS = {"kill": 1, "stop": 1, "client kill": 1}
"""What happens to the cranes' workers and clients meanwhile."""

Say = Callable[[str], None]


class Plan(Struct, frozen=True):
    """The size of a rehearsal."""

    faults: tuple[Fault, ...]
    agents: int = 100
    pause: float = 3.0  # seconds between two requests of a caller
    fresh: int = 40  # so many operations have to be accepted and to end after a fault before all is taken to be well
    heals: bool = True  # whether faults are undone, so that three nodes are there again
    yard: bool = True  # whether cranes are at work beside, whose own processes are killed and stopped as well


class Breeze(Weather, frozen=True):
    """Weather that lasts until `over` is set."""

    over: asyncio.Event = field(default_factory=asyncio.Event)

    def blows(self, chance: Random) -> Iterator[str]:
        """Yield blows until `over` is set."""
        return takewhile(lambda _: not self.over.is_set(), super().blows(chance))


RENEWED_S = 10.0
"""Within this time, every controller renews its lease, or takes a new one."""


class Rehearsal:
    """One run."""

    def __init__(self, plan: Plan, folder: Path, network: Network, say: Say) -> None:
        self._plan, self._folder, self._say = plan, folder, say
        self._database = folder / "database"
        self._database.mkdir(parents=True)
        self._cluster = Cluster(self._database, network)
        self._target = FaultTarget(self._cluster, network)
        self._deployment = Deployment(folder, self._cluster.url(EDGE))
        self._names = [f"site{number:03}" for number in range(plan.agents)]

    @property
    def cluster(self) -> Cluster:
        """The database."""
        return self._cluster

    async def run(self) -> list[str]:
        """Run it; returns the faults that were found."""
        began = time.time()
        try:
            await self._cluster.start(EDGE, YARD)
            primary = await self._cluster.primary()
            self._say(f"three nodes are up after {time.time() - began:.1f} s; the primary is n{primary}")
            await self._deployment.start()
            return await self._run_under_load()
        finally:
            self._deployment.kill()
            await self._cluster.stop()

    async def _run_under_load(self) -> list[str]:
        callers = Callers(self._deployment.urls, self._deployment.token, self._names, self._plan.pause)
        token = await callers.create_records()
        controllers = [one.replace("http", "ws", 1) for one in self._deployment.urls]
        agents = Agents(controllers, NS, self._names, token, self._folder / LEDGER)
        agents.start()
        try:
            async with asyncio.timeout(PATIENCE):
                await agents.settled()
                await callers.until_ready()
            self._say(f"{SERVERS} servers, {WORKERS} workers and {len(self._names)} agents are at work")
            return await self._run_faults(callers, agents)
        finally:
            await callers.close()
            await agents.stop()

    async def _run_faults(self, callers: Callers, agents: Agents) -> list[str]:
        callers.start()
        await self._wait_for_progress(callers, time.time())
        async with self._yard() as cranes:
            for fault in self._plan.faults:
                await self._inject(fault, callers)
        await callers.stop(PATIENCE)
        return [*await self._check_outcome(callers, agents), *cranes, *await self._deployment.stop()]

    @asynccontextmanager
    async def _yard(self) -> AsyncIterator[list[str]]:
        """Run a yard of cranes in a database of its own; the list gets its faults in the end."""
        faults: list[str] = []
        if not self._plan.yard:
            yield faults
            return
        breeze, folder = Breeze(BLOWS, (4.0, 8.0)), self._folder / YARD
        folder.mkdir()
        site = Site(self._cluster.url(YARD), folder, LEASE)
        site.manners = CALM
        yard = Storm(site, breeze, Random(3))
        storming = asyncio.create_task(yard.blow(float("inf")))
        await until(lambda: _at_work(site, storming))
        yield faults
        breeze.over.set()
        await storming
        report = await judged(yard)
        self._say(f"cranes: {str(report).splitlines()[0]}")
        faults += report.faults

    async def _inject(self, fault: Fault, callers: Callers) -> None:
        """Inject a fault, wait for progress during and after it, and print how long there was none."""
        began = time.time()
        undo = await fault.strike(self._target)
        await self._wait_for_progress(callers, time.time())
        accepting, ending = callers.pulse.pauses(began, time.time())
        self._say(f"{fault.about}:\n    nothing was accepted for {accepting:.1f} s, nothing ended for {ending:.1f} s")
        if self._plan.heals:
            await undo()
            await self._cluster.until_healthy()
            self._say(f"    three nodes again after {time.time() - began:.1f} s")
            await self._wait_for_progress(callers, time.time())

    async def _wait_for_progress(self, callers: Callers, since: float) -> None:
        """Wait until operations were accepted and have ended, as they do when all is well."""
        times = (callers.pulse.accepted, callers.pulse.ended)

        async def seen() -> bool:
            return all(sum(one > since for one in some) > self._plan.fresh for some in times)

        await until(seen)

    async def _check_outcome(self, callers: Callers, agents: Agents) -> list[str]:
        url, pulse = self._cluster.url(EDGE), callers.pulse
        with suppress(TimeoutError):  # the checks find what is left
            await until(lambda: _rests(url))
            await asyncio.sleep(RENEWED_S)  # real time: controllers whose lease expired make their agents reconnect
            await until(lambda: _rests(url))
        found = await outcome_checks.read(url)
        faults, figures = outcome_checks.faults_of(found, callers.accepted, self._folder / LEDGER, agents.things)
        calls = {"accepted": len(callers.accepted), "refused": pulse.refused, "asked again": pulse.unanswered}
        summary = ", ".join(f"{name} {number}" for name, number in {**calls, **figures}.items())
        self._say(f"edge: {summary}")
        return faults


async def _at_work(site: Site, storming: asyncio.Task[None]) -> bool:
    if storming.done():
        storming.result()
    return len(witnessed(site, What.APPLY)) > 0


async def _rests(database: str) -> bool:
    return bool((await query(database, "SELECT count(*) = 0 FROM work"))[0][0])
