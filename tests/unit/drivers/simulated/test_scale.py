"""A region holds many machines, cheaply."""

import tracemalloc

from stateward.drivers import CallAccepted, MachineAction, MachineHandle, MachineSpec, MachineState
from tests.unit.drivers.simulated.world import World, states

MANY = 10_000


def some_wants(number: int) -> list[MachineSpec]:
    return [MachineSpec(f"key-{one:032d}", f"vm-{one}", "t3.nano", "ubuntu22.04") for one in range(number)]


async def test_ten_thousand_machines_are_created_listed_and_suspended(world: World) -> None:
    wants = some_wants(MANY)
    assert all(isinstance(outcome, CallAccepted) for outcome in await world.driver.create(wants))
    assert len((await world.driver.observe()).machines) == MANY
    await world.driver.act(MachineAction.SUSPEND, [MachineHandle(want.key) for want in wants])
    assert set(states(await world.driver.observe()).values()) == {MachineState.SUSPENDED}
    assert world.calls == {"create": MANY // 100, "suspend": MANY // 100, "list": 2 * MANY // 1000}


async def test_a_machine_takes_few_bytes(world: World) -> None:
    wants = some_wants(10_000)
    tracemalloc.start()
    await world.driver.create(wants)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used / len(wants) < 300
