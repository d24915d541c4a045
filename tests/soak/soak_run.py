"""One soak: a phase with kills, a phase without under the same load, and then no load."""

# real time: kills and pauses come at times that a seed draws; each outcome is judged, none is expected
import asyncio
import time
from pathlib import Path
from random import Random

from stateward.agents.simulation import SimulatedFleet
from stateward.domains.edge.api.routes import AGENTS_PATH
from tests.soak import orphan_rows
from tests.soak.soak_deployment import LEASE, Sample, SoakDeployment
from tests.soak.users import CLOUDLETS, NS, PATIENT, Calls, User, users
from tests.soak.verdict import Verdict, grown, leaks, left, open_files

EVERY = 1.0
CALM = 1 / 3
"""The part of the time without kills: only a process that lives long shows whether it grows."""

BEGINNING = 10.0
"""Seconds in which a process opens the files that it needs under load."""

KILLS_A_MINUTE = 4.0
SHORTEST_PAUSE = 4.0


class SoakRun:
    """One soak."""

    def __init__(self, deployment: SoakDeployment, seconds: float, chance: Random) -> None:
        self.deployment, self.seconds, self.chance = deployment, seconds, chance
        self.calls = Calls(deployment)
        self._begun = 0.0

    @property
    def at(self) -> float:
        """How many seconds have passed."""
        return time.monotonic() - self._begun

    async def run(self) -> Verdict:
        """Run it, and return the verdict."""
        try:
            await self.deployment.open()
            self._begun = time.monotonic()
            everyone = users(self.calls, self.chance)
            await self._run_load(everyone)
            rest, files = await self._at_rest()
            logged = self.deployment.errors()
            await self.deployment.close()
        finally:
            self.deployment.abandon()
        figures = await orphan_rows.count_rows(self.deployment.store, orphan_rows.FIGURES)
        return self._verdict(everyone, rest, files, figures, logged)

    async def _run_load(self, everyone: list[User]) -> None:
        fleet = await self._agents()
        sampling = asyncio.create_task(self._sample())
        killing = asyncio.create_task(self._kill_processes())
        try:
            await asyncio.gather(*(one.run(lambda: self.at < self.seconds) for one in everyone))
            await killing
        finally:
            sampling.cancel()
            killing.cancel()
            await asyncio.gather(sampling, killing, return_exceptions=True)
            await fleet.stop()
            await self.calls.close()

    async def _agents(self) -> SimulatedFleet:
        body = {"name": "agents", "role": "agent", "namespaces": [f"{NS}:*"]}
        token = (await self.calls.call("POST", "/api/v1/tokens", body)).json()["token"]
        fleet = SimulatedFleet([f"ws://127.0.0.1:{self.deployment.proxy.port}"], AGENTS_PATH, NS, CLOUDLETS, token)
        fleet.start()
        return fleet

    async def _sample(self) -> None:
        while True:
            self.deployment.sample(self.at)
            await asyncio.sleep(EVERY)

    async def _kill_processes(self) -> None:
        pause = max(SHORTEST_PAUSE, 60 / KILLS_A_MINUTE)
        while self.at < self.seconds * (1 - CALM):
            await asyncio.sleep(self.chance.uniform(0.5, 1.0) * min(pause, self.seconds * (1 - CALM) / 3))
            await self.deployment.kill(self.chance)

    async def _at_rest(self) -> tuple[dict[str, int], dict[str, int]]:
        """Wait until no faulty rows are left, at most PATIENT seconds; then count rows and open files."""
        end = time.monotonic() + PATIENT
        while (
            any((await orphan_rows.count_rows(self.deployment.store, orphan_rows.FAULTS)).values())
            and time.monotonic() < end
        ):
            await asyncio.sleep(1.0)
        await asyncio.sleep(LEASE)  # until processes have closed what they keep for clients that return soon
        return await orphan_rows.count_rows(self.deployment.store, orphan_rows.FAULTS), _files(
            self.deployment.sample(self.at)
        )

    def _verdict(
        self,
        everyone: list[User],
        rest: dict[str, int],
        files: dict[str, int],
        figures: dict[str, int],
        logged: list[str],
    ) -> Verdict:
        since = self.seconds * (1 - CALM) + (self.seconds * CALM) / 4  # a process that has just begun still grows
        samples = [one for one in self.deployment.samples if one.at <= self.seconds]
        faults = [*self.calls.faults, *self.deployment.deaths, *logged, *left(rest), *leaks(samples, since)]
        begun = _files([one for one in samples if one.at <= BEGINNING])
        faults += [*open_files(begun, files), *_idle(everyone)]
        summary: dict[str, float] = {"seconds": round(self.at), "kills": self.deployment.kills, **figures}
        summary |= {f"turns of {one.name}": one.turns for one in everyone}
        summary |= {f"answers {status}": count for status, count in sorted(self.calls.answers.items())}
        for name, first, last in grown(samples, since):
            summary |= {
                f"MiB of the {name} when kills ended": first >> 20,
                f"MiB of the {name} as it ended": last >> 20,
            }
            summary |= {
                f"files of the {name} in the beginning": begun[name],
                f"files of the {name} at rest": files[name],
            }
        return Verdict(summary, faults)


def _files(samples: list[Sample]) -> dict[str, int]:
    """Return how many files each process had open at most."""
    return {one.name: one.files for one in sorted(samples, key=lambda one: one.files)}


def _idle(everyone: list[User]) -> list[str]:
    """Return a fault for each user without a single turn: a soak that does nothing proves nothing."""
    return [f"{one.name} has done nothing" for one in everyone if not one.turns]


async def soak(folder: Path, database: str, seconds: float, seed: int) -> Verdict:
    """Run a soak on a database, or embedded in a folder."""
    return await SoakRun(SoakDeployment(folder, database), seconds, Random(seed)).run()
