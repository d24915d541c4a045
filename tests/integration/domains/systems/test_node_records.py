"""The transactions on nodes, on both stores: what is fenced, what is placed, and what a loss leaves."""

# real time: the leases of agents are measured by a clock that the tests set
import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from copy import copy
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from stateward.agents.connection import AgentConnection, ConnectionId
from stateward.agents.inprocess import ControllerEnd
from stateward.agents.messages import Goodbye, Hello, InventoryItem, OrderAction, SiteBackend, StatusMessage, Welcome
from stateward.agents.node_messages import FoundImage, ImageAnswer, SecretRequest, WantedImage
from stateward.agents.site import SiteCapacity
from stateward.domains.systems.backends.nodes_backend import NodesBackend
from stateward.domains.systems.backends.port import (
    InstancePhase,
    InstanceSpec,
    ServiceInstance,
    ServiceRef,
    SystemRef,
)
from stateward.domains.systems.definition import Resources, SecretRef, Service
from stateward.domains.systems.errors import ImageRefused, ImagesNotFound, NoContainerEngine, NodesFull
from stateward.domains.systems.nodes.node_actions import NodeActions
from stateward.domains.systems.nodes.node_hub import due_order
from stateward.domains.systems.nodes.node_images import NodeImages
from stateward.domains.systems.nodes.node_instances import NodeInstances
from stateward.domains.systems.nodes.node_model import instance_id, node_status, placed_instance
from stateward.domains.systems.nodes.node_records import (
    AgentInventory,
    InstanceReport,
    NodeHello,
    connect_nodes,
    lose_node,
    mark_ordered,
    record_reports,
    renew_leases,
    sync_node,
)
from stateward.domains.systems.nodes.node_secrets import NodeSecrets
from stateward.domains.systems.nodes.node_watch import NodeWatch
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.engine import Engine
from stateward.engine.alerts import alerts_of
from stateward.lifecycle import ADMIN
from stateward.schemas.caller import Caller
from stateward.store.port import Store
from stateward.store.records import Key, Object, to_json
from tests.waiting import until

NS = "default"
WEB = ServiceRef(SystemRef(NS, "shop"), "/web")
SIZE = SiteCapacity(2.0, 2**30, 3, "10.0.0.1")


class Nodes:
    """A store with nodes, without any agent."""

    def __init__(self, engine: Engine, backend: NodesBackend) -> None:
        self.engine, self.backend = engine, backend
        self.actions = NodeActions(engine, NS, Caller(ADMIN, "ann"))

    async def hello(
        self,
        node: str,
        installation: str = "one",
        *,
        lease: float = 10.0,
        takes_secrets: bool = False,
        has_engine: bool = False,
    ) -> int:
        """Connect an agent; returns its notify id, or 0 if it is refused."""
        backends = tuple(SiteBackend) if has_engine else (SiteBackend.PROCESS,)
        agent = Hello(
            "1.0",
            installation=installation,
            cores=SIZE.cores,
            memory=SIZE.memory,
            slots=SIZE.slots,
            address=SIZE.address,
            backends=backends,
        )
        hello = NodeHello(Key(NS, node), agent, lease, takes_secrets=takes_secrets)
        (answer,) = await self.engine.store.transact(lambda tx: connect_nodes(tx, [hello]))
        return answer.notify if isinstance(answer, Welcome) else 0

    async def sync(self, node: str, notify: int, *items: InventoryItem) -> str:
        """Send an inventory; returns why it does not count."""
        inventory = AgentInventory(ConnectionId(Key(NS, node), notify), {one.name: one for one in items})
        return await self.engine.store.transact(lambda tx: sync_node(tx, self.engine.kinds, inventory))

    async def renew(self, node: str, notify: int) -> bool:
        """Renew a lease; returns whether the heartbeat may be answered."""
        one = ConnectionId(Key(NS, node), notify)
        return (await self.engine.store.transact(lambda tx: renew_leases(tx, [one])))[0]

    async def lose(self, node: str, renewals: int | None = None) -> bool:
        """Declare a node lost, by its present number of renewals or another one."""
        known = node_status(await self.actions.node(node)).renewals if renewals is None else renewals
        return await self.engine.store.transact(lambda tx: lose_node(tx, self.engine.kinds, Key(NS, node), known))

    async def report(self, notify: int, name: str, seen: ServiceInstance | None, number: int = 0) -> bool:
        """Report an instance from its node; returns whether that counted."""
        found = await self.stored(name)
        placed = placed_instance(found)
        where = ConnectionId(Key(NS, placed.node), notify)
        one = InstanceReport(where, found.id, number or placed.number, seen)
        return (await self.engine.store.transact(lambda tx: record_reports(tx, self.engine.kinds, [one])))[0]

    async def stored(self, name: str) -> Object:
        """Return an instance."""
        found = await self.engine.store.reader.object(Key(NS, instance_id(WEB, name)))
        assert found is not None
        return found

    async def place(self, name: str, service: Service = Service(command=("run",)), *, once: bool = False) -> str:  # noqa: B008
        """Place an instance; returns its node."""
        await self.backend.start(WEB, InstanceSpec(name, "r1", service, run_once=once))
        return placed_instance(await self.stored(name)).node

    async def seen(self) -> dict[str, ServiceInstance]:
        """Return the instances as the backend shows them."""
        return {one.name: one for one in await self.backend.instances(WEB)}


