"""The queuer: queues appear on first use, are drained in order, and are gone."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from stateward.domains.ovc.errors import QueueStopping
from stateward.store.port import Store
from tests.integration.domains.ovc.ovc_harness import ADA, Cloud, open_cloud
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_queue_appears_on_first_use_and_is_gone_when_it_is_drained(cloud: Cloud) -> None:
    vm, queuer = await cloud.vm(), cloud.service.queuer
    assert not (await queuer.queue(cloud.ns, vm)).exists
    cloud.gates.close("pause")
    pausing = await cloud.ask(vm, "pause")
    queue = await queuer.queue(cloud.ns, vm)
    assert (queue.exists, [one.id for one in queue.operations]) == (True, [pausing.op.id])
    cloud.gates.open("pause")
    await cloud.ended(pausing)
    assert not (await queuer.queue(cloud.ns, vm)).exists


async def test_stopping_a_queue_lets_it_drain_and_refuses_what_comes_meanwhile(cloud: Cloud) -> None:
    vm, queuer = await cloud.vm(), cloud.service.queuer
    disk = await cloud.attached(vm)
    cloud.gates.close("pause")
    pausing = await cloud.ask(vm, "pause")
    deleting = await cloud.ask(disk, "delete")
    stopping = asyncio.create_task(queuer.stop(cloud.ns, vm))

    await until(lambda: queuer.queue(cloud.ns, vm), lambda queue: queue.stopping)
    other = await cloud.disk()
    for id_, action in ((disk, "restore"), (vm, "attach disk")):
        with pytest.raises(Exception, match="Cannot execute action at this time"):
            await cloud.ask(id_, action, disk=other)
    cloud.gates.open("pause")
    await stopping
    assert [(await cloud.operation(one.op.id)).status for one in (pausing, deleting)] == ["succeeded"] * 2
    assert not (await queuer.queue(cloud.ns, vm)).exists
    await cloud.did(vm, "resume")  # a new queue


async def test_what_is_refused_is_told_that_the_queue_is_being_stopped(cloud: Cloud) -> None:
    vm, queuer = await cloud.vm(), cloud.service.queuer
    cloud.gates.close("move")
    migrating = await cloud.ask(vm, "migrate", ADA)
    stopping = asyncio.create_task(queuer.stop(cloud.ns, vm))

    await until(lambda: queuer.queue(cloud.ns, vm), lambda queue: queue.stopping)
    with pytest.raises(QueueStopping, match=f"queue of vm {vm} is being stopped"):
        await cloud.ask(vm, "pause")
    cloud.gates.open("move")
    await stopping
    assert (await cloud.operation(migrating.op.id)).status == "succeeded"


async def test_terminate_stops_all_queues_hidden_work_included(cloud: Cloud) -> None:
    one, other, third = [await cloud.vm() for _ in range(3)]
    cloud.gates.close("pause")
    cloud.gates.close("move")
    await cloud.ask(one, "pause")
    await cloud.ask(other, "migrate", ADA)
    queuer = cloud.service.queuer
    ending = asyncio.create_task(queuer.terminate(cloud.ns))

    for vm in (one, other):
        await until(partial(queuer.queue, cloud.ns, vm), lambda queue: queue.stopping)
    assert not ending.done()
    cloud.gates.open("pause")
    cloud.gates.open("move")
    assert await ending == 2
    assert await cloud.states(one, other, third) == ["PAUSED", "RUNNING", "RUNNING"]


async def test_different_objects_are_worked_on_side_by_side(cloud: Cloud) -> None:
    one, other = await cloud.vm(), await cloud.vm()
    cloud.gates.close(f"pause:{one}")
    held = await cloud.ask(one, "pause")
    await cloud.did(other, "pause")
    assert await cloud.states(one, other) == ["PAUSING", "PAUSED"]
    cloud.gates.open(f"pause:{one}")
    await cloud.ended(held)


async def test_what_stands_in_a_queue_is_done_after_a_restart(new_store: Callable[[], Store], tmp_path: Path) -> None:
    async with open_cloud(new_store(), tmp_path) as cloud:
        await cloud.create_base_objects()
        vm = await cloud.vm()
        simulated = cloud.simulated
    async with open_cloud(new_store(), tmp_path, works=False, simulated=simulated) as cloud:
        pausing = await cloud.ask(vm, "pause")
        assert await cloud.state(vm) == "PAUSING"
    async with open_cloud(new_store(), tmp_path, simulated=simulated) as cloud:
        assert (await cloud.ended(pausing)).status == "succeeded"
        assert await cloud.state(vm) == "PAUSED"
