"""Requests and operations that meet: what a guard counts, what a start attaches, and what a maintenance remembers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
from msgspec.structs import replace

from stateward.domains.ovc import node_handlers
from stateward.domains.ovc.errors import HasRunning, LastNode
from stateward.domains.ovc.machine_handlers import OvcVmHandlers
from stateward.domains.ovc.model import node_seen, vm_seen
from stateward.domains.ovc.nodes.disk_store import NoDiskStore
from stateward.domains.ovc.nodes.driver_node import DriverNode
from stateward.domains.ovc.nodes.port import NodeMachine
from stateward.engine import Accepted, Job, Request
from stateward.engine.accept.accept import accept
from stateward.engine.queries import list_all
from stateward.engine.work_errors import Fenced
from stateward.lifecycle import ADMIN, USER
from stateward.store import open_store
from stateward.store.port import Tx
from stateward.store.records import Key, Object, to_json
from tests.integration.domains.ovc.ovc_harness import ADA, Cloud, open_cloud
from tests.integration.postgres_helpers import looking_at, until_somebody_waits
from tests.servers import PostgresServer

T = TypeVar("T")
pytestmark = pytest.mark.asyncio(loop_scope="module")


class Gate:
    """Holds everything up that reaches it, until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def wait(self) -> None:
        self.reached.set()
        await self.opened.wait()


# --- what a guard counts ---------------------------------------------------------------------------------------------


async def decommissions(cloud: Cloud) -> list[Request]:
    """Return requests that would take all nodes out of service."""
    return [cloud.engine.request(cloud.ns, node, "decommission", actor=ADMIN) for node in cloud.nodes]


async def start_and_delete(cloud: Cloud, box: str) -> list[Request]:
    """Return a request that starts a VM, and a user's request that deletes what it is in."""
    vm = await cloud.vm()
    await cloud.did(vm, "stop")
    return [cloud.engine.request(cloud.ns, id_, action, actor=USER) for id_, action in ((vm, "start"), (box, "delete"))]


Requests = Callable[[Cloud], Awaitable[list[Request]]]
CASES = [
    pytest.param(decommissions, LastNode, id="both nodes leave"),
    pytest.param(lambda cloud: start_and_delete(cloud, cloud.box), HasRunning, id="cloudspace"),
    pytest.param(lambda cloud: start_and_delete(cloud, cloud.account), HasRunning, id="account"),
]


@pytest.mark.parametrize(("requests", "refusal"), CASES)
async def test_a_guard_counts_the_requests_before_it_in_its_transaction(
    cloud: Cloud, requests: Requests, refusal: type[Exception]
) -> None:
    batch = await requests(cloud)
    verdicts = await cloud.engine.store.transact(partial(accept, kinds=cloud.engine.kinds, requests=batch))
    assert [type(one) for one in verdicts] == [Accepted, refusal]


@pytest.fixture
async def two_clouds(postgres_server: PostgresServer, tmp_path: Path) -> AsyncIterator[tuple[Cloud, Cloud, Any]]:
    """Two engines with their own stores on one PostgreSQL, and a connection that observes the server."""
    dsn = postgres_server.new_migrated_database()
    async with AsyncExitStack() as stack:
        clouds = [
            await stack.enter_async_context(open_cloud(open_store(dsn), tmp_path / name, works=name == "one"))
            for name in ("one", "two")
        ]
        await clouds[0].create_base_objects()
        yield *clouds, await stack.enter_async_context(looking_at(dsn))
    postgres_server.drop_later(dsn)