@pytest.fixture
async def nodes(new_store: Callable[[], Store], tmp_path: Path) -> AsyncIterator[Nodes]:
    backend = NodesBackend(tmp_path / "addresses", Random(1))
    plugin = SystemsRuntime({"nodes": backend})
    engine = Engine(new_store(), plugin.kinds)
    plugin.bind_engine(engine)
    async with engine:
        opened = Nodes(engine, backend)
        for name in ("a", "b"):
            await opened.actions.register(name, {"zone": name})
            assert await opened.sync(name, await opened.hello(name)) == ""
        yield opened


UP = ServiceInstance("r1-0", "r1", InstancePhase.UP, ready=True, port=8000)


async def test_messages_of_an_older_connection_or_placement_do_not_count(nodes: Nodes) -> None:
    node = await nodes.place("r1-0")
    old = node_status(await nodes.actions.node(node)).notify
    new = await nodes.hello(node)
    assert new == old + 1
    assert not await nodes.renew(node, old)
    assert not await nodes.report(old, "r1-0", UP)
    assert "newer connection" in await nodes.sync(node, old)
    assert await nodes.sync(node, new) == ""
    assert await nodes.renew(node, new)
    assert not await nodes.report(new, "r1-0", UP, number=1)
    assert await nodes.report(new, "r1-0", UP)
    assert not await nodes.report(new, "r1-0", UP)  # nothing new
    assert (await nodes.seen())["r1-0"].ready
    assert not await nodes.report(new, "r1-0", None)  # nobody has told it to stop


