"""The course of a soak: a stormy part with kills, a calm part under the same load, and then rest."""

import asyncio
import time
from pathlib import Path
from random import Random

from stateward.agents.simulation import SimulatedFleet
from stateward.domains.edge.api.routes import AGENTS_PATH
from tests.soak import rows
from tests.soak.town import LEASE, Sample, Town
from tests.soak.users import CLOUDLETS, NS, PATIENT, Calls, User, users
from tests.soak.verdict import Verdict, grown, leaks, left, open_files

EVERY = 1.0
CALM = 1 / 3
"""Which part of the time nothing is killed in: a process that lives on shows whether it grows."""

BEGINNING = 10.0
"""How many seconds it takes a process to open what it needs under load."""

KILLS_A_MINUTE = 4.0
SHORTEST_PAUSE = 4.0


class Course:
    """One soak."""

    def __init__(self, town: Town, seconds: float, chance: Random) -> None:
        self.town, self.seconds, self.chance = town, seconds, chance
        self.calls = Calls(town)
        self._begun = 0.0

    @property
    def at(self) -> float:
        """How many seconds have passed."""
        return time.monotonic() - self._begun

    async def run(self) -> Verdict:
        """Run it, and judge it."""
        try:
            await self.town.open()
            self._begun = time.monotonic()
            everybody = users(self.calls, self.chance)
            await self._live(everybody)
            rest, files = await self._at_rest()
            logged = self.town.errors()
            await self.town.close()
        finally:
            self.town.abandon()
        figures = await rows.counted(self.town.store, rows.FIGURES)
        return self._judged(everybody, rest, files, figures, logged)

    async def _live(self, everybody: list[User]) -> None:
        fleet = await self._agents()
        sampling = asyncio.create_task(self._sample())
        storm = asyncio.create_task(self._storm())
        try:
            await asyncio.gather(*(one.live(lambda: self.at < self.seconds) for one in everybody))
            await storm
        finally:
            sampling.cancel()
            storm.cancel()
            await asyncio.gather(sampling, storm, return_exceptions=True)
            await fleet.stop()
            await self.calls.close()

    async def _agents(self) -> SimulatedFleet:
        body = {"name": "agents", "role": "agent", "namespaces": [f"{NS}:*"]}
        token = (await self.calls.call("POST", "/api/v1/tokens", body)).json()["token"]
        fleet = SimulatedFleet([f"ws://127.0.0.1:{self.town.proxy.port}"], AGENTS_PATH, NS, CLOUDLETS, token)
        fleet.start()
        return fleet

    async def _sample(self) -> None:
        while True:
            self.town.sample(self.at)
            await asyncio.sleep(EVERY)

    async def _storm(self) -> None:
        pause = max(SHORTEST_PAUSE, 60 / KILLS_A_MINUTE)
        while self.at < self.seconds * (1 - CALM):
            await asyncio.sleep(self.chance.uniform(0.5, 1.0) * min(pause, self.seconds * (1 - CALM) / 3))
            await self.town.kill(self.chance)

    async def _at_rest(self) -> tuple[dict[str, int], dict[str, int]]:
        """Wait until nothing is left that should not be, or for as long as that may take; then look."""
        end = time.monotonic() + PATIENT
        while any((await rows.counted(self.town.store, rows.FAULTS)).values()) and time.monotonic() < end:
            await asyncio.sleep(1.0)
        await asyncio.sleep(LEASE)  # what a process keeps for those who come back soon
        return await rows.counted(self.town.store, rows.FAULTS), _files(self.town.sample(self.at))

    def _judged(
        self,
        everybody: list[User],
        rest: dict[str, int],
        files: dict[str, int],
        figures: dict[str, int],
        logged: list[str],
    ) -> Verdict:
        since = self.seconds * (1 - CALM) + (self.seconds * CALM) / 4  # a process that has just begun still grows
        samples = [one for one in self.town.samples if one.at <= self.seconds]
        faults = [*self.calls.faults, *self.town.deaths, *logged, *left(rest), *leaks(samples, since)]
        begun = _files([one for one in samples if one.at <= BEGINNING])
        faults += [*open_files(begun, files), *_idle(everybody)]
        told: dict[str, float] = {"seconds": round(self.at), "kills": self.town.kills, **figures}
        told |= {f"turns of {one.name}": one.turns for one in everybody}
        told |= {f"answers {status}": count for status, count in sorted(self.calls.answers.items())}
        for name, first, last in grown(samples, since):
            told |= {f"MiB of the {name} as the calm began": first >> 20, f"MiB of the {name} as it ended": last >> 20}
            told |= {f"files of the {name} in the beginning": begun[name], f"files of the {name} at rest": files[name]}
        return Verdict(told, faults)


def _files(samples: list[Sample]) -> dict[str, int]:
    """Return how many files each process had open at most."""
    return {one.name: one.files for one in sorted(samples, key=lambda one: one.files)}


def _idle(everybody: list[User]) -> list[str]:
    """Tell of users who could not even do one thing: a soak that does nothing proves nothing."""
    return [f"{one.name} has done nothing" for one in everybody if not one.turns]


async def soak(folder: Path, database: str, seconds: float, seed: int) -> Verdict:
    """Run a soak on a database, or embedded in a folder."""
    return await Course(Town(folder, database), seconds, Random(seed)).run()
