"""The volumes of systems on nodes go with their systems, also from nodes that were away, with simulated agents."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from stateward.domains.systems.lifecycle import INSTANCE, NODE
from stateward.domains.systems.nodes import node_hub, node_volumes
from stateward.domains.systems.nodes.node_model import NodeStatus, node_status
from stateward.domains.systems.nodes.node_records import save_seen, unit_of_work
from stateward.store.filters import Page, Selector
from stateward.store.port import Store, Tx
from stateward.store.records import Key
from tests.integration.domains.systems.conftest import NS
from tests.integration.domains.systems.simulated_nodes import SimulatedNodes, simulated_nodes
from tests.integration.domains.systems.test_node_reads import listings
from tests.waiting import until

WEB = "services: {web: {image: shop:1, volumes: {data: /data}}}"


@pytest.fixture
async def nodes(
    new_store: Callable[[], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SimulatedNodes]:
    monkeypatch.setattr(node_hub, "RESEND_S", 0.1)
    async with simulated_nodes(new_store(), tmp_path) as opened:
        await opened.join("a")
        assert (await opened.deploy(WEB)).error is None
        opened.nodes["a"].site.volumes.add("other")
        assert opened.nodes["a"].site.volumes == {"shop", "other"}
        yield opened


async def delete_shop(nodes: SimulatedNodes) -> None:
    assert (await nodes.ended(await nodes.actions.delete("shop"))).error is None


async def test_a_deletion_has_removed_the_volumes_on_a_node_that_is_connected(nodes: SimulatedNodes) -> None:
    await delete_shop(nodes)
    assert nodes.nodes["a"].site.volumes == {"other"}


async def test_a_node_that_returns_removes_old_volumes_before_a_system_of_the_same_name_gets_there(
    nodes: SimulatedNodes,
) -> None:
    node = nodes.nodes["a"]
    await nodes.lose("a")
    node.site.orders.clear()  # the end of its lease
    await delete_shop(nodes)
    await nodes.ended(await nodes.actions.create("shop", "nodes"))
    assert node.site.volumes == {"shop", "other"}
    node.connect(nodes)
    await until(lambda: nodes.is_node("a", "ready"))
    assert (await nodes.deploy(WEB)).error is None
    assert node.site.had_volumes == [False, False]


async def test_volumes_that_a_broken_engine_keeps_are_removed_later_and_a_system_of_the_same_name_waits_for_that(
    nodes: SimulatedNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_volumes, "WAIT_S", 0.1)
    site = nodes.nodes["a"].site
    site.is_engine_down = True
    await delete_shop(nodes)
    assert site.volumes == {"shop", "other"}
    await nodes.ended(await nodes.actions.create("shop", "nodes"))
    begun = asyncio.create_task(nodes.deploy(WEB))

    await until(lambda: nodes.engine.store.reader.list_objects(Selector(NS, INSTANCE.kind), Page(None, 1)))
    site.is_engine_down = False
    assert (await begun).error is None
    assert site.had_volumes == [False, False]
    assert site.volumes == {"shop", "other"}


async def restart(nodes: SimulatedNodes, *, has_engine: bool) -> None:
    """Start the agent of the node again, with or without its container engine."""
    node = nodes.nodes["a"]
    node.cut()
    await node.stop()
    await until(lambda: nodes.is_disconnected("a"))
    node.connect(nodes, has_engine=has_engine)

    await until(lambda: nodes.is_disconnected("a"), lambda disconnected: not disconnected)


async def test_an_agent_that_ran_without_its_engine_for_a_while_removes_the_volumes_of_systems_deleted_meanwhile(
    nodes: SimulatedNodes,
) -> None:
    await restart(nodes, has_engine=False)
    await delete_shop(nodes)
    await nodes.ended(await nodes.actions.create("shop", "nodes"))
    await restart(nodes, has_engine=True)
    assert (await nodes.deploy(WEB)).error is None
    assert nodes.nodes["a"].site.had_volumes == [False, False]


async def test_a_node_that_is_registered_again_removes_old_volumes_and_its_former_connections_do_not_count(
    nodes: SimulatedNodes,
) -> None:
    node = nodes.nodes["a"]
    await nodes.lose("a")
    node.site.orders.clear()  # the end of its lease
    await delete_shop(nodes)
    former = node_status(await nodes.node_actions.node("a"))
    await nodes.node_actions.act("a", "delete")
    await nodes.node_actions.register("a", {})
    status = node_status(await nodes.node_actions.node("a"))
    assert status == NodeStatus(former.notify, deleted_systems=("shop",), systems=(), has_had_engine=True)
    await nodes.ended(await nodes.actions.create("shop", "nodes"))
    node.connect(nodes)
    await until(lambda: nodes.is_node("a", "ready"))
    assert (await nodes.deploy(WEB)).error is None
    assert node.site.had_volumes == [False, False]


async def test_a_deletion_is_noted_only_with_nodes_that_had_a_container_of_the_system(
    nodes: SimulatedNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    await nodes.join("b")
    assert node_status(await nodes.node_actions.node("a")).systems == ("shop",)
    found = listings(nodes.engine, monkeypatch)
    await delete_shop(nodes)
    assert [one.event for one in await nodes.engine.history(NS, "a")].count("system deleted") == 1
    assert "system deleted" not in [one.event for one in await nodes.engine.history(NS, "b")]
    for name in "ab":
        status = node_status(await nodes.node_actions.node(name))
        assert (status.systems, status.deleted_systems) == ((), ())
    assert len([one for one in found if one.kind == NODE.kind and one.states is None]) == 1  # however long it waits


async def test_a_node_of_an_earlier_version_may_have_volumes_of_all_systems_that_exist(nodes: SimulatedNodes) -> None:
    async def forget(tx: Tx) -> None:
        async with unit_of_work(tx, [Key(NS, "a")]) as uow:
            found = uow.objects[Key(NS, "a")]
            save_seen(uow, found, replace(node_status(found), systems=None))

    await nodes.engine.store.transact(forget)
    await restart(nodes, has_engine=True)
    assert node_status(await nodes.node_actions.node("a")).systems == ("shop",)
    await nodes.engine.store.transact(forget)
    await delete_shop(nodes)
    assert nodes.nodes["a"].site.volumes == {"other"}
