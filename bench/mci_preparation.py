"""Preparation of MCIs: 400 subgroups against 40 that use the same connections, until their VMs begin.

Subgroups of one connection share a network, a security group and a key, so further subgroups should cost little: their
sizes and images are asked about, and nothing more is created.
"""

import asyncio
from time import perf_counter

from bench.figures import Line, plain, ratio
from bench.loops import run
from bench.mci_fleet import ANN, NS, PLACES, new_fleet
from stateward.domains.mci.lifecycle import MciState
from stateward.domains.mci.model import MciSpec, SubGroup
from stateward.domains.mci.provider.key_pairs import with_pair
from stateward.drivers.simulated import IMAGES, REGIONS, SPECS
from stateward.store.port import Reader
from stateward.store.records import Key

FEW, MANY = len(PLACES), 400
TICK_S = 0.005


def report() -> list[Line]:
    """Measure and return lines to print."""
    few, many = run(prepared(FEW)), run(prepared(MANY))
    what = f"preparation of {MANY} subgroups at {len(PLACES)} connections"
    return [
        ratio(what, many / few, f"that of {FEW} subgroups"),
        plain(what, many * 1e3, "ms until the VMs begin"),
    ]


async def prepared(subgroups: int) -> float:
    """Return how many seconds it takes from the request until the VMs of an MCI begin."""
    async with new_fleet() as fleet:
        mci, _ = with_pair(MciSpec("all", "uid-all", tuple(_group(number) for number in range(subgroups))))
        began = perf_counter()
        accepted = await fleet.plugin.service.create(NS, mci, ANN)
        while await _state(fleet.engine.store.reader, mci.name) in (MciState.PREPARING, MciState.PREPARED):
            await asyncio.sleep(TICK_S)
        seconds = perf_counter() - began
        await fleet.engine.wait_record(NS, accepted.op.id)
    return seconds


async def _state(reader: Reader, name: str) -> str:
    found = await reader.object(Key(NS, name))
    assert found is not None
    return found.state


def _group(number: int) -> SubGroup:
    place, specs = PLACES[number % len(PLACES)], SPECS[PLACES[number % len(PLACES)].provider]
    spec = specs[number // len(PLACES) % len(specs)].name
    name = f"{place.provider}+{REGIONS[place.provider][0]}+{spec}"
    return SubGroup(f"g{number}", 1, name, IMAGES[place.provider][0].name, connection=place.name)
