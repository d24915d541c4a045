"""Orders for containers that are interrupted at every call: nothing is doubled, nothing is left."""

from pathlib import Path

import pytest

from stateward.agents.messages import AgentOrder
from stateward.agents.site import SiteError
from stateward.domains.edge.sites import container_calls
from tests.unit.agents.container_world import (
    DATA,
    PORT,
    ContainerWorld,
    Fault,
    Killed,
    app,
    cluster,
    create,
    delete,
    part,
    update,
)

WEB, DB = part(count=2), part("db", ports=(PORT,), volumes=(DATA,))

STEPS: tuple[tuple[AgentOrder, dict[str, tuple[int, bool]], int, int], ...] = (
    # order                                             what the agent sees            containers, volumes
    (create("c1", 1, cluster(2)),                       {"c1": (1, True)},                        0, 0),
    (create("c1:shop", 2, app(WEB, DB)),                {"c1": (1, True), "c1:shop": (2, True)},  3, 1),
    (update("c1:shop", 3, app(part(count=3), DB)),      {"c1": (1, True), "c1:shop": (3, True)},  4, 1),
    (update("c1", 4, cluster(3)),                       {"c1": (4, True), "c1:shop": (3, True)},  4, 1),
    (update("c1:shop", 5, app(part())),                 {"c1": (4, True), "c1:shop": (5, True)},  1, 0),
    (delete("c1:shop", 5),                              {"c1": (4, True)},                        0, 0),
    (delete("c1", 4),                                   {},                                       0, 0),
)  # fmt: skip


async def check(world: ContainerWorld, step: int) -> None:
    """Check that all is as it should be after a step."""
    _, seen, containers, volumes = STEPS[step]
    assert await world.whole() == seen
    assert await world.left() == (containers, 1 if "c1" in seen else 0, volumes)
    assert len(set(await world.running())) == containers
    assert {one[1] for one in await world.running()} <= {str(seen.get("c1:shop", (0,))[0])}


async def prepare(folder: Path, step: int) -> ContainerWorld:
    world = ContainerWorld(folder)
    for order, *_ in STEPS[:step]:
        await world.execute(order)
    world.faulty.calls.clear()
    return world


async def count_calls(folder: Path, step: int) -> int:
    world = await prepare(folder, step)
    await world.execute(STEPS[step][0])
    await check_after(world, step)
    return len(world.faulty.calls)


async def check_after(world: ContainerWorld, step: int) -> None:
    calls = len(world.faulty.calls)
    await check(world, step)
    del world.faulty.calls[calls:]


async def remove_all(world: ContainerWorld) -> None:
    """Delete the app and the cluster; nothing is left."""
    world.faulty.fault = None
    await world.execute(delete("c1:shop", 99))
    await world.execute(delete("c1", 99))
    assert await world.left() == (0, 0, 0)
    assert await world.whole() == {}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_calls, "RETRY_AFTER_S", 0.0)


@pytest.mark.parametrize("step", range(len(STEPS)))
@pytest.mark.parametrize("fault", [Fault.KILLED_BEFORE, Fault.KILLED_AFTER], ids=lambda one: one.name)
async def test_an_agent_that_is_killed_at_any_call_does_the_rest_when_it_is_asked_again(
    tmp_path: Path, step: int, fault: Fault
) -> None:
    for number in range(await count_calls(tmp_path / "count", step)):
        world = await prepare(tmp_path / str(number), step)
        world.faulty.fault = number, fault
        with pytest.raises(Killed):
            await world.execute(STEPS[step][0])
        world.faulty.fault = None
        world.restart()
        await world.site.observe()  # its inventory
        await world.execute(STEPS[step][0])
        await check(world, step)
        await remove_all(world)


@pytest.mark.parametrize("step", range(len(STEPS)))
async def test_an_engine_that_does_not_answer_for_a_moment_fails_no_order(tmp_path: Path, step: int) -> None:
    for number in range(await count_calls(tmp_path / "count", step)):
        for fault in (Fault.NO_ANSWER, Fault.DOWN):
            world = await prepare(tmp_path / f"{number}-{fault.name}", step)
            world.faulty.fault = number, fault
            await world.execute(STEPS[step][0])
            await check(world, step)
            await remove_all(world)


@pytest.mark.parametrize("step", range(1, len(STEPS)))
async def test_an_order_that_is_refused_at_any_call_can_be_undone(tmp_path: Path, step: int) -> None:
    order = STEPS[step][0]
    for number in range(await count_calls(tmp_path / "count", step)):
        world = await prepare(tmp_path / str(number), step)
        world.faulty.fault = number, Fault.REFUSED
        try:
            await world.execute(order)
        except SiteError as error:
            assert "refused to order" in str(error)  # noqa: PT017
        await remove_all(world)
