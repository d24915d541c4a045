"""What is read to serve nodes does not grow with their number."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from stateward.domains.systems.lifecycle import INSTANCE, NODE
from stateward.domains.systems.nodes import node_hub
from stateward.domains.systems.nodes.node_watch import NodeWatch
from stateward.engine import Engine
from stateward.store.filters import Page, Selector
from stateward.store.port import Store
from stateward.store.records import Object
from tests.integration.domains.systems.simulated_nodes import SimulatedNodes, simulated_nodes
from tests.integration.domains.systems.test_node_records import Nodes, nodes

__all__ = ["nodes"]


def listings(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[Selector]:
    """Return the list that gets the selector of each listing from now on."""
    reader, found = engine.store.reader, list[Selector]()
    list_objects = reader.list_objects

    async def counting(selector: Selector, page: Page) -> list[Object]:
        found.append(selector)
        return await list_objects(selector, page)

    monkeypatch.setattr(reader, "list_objects", counting)
    return found


def of_many_services(found: list[Selector]) -> list[Selector]:
    """Return the listings of instances, except those of one service."""
    return [one for one in found if one.kind == INSTANCE.kind and one.parent is None]


@pytest.fixture
async def connected(
    new_store: Callable[[], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SimulatedNodes]:
    monkeypatch.setattr(node_hub, "RESEND_S", 3600.0)
    async with simulated_nodes(new_store(), tmp_path) as opened:
        await opened.join(*"abcde")
        assert (await opened.deploy("services: {web: {command: run, instances: 10}}")).error is None
        yield opened


async def test_the_orders_due_to_all_nodes_are_found_by_one_listing(
    connected: SimulatedNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = listings(connected.engine, monkeypatch)
    await connected.plugin.nodes.hub.resend()
    assert len(of_many_services(found)) == 1


async def test_what_all_draining_nodes_wait_for_is_found_by_one_listing(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {await nodes.place(f"r1-{number}") for number in range(2)} == {"a", "b"}
    for name in "ab":
        await nodes.actions.act(name, "drain")
    watch = NodeWatch(nodes.engine, 60.0, 1.0, lambda: 0.0)
    await watch.look()
    found = listings(nodes.engine, monkeypatch)
    await watch.look()
    assert len(of_many_services(found)) == 1


async def test_a_check_of_a_service_reads_the_nodes_of_its_instances_only(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    await nodes.place("r1-0")
    found = listings(nodes.engine, monkeypatch)
    assert (await nodes.seen())["r1-0"].host == "10.0.0.1"
    assert NODE.kind not in {one.kind for one in found}
