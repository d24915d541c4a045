"""The demo of the domain: a system of simulated services that is deployed, scaled and crashed at random."""

import asyncio
from contextlib import suppress
from random import Random

from stateward.domains.systems.backends.names import SIMULATED
from stateward.domains.systems.backends.port import ServiceRef, SystemRef
from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.definition import Service, Tree
from stateward.domains.systems.service import SystemActions
from stateward.engine import AlreadyExists, Denied, Engine

NS, SYSTEM = "demo", "billing"
PATHS = ("/web", "/store/api", "/store/ledger", "/jobs/mail", "/jobs/dunning")
MEAN_PAUSE_S = 2.0
"""How many seconds pass between two things that are done, about."""

PEOPLE = ("ann", "ben", "cleo")


class SystemsDemo:
    """Does something to the demo's system, every few seconds."""

    def __init__(self, engine: Engine, backend: SimulatedBackend) -> None:
        self._engine, self._backend = engine, backend
        self._chance = Random()  # noqa: S311 - chance, not secrets
        self._versions = dict.fromkeys(PATHS, 1)
        self._sizes = dict.fromkeys(PATHS, 2)

    async def run(self) -> None:
        """Live, until cancelled."""
        with suppress(AlreadyExists):
            made = await SystemActions(self._engine, NS, PEOPLE[0]).create(SYSTEM, SIMULATED)
            await self._engine.wait_record(NS, made.op.id)
        for path in PATHS:
            await self._deploy(path)
        while True:
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) * MEAN_PAUSE_S)
            await self._act(self._chance.choice(PATHS))

    async def _act(self, path: str) -> None:
        choice = self._chance.choice(("deploy", "deploy", "scale", "crash"))
        if choice == "crash":
            await self._crash(path)
            return
        if choice == "deploy":
            self._versions[path] += 1
        else:
            self._sizes[path] = self._chance.randint(1, 4)
        await self._deploy(path)

    async def _deploy(self, path: str) -> None:
        service = Service(command=("run", f"v{self._versions[path]}"), instances=self._sizes[path])
        with suppress(Denied):  # somebody else is at it: that is what locks are for
            await SystemActions(self._engine, NS, self._chance.choice(PEOPLE)).deploy(
                SYSTEM, path, Tree({"/": service})
            )

    async def _crash(self, path: str) -> None:
        ref = ServiceRef(SystemRef(NS, SYSTEM), path)
        if await self._backend.instances(ref):
            self._backend.crash(ref)
            await asyncio.sleep(MEAN_PAUSE_S)
            self._backend.mend(ref)
