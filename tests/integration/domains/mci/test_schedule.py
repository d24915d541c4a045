"""How long it takes under the limits, in virtual time: nothing but the calls to the providers takes any.

So what is measured here is the schedule itself: whether a slot is ever left empty, and whether regions take turns.
"""

from math import ceil

import pytest
from msgspec.structs import replace

from stateward.domains.mci.deployment_records import limit_of
from stateward.domains.mci.model import CloudConnection, SubGroup
from stateward.drivers import ProviderRegion
from stateward.drivers.simulated import CALM, IMAGES, REGIONS, SPECS
from stateward.store.records import Status
from tests.integration.domains.mci.conftest import ANN, NS, mci
from tests.integration.domains.mci.virtual_world import World, live

CALL, CALLS_EACH = 0.05, 2
"""Each VM takes two calls of so many seconds: the deed, and the look that shows its end."""

TARGET = 1.15
EACH, VMS = 8, 45


def places(providers: tuple[str, ...]) -> list[CloudConnection]:
    return [
        CloudConnection(f"{name}-r{number}", name, f"r{number}") for name in providers for number in range(1, EACH + 1)
    ]


def group(place: CloudConnection) -> SubGroup:
    spec = f"{place.provider}+{REGIONS[place.provider][0]}+{SPECS[place.provider][0].name}"
    return SubGroup(place.name, VMS, spec, IMAGES[place.provider][0].name, connection=place.name)


def ideal(providers: tuple[str, ...]) -> float:
    """Return how many seconds the slowest provider needs at best: its regions take turns, and no slot is ever empty."""
    return max(_rounds(one) for one in providers) * CALL * CALLS_EACH


def _rounds(provider: str) -> int:
    limit = limit_of(provider)
    each = ceil(VMS / limit.vms)
    return max(each, ceil(EACH * each / limit.regions))


@pytest.mark.parametrize("providers", [("ncp",), ("aws", "ncp")], ids="-".join)
def test_a_suspend_over_many_regions_keeps_to_the_ideal_schedule(providers: tuple[str, ...]) -> None:
    async def course(world: World) -> None:
        service, wanted = world.harness.service, places(providers)
        for one in wanted:
            await service.add_connection(one, ANN)
        assert (await world.harness.created(mci("m1", *map(group, wanted)))).status is Status.SUCCEEDED
        for one in wanted:
            world.cloud.set_profile(ProviderRegion(one.provider, one.region), replace(CALM, latency=CALL))
        begun = world.clock()
        verdict = await service.control(NS, "m1", "suspend", ANN)
        assert (await world.harness.ended(verdict.whole)).status is Status.SUCCEEDED
        taken = world.clock() - begun
        assert taken <= TARGET * ideal(providers)

    live(1, CALM, course)
