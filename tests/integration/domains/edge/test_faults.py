"""Crashes and cuts, in every state: of the agent, of the controller, of the line between them, and of both at once.

Every object ends in the right state, nothing is done twice, and nothing is left that nobody knows of.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stateward.access import Role, Tokens
from stateward.access.tokens import SYSTEM
from stateward.agents import agent as agent_module
from stateward.agents import agent_hub
from stateward.agents.connection import ConnectionId
from stateward.agents.messages import AgentOrder, Existing, Hello, InventoryItem, OrderAction, ProgressMessage, Welcome
from stateward.agents.simulation import SimulatedSite
from stateward.agents.site import SiteError
from stateward.domains.edge.agents.agent_reports import AgentMessage, process_messages
from stateward.domains.edge.agents.connections import ConnectRequest
from stateward.domains.edge.lifecycle import CLOUDLET, CLUSTERINST
from stateward.domains.edge.model import CloudletSpec, ClusterInst, cloudlet_status, instance_status, read_spec
from stateward.engine import Accepted
from stateward.engine.maintenance.horizon import EntriesPruned
from stateward.engine.queries import watch_pages
from stateward.store.errors import Unavailable
from stateward.store.port import Store
from stateward.store.records import JournalEntry, Key, Object
from tests.integration.domains.edge.conftest import (
    ANN,
    NS,
    AgentRunner,
    EdgeHarness,
    hold_work,
    open_harness,
    pass_deadline,
)
from tests.stores import fresh_store
from tests.waiting import until

C1, CLUSTER = "munich:c1", "edge.clusterinst"
WORKS = {"create": "Creating", "update": "Updating", "delete": "Deleting"}


@pytest.fixture
def new_store(request: pytest.FixtureRequest) -> Callable[[], Store]:
    """Run everything on SQLite; one matrix is run on PostgreSQL as well."""
    return fresh_store("sqlite", request)


class GatedSite(SimulatedSite):
    """A site whose orders wait for an event; an interrupted one leaves its thing incomplete."""

    def __init__(self) -> None:
        super().__init__()
        self.free = asyncio.Event()
        self.gate = lambda _: self.free


async def request_work(harness: EdgeHarness, work: str) -> Accepted:
    """Request a create, an update or a delete of a cluster."""
    if work == "create":
        return await harness.service.create_cluster(NS, "munich", "c1", ClusterInst(nodes=2), ANN)
    if work == "update":
        return await harness.service.update(NS, C1, CLUSTER, {"nodes": 3}, ANN)
    return await harness.service.delete(NS, C1, CLUSTER, ANN)


async def set_up(harness: EdgeHarness, work: str) -> AgentRunner:
    runner = await harness.cloudlet(runner=AgentRunner("munich", GatedSite()))
    assert isinstance(runner.site, GatedSite)
    if work != "create":
        runner.site.free.set()
        await harness.cluster(nodes=2)
        runner.site.free.clear()
        runner.site.applied.clear()
    return runner


async def assert_done_once(harness: EdgeHarness, runner: AgentRunner, work: str) -> None:
    """Check that the request is done, once, and that no orphan is left."""
    found = await harness.until(C1, "NotPresent" if work == "delete" else "Ready")
    if work == "delete":
        assert runner.site.things == {}
    else:
        assert runner.site.things == {"c1": Existing(instance_status(found).generation)}
        assert read_spec(found, ClusterInst).nodes == (2 if work == "create" else 3)
    assert max(Counter(runner.site.applied).values(), default=1) == 1
    assert cloudlet_status(await harness.online()).orphans == ()


@pytest.mark.parametrize("work", WORKS)
async def test_an_agent_that_crashes_at_work_is_asked_again_and_does_it_once(harness: EdgeHarness, work: str) -> None:
    runner = await set_up(harness, work)
    await request_work(harness, work)
    await harness.until(C1, WORKS[work])
    await runner.kill()
    await harness.until("munich", "Offline")
    assert await harness.state(C1) == WORKS[work]
    assert isinstance(runner.site, GatedSite)
    runner.site.free.set()
    runner.start(harness.hub)
    await assert_done_once(harness, runner, work)


@pytest.mark.parametrize("work", WORKS)
async def test_an_agent_whose_line_is_cut_at_work_goes_on_and_tells_later(harness: EdgeHarness, work: str) -> None:
    runner = await set_up(harness, work)
    await request_work(harness, work)
    await harness.until(C1, WORKS[work])
    hub, runner.dialer.handler = runner.dialer.handler, None
    runner.dialer.break_connections()
    await harness.until("munich", "Offline")
    assert isinstance(runner.site, GatedSite)
    runner.site.free.set()
    await until(lambda: runner.site.applied)
    runner.dialer.handler = hub
    await assert_done_once(harness, runner, work)


@pytest.mark.parametrize("work", WORKS)
async def test_what_was_asked_while_nobody_was_connected_is_done_by_who_comes(harness: EdgeHarness, work: str) -> None:
    runner = await set_up(harness, work)
    await runner.kill()
    await harness.until("munich", "Offline")
    await request_work(harness, work)
    assert isinstance(runner.site, GatedSite)
    runner.site.free.set()
    runner.start(harness.hub)
    await assert_done_once(harness, runner, work)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("both", [False, True], ids=["the controller", "both at once"])
@pytest.mark.parametrize("moment", ["Requested", "at work"])
@pytest.mark.parametrize("work", WORKS)
async def test_a_controller_that_dies_is_followed_by_another_that_settles_it(
    request: pytest.FixtureRequest, tmp_path: Path, work: str, moment: str, both: bool, store: str
) -> None:
    new_store = fresh_store(store, request)
    async with open_harness(new_store(), tmp_path) as harness:
        runner = await set_up(harness, work)
        assert isinstance(runner.site, GatedSite)
        if moment == "Requested":
            await runner.kill()
        await request_work(harness, work)
        await harness.until(C1, f"{work.capitalize()}Requested" if moment == "Requested" else WORKS[work])
        if both and moment != "Requested":
            await runner.kill()
        harness.runners.clear()
        runner.dialer.handler = None
    async with open_harness(new_store(), tmp_path) as harness:
        harness.runners.append(runner)
        runner.site.free.set()
        if both or moment == "Requested":
            runner.start(harness.hub)
        runner.dialer.handler = harness.hub
        await assert_done_once(harness, runner, work)


async def test_an_agent_that_crashes_at_work_again_and_again_is_given_up(harness: EdgeHarness) -> None:
    runner = await set_up(harness, "create")
    accepted = await request_work(harness, "create")
    for _ in range(2):
        await harness.until(C1, "Creating")
        await until(lambda: "c1" in runner.site.things)
        await runner.kill()
        await harness.until("munich", "Offline")
        runner.start(harness.hub)
        await harness.online()
    assert (await harness.ended(accepted)).status == "failed"
    assert isinstance(runner.site, GatedSite)
    runner.site.free.set()
    await harness.until(C1, "NotPresent")
    assert runner.site.things == {}


# --- what is missing, and what nobody asked for ----------------------------------------------------------------------


async def test_what_is_missing_is_marked_and_created_anew_where_policy_says_so(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.cluster()
    await harness.app()
    await harness.deployed()
    await runner.kill()
    runner.site.things.clear()
    befores = {thing: (await harness.instance_status(thing)).generation for thing in (C1, "munich:c1:web")}
    runner.start(harness.hub)
    for thing, before in befores.items():
        await harness.until_renewed(thing, before)
    assert set(runner.site.things) == {"c1", "c1:web"}
    assert "re-create" in [line.event for line in await harness.history(C1)]


async def test_what_is_missing_is_only_marked_where_policy_says_so(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet(missing="leave")
    await harness.cluster()
    runner.site.things["c1"] = Existing(runner.site.things["c1"].generation, whole=False)
    await harness.until_true(C1, lambda one: instance_status(one).missing)
    assert await harness.state(C1) == "Ready"
    runner.site.things["c1"] = Existing(runner.site.things["c1"].generation)
    await harness.until_true(C1, lambda one: not instance_status(one).missing)


@pytest.mark.parametrize("policy", ["report", "remove"])
async def test_an_orphan_is_reported_and_removed_only_by_policy(harness: EdgeHarness, policy: str) -> None:
    site = SimulatedSite()
    site.things["stray"] = Existing(7)
    await harness.cloudlet(runner=AgentRunner("munich", site), orphans=policy)
    if policy == "remove":
        await harness.until_true("munich", lambda one: cloudlet_status(one).orphans == ())
    lines = [line.event for line in await harness.history("munich")]
    assert "orphan" in lines
    assert ("orphan removed" in lines) == (policy == "remove")
    assert ("stray" in site.things) == (policy == "report")


async def test_a_name_that_an_orphan_had_can_be_used_at_once(harness: EdgeHarness) -> None:
    site = SimulatedSite()
    site.things["c1"] = Existing(7)
    await harness.cloudlet(runner=AgentRunner("munich", site), orphans="remove")
    await harness.until_true("munich", lambda one: cloudlet_status(one).orphans == ())
    assert (await harness.cluster()).status == "succeeded"


# --- the agent's own guard -------------------------------------------------------------------------------------------


async def test_an_agent_at_work_on_a_cluster_is_busy_for_what_is_in_it(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet(runner=AgentRunner("munich", GatedSite()))
    assert isinstance(runner.site, GatedSite)
    said: list[str] = []
    agent = runner.agent

    async def noted(order: AgentOrder, event: str, error: str = "") -> None:
        said.append(f"{order.name} {event}")

    agent._report = noted  # type: ignore[method-assign]
    notify = agent.notify
    await agent._handle_order(AgentOrder(OrderAction.CREATE, 1, 1, notify, "c1"))
    await agent._handle_order(AgentOrder(OrderAction.CREATE, 2, 2, notify, "c1:web", "c1"))
    await agent._handle_order(AgentOrder(OrderAction.DELETE, 3, 1, notify, "c1"))
    await agent._handle_order(AgentOrder(OrderAction.CREATE, 4, 4, notify, "c2"))
    assert said == ["c1 creating", "c1:web busy", "c1 busy", "c2 creating"]
    runner.site.free.set()


async def test_an_agent_does_not_remember_every_instance_that_there_ever_was(
    harness: EdgeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "MAX_ENDED_MEMORIES", 4)
    runner = await harness.cloudlet()
    await harness.cluster("kept")
    for number in range(7):
        assert (await harness.cluster(f"c{number}")).status == "succeeded"
        removed = await harness.service.delete(NS, f"munich:c{number}", CLUSTERINST.kind, ANN)
        assert (await harness.ended(removed)).status == "succeeded"
    assert 2 < len(runner.agent._memories) <= 5
    assert {"kept", "c6"} < runner.agent._memories.keys()


async def test_a_newer_connection_makes_the_older_one_count_for_nothing(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    (old,) = harness.hub.connections[Key(NS, "munich")]
    runner.dialer.handler = None  # or the two would take the place of each other for ever
    harness.start(AgentRunner("munich", SimulatedSite()))
    await harness.until_true("munich", lambda one: cloudlet_status(one).serving > old.notify)
    await harness.online()
    await harness.hub.on_closed(old)
    assert await harness.state("munich") == "Ready"
    await runner.kill()


async def say(harness: EdgeHarness, content: ProgressMessage | InventoryItem) -> bool:
    """Return whether a message of munich's agent counts."""
    message = AgentMessage(NS, "munich", "1.0", content)
    (result,) = await harness.engine.store.transact(lambda tx: process_messages(tx, [message], 60.0))
    return result.is_accepted