@pytest.mark.parametrize(("requests", "refusal"), CASES)
@pytest.mark.asyncio(loop_scope="function")
async def test_a_guard_counts_what_another_process_is_committing(
    two_clouds: tuple[Cloud, Cloud, Any],
    requests: Requests,
    refusal: type[Exception],
) -> None:
    first, second, server = two_clouds
    earlier, later = await requests(first)
    gate, store = Gate(), first.engine.store

    async def commit_later(tx: Tx, decide: Callable[[Tx], Awaitable[T]]) -> T:
        result = await decide(tx)
        await gate.wait()
        return result

    function = partial(accept, kinds=first.engine.kinds, requests=[earlier])
    accepting = asyncio.create_task(store.transact(partial(commit_later, decide=function)))
    await gate.reached.wait()
    refused = asyncio.create_task(second.engine.submit(later))
    waiting = asyncio.create_task(until_somebody_waits(server))
    await asyncio.wait([waiting, refused], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    gate.opened.set()
    assert isinstance((await accepting)[0], Accepted)
    with pytest.raises(refusal):
        await refused


# --- what a start attaches -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["delete", "destroy"])
async def test_a_machine_starts_with_a_disk_whose_removal_waits_behind_the_start(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    vm = await cloud.vm()
    disk = await cloud.attached(vm)
    await cloud.did(vm, "stop")
    gate, build_machine, started = Gate(), OvcVmHandlers._machine, list[NodeMachine]()

    async def build_later(handlers: OvcVmHandlers, *args: Any) -> NodeMachine:
        await gate.wait()
        started.append(await build_machine(handlers, *args))
        return started[-1]

    monkeypatch.setattr(OvcVmHandlers, "_machine", build_later)
    cloud.gates.close("start")
    starting = await cloud.ask(vm, "start")
    await gate.reached.wait()
    removal = await cloud.ask(disk, action)
    gate.opened.set()
    await cloud.gates.wait_for_arrival("start")
    await cloud.engine.cancel(cloud.ns, removal.op.id)
    cloud.gates.open("start")
    assert (await cloud.ended(starting)).status == "succeeded"
    assert await cloud.states(vm, disk) == ["RUNNING", "ASSIGNED"]
    assert [one.disk for one in started[0].disks] == [cloud.boot_disk(vm), disk]


# --- what a maintenance remembers ------------------------------------------------------------------------------------


async def on_first_node(cloud: Cloud, number: int) -> list[str]:
    """Create VMs, and have them on the first node."""
    vms = await cloud.vms(number)
    for vm in vms:
        if await cloud.node_of(vm) != cloud.nodes[0]:
            await cloud.did(vm, "migrate", ADA, node=cloud.nodes[0])
    return vms


async def test_enabling_a_node_in_service_starts_what_a_cancelled_maintenance_has_stopped(cloud: Cloud) -> None:
    node = cloud.nodes[0]
    stopped, slow = await on_first_node(cloud, 2)
    cloud.gates.close(f"stop:{slow}")
    accepted = await cloud.ask(node, "maintenance", ADA, vmaction="stop")
    await cloud.until_state(stopped, "HALTED")
    await cloud.engine.cancel(cloud.ns, accepted.op.id)
    cloud.gates.open(f"stop:{slow}")
    assert (await cloud.ended(accepted)).status != "succeeded"
    assert await cloud.state(node) == "ENABLED"
    assert node_seen(await cloud.get(node)).away[stopped].how == "stop"
    await cloud.did(node, "enable", ADA)
    assert await cloud.states(node, stopped, slow) == ["ENABLED", "RUNNING", "RUNNING"]
    assert node_seen(await cloud.get(node)).away == {}


async def test_a_machine_that_its_user_stops_just_before_the_maintenance_does_stays_stopped(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = cloud.nodes[0]
    vm, other = await on_first_node(cloud, 2)
    listings = 0

    async def stop_between(*args: Any) -> AsyncIterator[Object]:
        nonlocal listings
        listings += 1
        if listings == 2:  # both were chosen in the first one
            await cloud.did(vm, "stop")
        async for record in list_all(*args):
            yield record

    monkeypatch.setattr(node_handlers, "list_all", stop_between)
    await cloud.did(node, "maintenance", ADA, vmaction="stop")
    assert list(node_seen(await cloud.get(node)).away) == [other]
    await cloud.did(node, "enable", ADA)
    assert await cloud.states(vm, other) == ["HALTED", "RUNNING"]


# --- a migration of two workers --------------------------------------------------------------------------------------


async def test_a_worker_that_has_lost_a_migration_does_not_stop_it(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm = await cloud.get(await cloud.vm())
    (other,) = set(cloud.nodes) - {vm_seen(vm).node}
    stopped: list[str] = []

    async def stop_moving(_node: DriverNode, key: str, *_: object) -> bool:
        stopped.append(key)
        return False

    class LostJob:
        """A job whose operation another worker has by now, which its next write finds out."""

        ns, object, key, origin = vm.ns, vm.id, Key(vm.ns, "lost-operation"), vm.state
        claim = SimpleNamespace(object=replace(vm, seen=to_json(replace(vm_seen(vm), to=other))))

        async def progress(self, _text: str) -> None:
            raise Fenced(self.key.id)

    monkeypatch.setattr(DriverNode, "stop_moving", stop_moving)
    cloud.gates.fail_at("move")
    with pytest.raises(Fenced):
        await OvcVmHandlers(cloud.plugin.nodes, NoDiskStore())._migrate(cast("Job", LostJob()))
    assert stopped == []
