"""Drains of nodes whose services have nowhere to go, with simulated agents."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from stateward.domains.systems.backends.port import ServiceRef
from stateward.engine import Accepted
from stateward.store.filters import JournalFilter
from stateward.store.port import Store
from stateward.store.records import Status
from tests.integration.domains.systems.conftest import HOME, NS
from tests.integration.domains.systems.simulated_nodes import SIZE, SimulatedNodes, simulated_nodes
from tests.waiting import until

WEB = ServiceRef(HOME, "/web")
PLACED = """
node_pools: {main: {labels: {}, slots: 8}}
services: {web: {command: x, instances: 2, node_pool: main, resources: {memory: 100}, ROLLOUT}}
"""


@pytest.fixture
async def nodes(new_store: Callable[[], Store], tmp_path: Path) -> AsyncIterator[SimulatedNodes]:
    async with simulated_nodes(new_store(), tmp_path) as opened:
        yield opened


async def says(nodes: SimulatedNodes, drain: Accepted, text: str) -> bool:
    return text in [one.text for one in await nodes.engine.store.reader.progress_of(drain.op.key, 0)]


async def visited_states(nodes: SimulatedNodes) -> set[str | None]:
    found = await nodes.engine.store.reader.journal(0, 1_000, JournalFilter(ns=NS, object="shop:web"))
    return {one.target for one in found}


async def homes(nodes: SimulatedNodes) -> list[str]:
    return sorted(one.node or "" for one in await nodes.backend.instances(WEB) if one.ready)


async def is_settled(nodes: SimulatedNodes, *wanted: str) -> bool:
    """Tell whether the instances are on these nodes, and their service is stable."""
    return await homes(nodes) == list(wanted) and (await nodes.engine.record(NS, "shop:web")).state == "stable"


@pytest.mark.parametrize("rollout", ["max_surge: 1", "max_surge: 0, max_unavailable: 1"])
async def test_services_without_room_elsewhere_stay_and_move_when_there_is_room(
    nodes: SimulatedNodes, rollout: str
) -> None:
    await nodes.join("a")
    assert (await nodes.deploy(PLACED.replace("ROLLOUT", f"rollout: {{{rollout}}}"))).status is Status.SUCCEEDED
    before, states = nodes.started(), await visited_states(nodes)
    drain = await nodes.node_actions.act("a", "drain")
    room = "no node has room: asked is one of 8 slots of its pool on each node, 100 MiB"
    stays = f"service shop:web stays: {room}"
    await until(lambda: says(nodes, drain, f"2 instances are left; {stays}; no node takes instances"))
    assert (nodes.started(), await visited_states(nodes)) == (before, states)
    await nodes.join("b", capacity=replace(SIZE, slots=1))
    await until(lambda: is_settled(nodes, "a", "b"))
    await until(lambda: says(nodes, drain, f"1 instance is left; {stays}; b has 0 slots, 4 cores, 924 MiB"))
    assert await is_settled(nodes, "a", "b")
    await nodes.join("c")
    assert (await nodes.ended(drain)).status is Status.SUCCEEDED
    await until(lambda: is_settled(nodes, "b", "c"))
    assert "failed" not in await visited_states(nodes)


async def test_a_drain_that_is_cancelled_has_changed_nothing(nodes: SimulatedNodes) -> None:
    await nodes.join("a")
    await nodes.deploy(PLACED.replace(", ROLLOUT", ""))
    before, states = nodes.started(), await visited_states(nodes)
    drain = await nodes.node_actions.act("a", "drain")
    await until(lambda: has_progress(nodes, drain))
    await nodes.node_actions.act("a", "uncordon")
    assert (await nodes.ended(drain)).status is Status.CANCELLED
    assert await is_settled(nodes, "a", "a")
    assert (nodes.started(), await visited_states(nodes)) == (before, states)


async def has_progress(nodes: SimulatedNodes, drain: Accepted) -> bool:
    return bool(await nodes.engine.store.reader.progress_of(drain.op.key, 0))
