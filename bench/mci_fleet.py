"""A fleet to measure on: five simulated providers with eight regions each, in one process with engine and domain."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from bench.engine.databases import new_file, store_at
from stateward.access.quotas import quota_kind
from stateward.access.tokens import token_kind
from stateward.domains.mci.model import CloudConnection, MciSpec, SubGroup
from stateward.domains.mci.runtime import MciRuntime
from stateward.drivers import ProviderRegion
from stateward.drivers.simulated import CALM, IMAGES, REGIONS, SPECS, FaultProfile, SimulatedCloud
from stateward.engine import Engine
from stateward.lifecycle import USER
from stateward.plugin.runtime import ProcessContext
from stateward.schemas.caller import Caller

NS = "default"
ANN = Caller(USER, "bench")
PROVIDERS = ("aws", "azure", "gcp", "alibaba", "ncp")
EACH = 8
"""How many regions each provider has here."""

SLOTS = 1000
"""How many operations the one worker does at once: more than the limits of all providers together allow."""

PLACES = [CloudConnection(f"{name}-r{n}", name, f"r{n}") for name in PROVIDERS for n in range(1, EACH + 1)]


class Fleet:
    """An engine with the domain, and what is asked of it."""

    def __init__(self, engine: Engine, plugin: MciRuntime, calls: Counter[str]) -> None:
        self.engine, self.plugin, self.calls = engine, plugin, calls

    async def connect(self) -> None:
        """Make all regions known."""
        for one in PLACES:
            await self.plugin.service.add_connection(one, ANN)

    async def made(self, spec: MciSpec) -> None:
        """Make an MCI, and see it made."""
        accepted = await self.plugin.service.create(NS, spec, ANN)
        await self.engine.wait_record(NS, accepted.op.id)

    async def begun(self, mci: str, action: str) -> str:
        """Have something done to all VMs of an MCI; returns the operation."""
        verdict = await self.plugin.service.control(NS, mci, action, ANN)
        assert verdict.whole is not None
        return verdict.whole.op.id

    async def done(self, mci: str, action: str) -> None:
        """Do something to all VMs of an MCI, and see it done."""
        await self.engine.wait_record(NS, await self.begun(mci, action))

    async def states(self, mci: str) -> Counter[str]:
        """Return how many VMs of an MCI are in each state."""
        return Counter(one.state for one in await self.plugin.service.vms(NS, mci))

    def set_profile(self, profile: FaultProfile) -> None:
        """Let all regions behave in another way."""
        for one in PLACES:
            self.plugin.cloud.set_profile(ProviderRegion(one.provider, one.region), profile)


def everywhere(name: str, vms: int, providers: Sequence[str] = PROVIDERS) -> MciSpec:
    """Return an MCI with so many VMs in every region of these providers."""
    places = [one for one in PLACES if one.provider in providers]
    return MciSpec(name, f"uid-{name}", tuple(_group(one, vms) for one in places))


def _group(place: CloudConnection, vms: int) -> SubGroup:
    spec = f"{place.provider}+{REGIONS[place.provider][0]}+{SPECS[place.provider][0].name}"
    return SubGroup(place.name, vms, spec, IMAGES[place.provider][0].name, connection=place.name)


@asynccontextmanager
async def new_fleet(file: str | None = None, *, tick: float = 0.25, slots: int = SLOTS) -> AsyncIterator[Fleet]:
    """Open a fleet on a database, a new one if none is named."""
    calls: Counter[str] = Counter()
    with TemporaryDirectory(prefix="stateward-bench-") as folder:
        site = ProcessContext(Path(folder), random=Random(1), on_provider_call=lambda _, call: calls.update([call]))
        plugin = MciRuntime(site, cloud=SimulatedCloud(profile=CALM, chance=Random(1)), tick=tick, every=3600.0)
        kinds = [*plugin.kinds, token_kind(), quota_kind()]
        engine = Engine(store_at(file or new_file()), kinds, slots=slots, chance=Random(1))
        plugin.bind_engine(engine)
        async with engine, plugin.running(engine, works=True):
            fleet = Fleet(engine, plugin, calls)
            await fleet.connect()
            yield fleet
