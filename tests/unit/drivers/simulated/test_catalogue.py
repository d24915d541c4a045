"""What the simulated providers offer."""

import pytest

from stateward.drivers import CallRefused, RefusalReason, ResourceKind, TransientFailure
from stateward.drivers.port import CloudResource, MachineSpec
from stateward.drivers.simulated import IMAGES, REGIONS, SPECS, SimulatedImage, SimulatedSpec, spec_of
from tests.unit.drivers.simulated.world import World


@pytest.mark.parametrize("provider", list(REGIONS))
def test_every_provider_has_regions_sizes_and_images(provider: str) -> None:
    assert len(REGIONS[provider]) > 1
    assert len({spec.name for spec in SPECS[provider]}) == len(SPECS[provider]) > 1
    assert len({image.name for image in IMAGES[provider]}) == len(IMAGES[provider]) > 1
    assert all(spec.vcpu > 0 and spec.memory_gib > 0 and spec.cost > 0 for spec in SPECS[provider])


def test_a_size_is_found_by_its_name() -> None:
    assert spec_of("aws", "t3.nano") == SimulatedSpec("t3.nano", 2, 0.5, 0.0052)
    assert spec_of("aws", "none") is None
    assert spec_of("nobody", "t3.nano") is None


async def test_a_region_that_is_dead_cannot_say_what_it_has(world: World) -> None:
    world.behave(dead=True)
    assert isinstance(await world.driver.check("t3.nano", "ubuntu22.04"), TransientFailure)


async def test_what_is_registered_can_be_had(world: World) -> None:
    refusal = await world.driver.check("my.own", "my-image")
    assert isinstance(refusal, CallRefused)
    assert (refusal.why, "my.own" in refusal.message) == (RefusalReason.INVALID, True)
    world.cloud.register_spec("aws", SimulatedSpec("my.own", 1, 1.0, 0.1))
    world.cloud.register_image("aws", SimulatedImage("my-image", "own"))
    assert await world.driver.check("my.own", "my-image") is None
    assert SimulatedSpec("my.own", 1, 1.0, 0.1) in world.cloud.specs("aws")
    assert SimulatedImage("my-image", "own") in world.cloud.images("aws")


async def test_a_machine_among_parts_that_are_not_there_is_refused(world: World) -> None:
    want = MachineSpec("a", "a", "t3.nano", "ubuntu22.04", {ResourceKind.SUBNET: "subnet-none"})
    (outcome,) = await world.driver.create([want])
    assert getattr(outcome, "why", None) is RefusalReason.NOT_FOUND


async def test_who_brings_a_public_key_is_told_no_secret(world: World) -> None:
    made = await world.driver.ensure(
        CloudResource(ResourceKind.SSH_KEY, "k", "k", facts={"public_key": "ssh-ed25519 AAAA"})
    )
    assert getattr(made, "secret", None) == ""
