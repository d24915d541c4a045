"""Nodes on the server's host: no VM is larger than its node, and the VMs of a node together are not, either."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stateward.domains.ovc.errors import NoNode, NoOtherNode, NoRoom
from stateward.domains.ovc.guards import node_guard
from stateward.domains.ovc.lifecycle import VM
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.store.filters import Page, Selector
from stateward.store.records import Object
from tests.integration.domains.ovc.ovc_harness import ADA, Cloud, open_cloud
from tests.stores import fresh_store


@pytest.fixture(params=["sqlite", "postgres"])
async def cloud(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Cloud]:
    """A node with 100 MiB and 2 processors; its machines are simulated."""
    monkeypatch.setattr(node_guard, "host_mib", lambda: 100)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    async with open_cloud(fresh_store(request.param, request)(), tmp_path) as opened:
        nodes = opened.plugin.nodes
        nodes.factories = {**nodes.factories, "process": nodes.factories["simulated"]}
        yield await opened.create_base_objects(1, driver="process")


@pytest.mark.parametrize("size", ["1c101m", "3c8m", "large"])
async def test_a_machine_that_is_larger_than_every_node_is_refused_with_the_field(cloud: Cloud, size: str) -> None:
    with pytest.raises(BadInput, match="at most 2c100m") as refused:
        await cloud.vm(size=size)
    assert refused.value.field == "size"
    assert await cloud.engine.store.reader.list_objects(Selector(cloud.ns, VM.kind), Page(None, 10)) == []


async def test_machines_that_are_together_larger_than_their_node_are_refused_until_one_has_stopped(
    cloud: Cloud,
) -> None:
    first = await cloud.vm(size="small")
    with pytest.raises(NoRoom, match=r"size: .* needs 64 MiB"):
        await cloud.vm(size="small")
    await cloud.vm(size="1c36m")
    await cloud.did(first, "stop")
    await cloud.vm(size="small")
    with pytest.raises(NoRoom):
        await cloud.do(first, "start")


async def test_a_placement_reads_no_machine_without_power(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    running, halted, deleted = [await cloud.vm(size="1c20m") for _ in range(3)]
    await cloud.did(halted, "stop")
    await cloud.did(deleted, "delete")
    read, peek_selected = set[str](), UnitOfWork.peek_selected

    async def recorded(uow: UnitOfWork, chosen: Selector) -> list[Object]:
        found = await peek_selected(uow, chosen)
        read.update(one.id for one in found if one.kind == VM.kind)
        return found

    monkeypatch.setattr(UnitOfWork, "peek_selected", recorded)
    await cloud.did(halted, "start")
    assert read == {running}


async def test_of_two_machines_that_are_made_at_the_same_time_one_gets_the_last_memory(cloud: Cloud) -> None:
    made = await asyncio.gather(*(cloud.vm(size="small") for _ in range(2)), return_exceptions=True)
    assert sorted(isinstance(one, NoRoom) for one in made) == [False, True]


async def test_a_machine_does_not_move_to_a_node_that_has_no_room_and_starts_where_there_is_some(cloud: Cloud) -> None:
    first = await cloud.vm(size="small")
    with pytest.raises(NoOtherNode):
        await cloud.ask(first, "migrate", ADA)
    await cloud.node(driver="process")
    second = await cloud.vm(size="small")
    assert await cloud.node_of(first) != await cloud.node_of(second)
    with pytest.raises(NoRoom):
        await cloud.ask(first, "migrate", ADA)
    with pytest.raises(NoRoom):
        await cloud.ask(first, "migrate", ADA, node=await cloud.node_of(second))


async def test_a_cloudspace_without_a_node_is_refused_with_what_to_do(cloud: Cloud) -> None:
    nowhere = cloud.in_new_namespace()
    nowhere.account = await nowhere.new_account()
    with pytest.raises(NoNode, match=r"cloudspace \S+ needs a node, and none is ENABLED: an administrator must"):
        await nowhere.new_box()
