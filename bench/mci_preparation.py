"""Preparation of MCIs: 400 subgroups against 40 that use the same connections, until their VMs begin.

Subgroups of one connection share a network, a security group and a key, so further subgroups should cost little: their
sizes and images are asked about, and nothing more is created. The same 400 subgroups with resources that exist already
show what the rest of the request costs, such as the transaction that stores it.
"""

import asyncio
from time import perf_counter, process_time

from msgspec import Struct
from msgspec.structs import replace

from bench.figures import Line, plain, ratio
from bench.loops import run
from bench.mci_fleet import ANN, NS, PLACES, Fleet, new_fleet
from stateward.domains.mci.lifecycle import MCI, MciState
from stateward.domains.mci.model import MciSpec, SubGroup, vm_of
from stateward.domains.mci.provider.key_pairs import with_pair
from stateward.drivers.simulated import IMAGES, REGIONS, SPECS
from stateward.store.filters import Selector
from stateward.store.port import Reader

FEW, MANY = len(PLACES), 400
TICK_S = 0.005
BEFORE_VMS = {(MCI.kind, state) for state in (MciState.PREPARING, MciState.PREPARED)}


class Preparation(Struct, frozen=True):
    """How long a preparation took, and the processor's time."""

    seconds: float
    used: float


def report() -> list[Line]:
    """Measure and return lines to print."""
    few, _ = run(prepared(FEW))
    many, bare = run(prepared(MANY))
    what = f"preparation of {MANY} subgroups at {len(PLACES)} connections"
    return [
        ratio(what, many.seconds / few.seconds, f"that of {FEW} subgroups"),
        ratio(what, many.seconds / bare.seconds, "that of subgroups whose resources exist"),
        plain(what, many.seconds * 1e3, "ms until the VMs begin"),
        plain(what, many.used * 1e3, "ms of a processor until the VMs begin"),
    ]


async def prepared(subgroups: int) -> tuple[Preparation, Preparation]:
    """Prepare an MCI, and one whose subgroups name the resources of the first."""
    groups = tuple(_group(number) for number in range(subgroups))
    async with new_fleet() as fleet:
        mci, _ = with_pair(MciSpec("all", "uid-all", groups))
        first = await _measure(fleet, mci)
        named = [await _with_resources(fleet, one) for one in groups]
        return first, await _measure(fleet, MciSpec("named", "uid-named", tuple(named)))


async def _measure(fleet: Fleet, mci: MciSpec) -> Preparation:
    """Return how long it takes from the request until the VMs of an MCI begin."""
    began, used = perf_counter(), process_time()
    accepted = await fleet.plugin.service.create(NS, mci, ANN)
    while await _is_preparing(fleet.engine.store.reader):
        await asyncio.sleep(TICK_S)
    course = Preparation(perf_counter() - began, process_time() - used)
    await fleet.engine.wait_record(NS, accepted.op.id)
    return course


async def _is_preparing(reader: Reader) -> bool:
    """Tell whether an MCI is in preparation; its record, of 400 subgroups, is not read."""
    return not (await reader.count_states(Selector(NS, MCI.kind))).keys().isdisjoint(BEFORE_VMS)


async def _with_resources(fleet: Fleet, group: SubGroup) -> SubGroup:
    """Return a subgroup that names the resources of the first MCI's VM."""
    vm = vm_of(await fleet.plugin.service.vm(NS, "all", f"{group.name}-1"))
    return replace(group, network=vm.network, subnet=vm.subnet, groups=vm.groups, key=vm.key)


def _group(number: int) -> SubGroup:
    place, specs = PLACES[number % len(PLACES)], SPECS[PLACES[number % len(PLACES)].provider]
    spec = specs[number // len(PLACES) % len(specs)].name
    name = f"{place.provider}+{REGIONS[place.provider][0]}+{spec}"
    return SubGroup(f"g{number}", 1, name, IMAGES[place.provider][0].name, connection=place.name)