async def test_a_change_that_an_older_connection_has_observed_does_not_count(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await harness.cluster()
    notify = cloudlet_status(await harness.get("munich")).serving
    generation = (await harness.instance_status("munich:c1")).generation
    change = InventoryItem(0, generation, False, notify - 1, "c1", problem="it has ended")
    before = await harness.get("munich:c1")
    assert not await say(harness, change)
    assert await harness.get("munich:c1") == before
    assert await say(harness, replace(change, notify=notify))
    assert await harness.get("munich:c1") != before


async def test_progress_of_an_older_connection_does_not_count(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    hold_work(runner)
    accepted = await harness.service.create_cluster(NS, "munich", "c1", ClusterInst(), ANN)
    await harness.until_progress(accepted, 1)
    notify = cloudlet_status(await harness.get("munich")).serving
    status = await harness.instance_status("munich:c1")
    progress = ProgressMessage("half of it", status.operation, status.generation, notify - 1, "c1")
    before = await harness.engine.store.reader.progress_of(accepted.op.key, 0)
    assert not await say(harness, progress)
    assert await harness.engine.store.reader.progress_of(accepted.op.key, 0) == before
    assert await say(harness, replace(progress, notify=notify))


@pytest.mark.parametrize(("end", "actor"), [("revoke", "admin"), ("expire", "clock")])
async def test_an_agent_whose_token_is_revoked_or_expires_is_disconnected(
    harness: EdgeHarness, end: str, actor: str
) -> None:
    runner = await harness.cloudlet()
    _, token = await Tokens(harness.engine).issue("munich", Role.AGENT, [f"{NS}:munich"])
    (connection,) = harness.hub.connections[Key(NS, "munich")]
    connection.token = token.id
    runner.dialer.handler = None  # it would connect again
    await harness.engine.act(SYSTEM, f"token-{token.id}", end, actor=actor)
    await harness.until("munich", "Offline")


async def test_a_cloudlet_that_is_deleted_dismisses_its_agent(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.ended(await harness.service.delete(NS, "munich", "edge.cloudlet", ANN))
    assert runner.task is not None
    await asyncio.wait_for(runner.task, 60)


async def begin_delete(harness: EdgeHarness) -> tuple[AgentRunner, Accepted]:
    """Delete a cloudlet, whose agent is killed while it removes what goes along."""
    runner = await harness.cloudlet(runner=AgentRunner("munich", GatedSite()))
    assert isinstance(runner.site, GatedSite)
    runner.site.free.set()
    await harness.app(auto_delete=True)
    await harness.deployed(cluster="autocluster")
    runner.site.free.clear()
    accepted = await harness.service.delete(NS, "munich", "edge.cloudlet", ANN)
    await harness.until("munich:autocluster:web", "Deleting")
    await runner.kill()
    runner.site.free.set()
    await harness.until_true("munich", lambda one: not cloudlet_status(one).serving)
    assert await harness.state("munich") == "DeletePrepare"
    return runner, accepted


async def test_an_agent_that_crashes_while_its_cloudlet_is_deleted_is_let_in_once_more(harness: EdgeHarness) -> None:
    runner, accepted = await begin_delete(harness)
    runner.start(harness.hub)
    assert (await harness.ended(accepted)).status == "succeeded"
    assert runner.site.things == {}
    assert runner.task is not None
    await asyncio.wait_for(runner.task, 60)


async def test_a_cloudlet_that_is_not_deleted_after_all_is_offline_if_its_agent_has_left(harness: EdgeHarness) -> None:
    runner, accepted = await begin_delete(harness)
    held_by = (await harness.get("munich:autocluster:web")).op
    assert held_by is not None
    await pass_deadline(harness, held_by)
    operation = await harness.ended(accepted)
    assert (operation.status, operation.error) == ("failed", "in use by munich:autocluster:web")
    assert await harness.state("munich") == "Offline"
    runner.start(harness.hub)
    await harness.online()
    await harness.until("munich:autocluster:web", "Ready")


async def test_an_agent_that_cannot_gather_leaves_the_cloudlet_offline_with_the_reason(harness: EdgeHarness) -> None:
    class Blind(SimulatedSite):
        async def observe(self) -> dict[str, Existing]:
            raise SiteError("it is dark")

    accepted = await harness.service.create_cloudlet(NS, "munich", CloudletSpec(), ANN)
    harness.start(AgentRunner("munich", Blind()))
    assert "it is dark" in str((await harness.ended(accepted)).error)


async def test_an_agent_that_a_new_controller_takes_over_meanwhile_is_not_recorded_as_lost(
    new_store: Callable[[], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_harness(new_store(), tmp_path / "one") as first, AsyncExitStack() as stack:
        runner = await first.cloudlet()
        await runner.kill()
        await first.until("munich", "Offline")
        reader, reads = first.engine.store.reader, 0
        list_objects, ours = reader.list_objects, asyncio.current_task()

        async def list_and_start(*args: Any) -> list[Object]:
            nonlocal reads
            found = await list_objects(*args)
            reads += asyncio.current_task() is ours
            if reads == 1 and asyncio.current_task() is ours:
                second = await stack.enter_async_context(open_harness(new_store(), tmp_path / "two", works=False))
                second.start(AgentRunner("munich", runner.site))
                await second.online()
            return found

        monkeypatch.setattr(reader, "list_objects", list_and_start)
        assert await first.plugin.controller_lease.lost_connections() == []
        assert reads > 1


async def test_connection_that_another_controller_records_as_lost_is_closed_even_if_the_first_check_fails(
    harness: EdgeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.cloudlet()
    (old,) = harness.hub.connections[Key(NS, "munich")]
    check, failed = harness.hub._check_cloudlet, asyncio.Event()

    async def check_after_a_failure(key: Key) -> None:
        if not failed.is_set():
            found = await harness.get("munich")  # a check from before may have closed the connection already
            if found.state == "Offline" or cloudlet_status(found).serving > old.notify:
                failed.set()
            raise Unavailable("the store is not available")
        await check(key)

    monkeypatch.setattr(harness.hub, "_check_cloudlet", check_after_a_failure)
    await harness.hub.disconnects.submit(old.id)
    await asyncio.wait_for(failed.wait(), 60)
    await harness.until_true("munich", lambda one: one.state == "Ready" and cloudlet_status(one).serving > old.notify)


async def test_controller_whose_lease_has_expired_makes_its_agents_reconnect_even_in_maintenance(
    harness: EdgeHarness,
) -> None:
    await harness.cloudlet()
    await harness.ended(await harness.service.act(NS, "munich", CLOUDLET.kind, "maintain", ANN))
    (old,), lease = harness.hub.connections[Key(NS, "munich")], harness.plugin.controller_lease
    await lease.release()
    await harness.hub.disconnects.submit(old.id)  # as another controller does
    await lease.acquire(works=True)
    found = await harness.until_true("munich", lambda one: cloudlet_status(one).serving > old.notify)
    assert found.state == "Maintenance"


async def test_agent_replaced_by_a_connection_that_was_gone_already_reconnects_even_in_maintenance(
    harness: EdgeHarness,
) -> None:
    await harness.cloudlet()
    await harness.ended(await harness.service.act(NS, "munich", CLOUDLET.kind, "maintain", ANN))
    site = Key(NS, "munich")
    late = await harness.hub.connects.submit(ConnectRequest(site, Hello("1.0"), "a controller that was suspended"))
    assert isinstance(late, Welcome)
    await harness.hub.disconnects.submit(ConnectionId(site, late.notify))
    await harness.until_true("munich", lambda one: cloudlet_status(one).serving > late.notify)


async def test_controller_that_missed_pruned_journal_entries_makes_its_agents_reconnect(
    new_store: Callable[[], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pruned = asyncio.Event()

    async def watch_pruned(store: Store, after: int) -> AsyncGenerator[Sequence[JournalEntry]]:
        if not pruned.is_set():
            await pruned.wait()
            raise EntriesPruned(after, after)
        async for page in watch_pages(store, after):
            yield page

    monkeypatch.setattr(agent_hub, "watch_pages", watch_pruned)
    async with open_harness(new_store(), tmp_path) as harness:
        await harness.cloudlet()
        (old,) = harness.hub.connections[Key(NS, "munich")]
        pruned.set()
        await harness.until_true("munich", lambda one: cloudlet_status(one).serving > old.notify)