async def test_a_proxy_forwards_nothing_to_a_stopped_instance_even_if_an_older_read_ends_later(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    await nodes.place("r1-0")
    node = placed_instance(await nodes.stored("r1-0")).node
    assert await nodes.report(node_status(await nodes.actions.node(node)).notify, "r1-0", UP)
    read, has_read, resume = nodes.backend._placed, asyncio.Event(), asyncio.Event()

    async def read_slowly(ref: ServiceRef) -> tuple[list[Object], dict[str, Object]]:
        found = await read(ref)
        if not has_read.is_set():
            has_read.set()
            await resume.wait()
        return found

    monkeypatch.setattr(nodes.backend, "_placed", read_slowly)
    older = asyncio.create_task(nodes.backend._refresh_ready(WEB))
    await has_read.wait()
    await nodes.backend.stop(WEB, "r1-0")
    resume.set()
    await older
    assert nodes.backend._ready[WEB] == []


async def test_another_installation_is_held_until_the_node_is_lost(nodes: Nodes) -> None:
    assert await nodes.hello("a", "two") == 0
    assert not await nodes.lose("a", renewals=0)  # it was renewed since
    assert await nodes.lose("a")
    assert await nodes.hello("a", "two") > 0


async def test_a_node_keeps_the_longest_lease_that_its_agent_may_have_until_it_is_lost(nodes: Nodes) -> None:
    now = 0.0
    watch = NodeWatch(nodes.engine, 6.0, 1.0, lambda: now)  # a server with a shorter lease than those before it
    await nodes.hello("a", lease=60.0)
    await nodes.hello("a", lease=6.0)
    for now, state in ((0.0, "ready"), (60.9, "ready"), (61.1, "lost")):
        await watch.look()
        assert (await nodes.actions.node("a")).state == state, now
    await nodes.sync("a", await nodes.hello("a", lease=6.0))
    for now, state in ((100.0, "ready"), (106.9, "ready"), (107.1, "lost")):
        await watch.look()
        assert (await nodes.actions.node("a")).state == state, now


async def test_a_loss_removes_services_and_keeps_runs_of_jobs_as_ended_in_an_unknown_way(nodes: Nodes) -> None:
    placed = {name: await nodes.place(name, once=name == "r1-9") for name in ("r1-0", "r1-1", "r1-9")}
    assert sorted(placed.values()) in (["a", "a", "b"], ["a", "b", "b"])
    once = (await nodes.stored("r1-9")).key
    assert await nodes.engine.store.transact(lambda tx: mark_ordered(tx, [once])) == {once}
    notify = {name: node_status(await nodes.actions.node(name)).notify for name in ("a", "b")}
    for name in ("a", "b"):
        assert await nodes.lose(name)
        assert not await nodes.renew(name, notify[name])
        assert not await nodes.lose(name)
    (left,) = (await nodes.seen()).values()
    assert (left.name, left.phase, left.exit_status) == ("r1-9", InstancePhase.ENDED, None)
    assert "was lost" in left.why
    await nodes.backend.stop(WEB, "r1-9")
    assert await nodes.seen() == {}
    assert (await nodes.stored("r1-9")).state == "kept"  # its log is there again when its node is
    await nodes.backend.forget(WEB)
    assert (await nodes.stored("r1-9")).removed
    with pytest.raises(NodesFull, match="no node takes instances"):
        await nodes.place("r1-0")


async def test_an_instance_of_a_job_that_no_agent_was_told_of_is_placed_again(nodes: Nodes) -> None:
    node = await nodes.place("r1-0", once=True)
    assert await nodes.lose(node)
    assert await nodes.seen() == {}
    assert await nodes.place("r1-0", once=True) != node


async def test_a_lost_node_is_an_alert_until_it_returns_or_is_deleted(nodes: Nodes) -> None:
    node = await nodes.place("r1-0")
    await nodes.lose(node)
    (alert,) = alerts_of(await nodes.actions.node(node))
    assert (alert.name, alert.reason) == ("node lost", "it did not renew its lease; 1 instance ran there")
    with pytest.raises(NodesFull, match=f"; lost: {node}"):
        await nodes.place("r1-1", Service(command=("run",), resources=Resources(cpu=3.0)))
    assert await nodes.sync(node, await nodes.hello(node)) == ""
    assert alerts_of(await nodes.actions.node(node)) == ()
    await nodes.lose(node)
    await nodes.actions.act(node, "delete")
    entries = await nodes.engine.history(NS, node)
    assert [one.event for one in entries if "lost" in one.event] == [
        "node lost", "lost", "node lost ended", "node lost", "lost", "node lost ended",
    ]  # fmt: skip


async def test_an_instance_of_a_job_whose_order_never_arrived_is_ordered_again(nodes: Nodes) -> None:
    node = await nodes.place("r1-0", once=True)
    found = (await nodes.stored("r1-0")).key
    await nodes.engine.store.transact(lambda tx: mark_ordered(tx, [found]))
    notify = await nodes.hello(node)
    assert await nodes.sync(node, notify) == ""  # its agent would have a record of it
    order = due_order(await nodes.stored("r1-0"), notify)
    assert order is not None
    assert order.work is OrderAction.CREATE


async def test_a_name_that_is_placed_again_has_a_higher_number(nodes: Nodes) -> None:
    node = await nodes.place("r1-0")
    first = placed_instance(await nodes.stored("r1-0")).number
    await nodes.lose(node)
    assert await nodes.place("r1-0") != node
    assert placed_instance(await nodes.stored("r1-0")).number > first


async def test_placements_fill_nodes_and_no_more(nodes: Nodes) -> None:
    big = Service(command=("run",), resources=Resources(cpu=1.0))
    placed = [await nodes.place(f"r1-{number}", big) for number in range(4)]
    assert sorted(placed) == ["a", "a", "b", "b"]
    with pytest.raises(NodesFull, match=r"1 cores; a has 1 slots, 0 cores, 1024 MiB; b has 1 slots"):
        await nodes.place("r1-4", big)
    assert len(await nodes.seen()) == 4


async def test_a_draining_node_takes_nothing_and_its_instances_must_move(nodes: Nodes) -> None:
    node = await nodes.place("r1-0")
    await nodes.actions.act(node, "drain")
    assert (await nodes.seen())["r1-0"].must_move
    assert await nodes.place("r1-1") != node
    await nodes.actions.act(node, "uncordon")
    assert not (await nodes.seen())["r1-0"].must_move


async def test_an_agent_that_lost_an_instance_is_told_again_and_a_run_is_not(nodes: Nodes) -> None:
    node, other = await nodes.place("r1-0"), await nodes.place("r1-1", once=True)
    for name, where in (("r1-0", node), ("r1-1", other)):
        notify = node_status(await nodes.actions.node(where)).notify
        assert await nodes.report(notify, name, ServiceInstance(name, "r1", InstancePhase.UP, ready=True))
    for where in (node, other):
        assert await nodes.sync(where, await nodes.hello(where)) == ""
    seen = await nodes.seen()
    assert (seen["r1-0"].phase, seen["r1-0"].ready) == (InstancePhase.STARTING, False)
    assert (seen["r1-1"].phase, seen["r1-1"].exit_status) == (InstancePhase.ENDED, None)


# --- secrets ---------------------------------------------------------------------------------------------------------

SECRETIVE = Service(command=("run",), secrets={"PASSWORD": SecretRef("db")})


async def test_secrets_go_only_to_nodes_that_need_them_over_private_connections(nodes: Nodes) -> None:
    asked: list[tuple[str, list[str]]] = []

    async def read(ns: str, names: Collection[str]) -> Mapping[str, str]:
        asked.append((ns, list(names)))
        return dict.fromkeys(names, "hunter2")

    with pytest.raises(NodesFull, match="a is not connected over TLS; b is not connected over TLS"):
        await nodes.place("r1-0", SECRETIVE)
    assert await nodes.sync("b", await nodes.hello("b", takes_secrets=True)) == ""
    assert await nodes.place("r1-0", SECRETIVE) == "b"
    assert "hunter2" not in (await nodes.stored("r1-0")).spec
    secrets, pipe = NodeSecrets(NodeInstances(nodes.engine), read), ControllerEnd()
    connection = AgentConnection(pipe, NS, "b", lambda: 0.0)
    request = SecretRequest(1, 0, "db")
    plain = await secrets.answer(connection, Key(NS, "b"), request)
    assert (plain.value, plain.retry) == ("", False)
    assert "only over TLS" in plain.error
    connection.is_private = True
    assert (await secrets.answer(connection, Key(NS, "b"), request)).value == "hunter2"
    foreign = [(Key(NS, "a"), "db"), (Key(NS, "b"), "other"), (Key("else", "b"), "db")]
    for node, secret in foreign:
        refused = await secrets.answer(connection, node, SecretRequest(1, 0, secret))
        assert (refused.value, refused.error) == ("", f"no instance on node {node.id} uses it")
    assert asked == [(NS, ["db"])]


@pytest.mark.parametrize(
    ("address", "peer", "is_accepted"),
    [
        ("10.0.0.11", "10.0.0.11", True),
        ("10.0.0.11", "192.0.2.7", True),  # a second network, or a translated address
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "10.0.0.11", False),
        ("::ffff:127.0.0.1", "10.0.0.11", False),
        ("169.254.169.254", "10.0.0.11", False),
        ("fe80::1", "10.0.0.11", False),
        ("0.0.0.0", "10.0.0.11", False),
        ("metadata.internal", "10.0.0.11", False),
    ],
)
async def test_a_node_cannot_lead_a_controller_to_services_of_its_own_host(
    nodes: Nodes, address: str, peer: str, is_accepted: bool
) -> None:
    connection = AgentConnection(ControllerEnd(), NS, "b", lambda: 0.0)
    connection.peer = peer
    answer = await nodes.backend.hub.on_hello(connection, Hello("1.0", installation="one", address=address))
    assert isinstance(answer, Welcome if is_accepted else Goodbye), answer
    assert node_status(await nodes.actions.node("b")).address == (address if is_accepted else SIZE.address)


# --- reports over a connection ---------------------------------------------------------------------------------------


class Reporting:
    """The connection of a node with a placed instance, and what becomes of the batches of its reports."""

    def __init__(self, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
        self._nodes, self.hub = nodes, nodes.backend.hub
        self.may_record, self.error = asyncio.Event(), ""
        record = self.hub._report._process

        async def held(reports: Sequence[InstanceReport]) -> Sequence[bool | Exception]:
            await self.may_record.wait()
            if self.error:
                raise RuntimeError(self.error)
            return await record(reports)

        monkeypatch.setattr(self.hub._report, "_process", held)

    async def connect(self) -> None:
        """Place an instance, and connect its node."""
        self.node = await self._nodes.place("r1-0")
        self.connection = AgentConnection(ControllerEnd(), NS, self.node, lambda: 0.0)
        self.connection.peer = SIZE.address
        hello = Hello("1.0", installation="one", cores=SIZE.cores, memory=SIZE.memory, address=SIZE.address)
        assert isinstance(await self.hub.on_hello(self.connection, hello), Welcome)
        assert await self._nodes.sync(self.node, self.connection.notify) == ""
        self.connection.is_synced = True

    async def say(self, phase: InstancePhase) -> None:
        """Report a phase of the instance."""
        found = await self._nodes.stored("r1-0")
        status = to_json(replace(UP, phase=phase))
        message = StatusMessage(status, placed_instance(found).number, self.connection.notify, found.id)
        await self.hub.on_message(self.connection, message)


async def test_heartbeats_do_not_wait_for_the_reports_before_them(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporting = Reporting(nodes, monkeypatch)
    await reporting.connect()
    async with asyncio.timeout(60):
        await reporting.say(InstancePhase.STARTING)
        await reporting.say(InstancePhase.UP)
    before = node_status(await nodes.actions.node(reporting.node)).renewals
    await reporting.hub.on_heartbeat(reporting.connection)
    assert node_status(await nodes.actions.node(reporting.node)).renewals > before
    reporting.may_record.set()
    await reporting.hub._report.drain()
    assert (await nodes.seen())["r1-0"].phase is InstancePhase.UP


async def test_a_connection_whose_report_is_not_recorded_is_closed(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporting = Reporting(nodes, monkeypatch)
    reporting.error = "a fault"
    await reporting.connect()
    await reporting.say(InstancePhase.UP)
    reporting.may_record.set()
    await until(lambda: reporting.connection._is_closed)


# --- images ----------------------------------------------------------------------------------------------------------


class Agents:
    """The requests to the agents of a process, all of which answer alike."""

    def __init__(self, answer: ImageAnswer) -> None:
        self.answer, self.asked = answer, list[tuple[WantedImage, ...]]()

    async def find_images(self, connection: AgentConnection, images: tuple[WantedImage, ...]) -> ImageAnswer:
        """Return the answer."""
        self.asked.append(images)
        return self.answer


async def test_images_are_found_by_a_node_that_is_connected_to_another_process(nodes: Nodes) -> None:
    async def report(text: str) -> None:
        told.append(text)

    told: list[str] = []
    wanted, found, node = (
        (WantedImage("shop:1"), WantedImage("shop:2")),
        FoundImage("id", "shop@sha256:1"),
        Key(NS, "b"),
    )
    agents = Agents(ImageAnswer(1, 1, (found, found)))
    worker = nodes.backend.hub.images
    with pytest.raises(NoContainerEngine, match="no node in default has a container engine"):
        await worker.find(NS, wanted, report)
    notify = await nodes.hello("b", has_engine=True)
    with pytest.raises(ImagesNotFound, match="no node with a container engine is connected"):
        await worker.find(NS, wanted, report)
    assert await nodes.sync("b", notify) == ""
    connection = AgentConnection(ControllerEnd(), NS, "b", lambda: 0.0)
    connection.is_synced = True
    other = copy(nodes.backend.hub)
    other.connections, other.requests = {node: [connection]}, agents  # type: ignore[assignment]
    server = NodeImages(other)

    async def ask() -> object:
        asking = asyncio.create_task(worker.find(NS, wanted, report))
        while not asking.done():
            await server.answer(node)
            await asyncio.sleep(0.01)
        return await asking

    assert await ask() == [found, found]
    assert (agents.asked, told) == ([wanted], ["node b looks for the images"])
    agents.answer = ImageAnswer(1, 1, refusal="no such image")
    with pytest.raises(ImageRefused, match="node b: no such image"):
        await ask()
    assert node_status(await nodes.actions.node("b")).images == {}
    assert await server.find(NS, wanted[:0], report) == []

    # The agent connects again meanwhile: the question is asked again, and not forgotten.
    asking = asyncio.create_task(worker.find(NS, wanted, report))
    await until(lambda: nodes.actions.node("b"), lambda node: node_status(node).images)
    await nodes.hello("b", has_engine=True)
    with pytest.raises(ImagesNotFound, match="has lost its connection"):
        await asking
