"""Undos that fail, deletes that are undone, idle clusters, and limits that hold."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from stateward.agents.connection import MESSAGE_BURST, PROGRESS_COST, MessageRateLimit
from stateward.agents.messages import AgentOrder, Existing, OrderAction, ProgressMessage
from stateward.agents.simulation import SimulatedSite
from stateward.agents.site import ReportProgress, SiteError
from stateward.domains.edge.errors import LimitReached
from stateward.domains.edge.model import MAX_RESERVABLE_CLUSTERS, ClusterInst, instance_status, read_spec
from stateward.engine import Accepted
from stateward.store.changes import Changes
from stateward.store.port import Store, Tx
from stateward.store.records import Key, Timer
from tests.integration.domains.edge.conftest import ADA, ANN, NS, PATIENT, AgentRunner, EdgeHarness, hold_work
from tests.stores import fresh_store
from tests.waiting import until

C1, WEB = "munich:c1", "munich:c1:web"
CLUSTER = "edge.clusterinst"


@pytest.fixture
def new_store(request: pytest.FixtureRequest) -> Callable[[], Store]:
    return fresh_store("sqlite", request)


class FailingSite(SimulatedSite):
    """A site that fails some actions, for all things or for one, while `refuses` names them."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: frozenset[OrderAction] = frozenset()
        self.about = ""

    async def execute(self, order: AgentOrder, report_progress: ReportProgress) -> None:
        if order.work in self.refuses and self.about in ("", order.name):
            self.things[order.name] = Existing(order.generation, whole=False)
            raise SiteError("not today")
        await super().execute(order, report_progress)


async def failing_site(harness: EdgeHarness, *refuses: OrderAction, about: str = "", ready: bool = True) -> FailingSite:
    """Create a cloudlet, with a Ready cluster or empty, whose site then fails these actions."""
    site = FailingSite()
    await harness.cloudlet(runner=AgentRunner("munich", site))
    if ready:
        await harness.cluster(nodes=2)
    site.refuses, site.about = frozenset(refuses), about
    return site


async def until_undo_failed(harness: EdgeHarness, asked: Accepted, state: str) -> None:
    """Wait until an operation and the last try of its undo have failed."""
    assert (await harness.ended(asked)).status == "failed"
    await harness.until_true(
        C1, lambda one: one.state == state and instance_status(one).tries > 0 and not instance_status(one).undoing
    )


async def create(harness: EdgeHarness) -> Accepted:
    return await harness.service.create_cluster(NS, "munich", "c1", ClusterInst(nodes=2), ANN)


async def update(harness: EdgeHarness, nodes: int) -> Accepted:
    return await harness.service.update(NS, C1, CLUSTER, {"nodes": nodes}, ANN)


async def delete(harness: EdgeHarness) -> Accepted:
    return await harness.service.delete(NS, C1, CLUSTER, ANN)


async def test_what_could_be_neither_created_nor_removed_is_deleted_by_its_user(harness: EdgeHarness) -> None:
    site = await failing_site(harness, *OrderAction, ready=False)
    await until_undo_failed(harness, await create(harness), "CreateError")
    site.refuses = frozenset()
    assert (await harness.ended(await delete(harness))).status == "succeeded"
    assert (await harness.state(C1), site.things) == ("NotPresent", {})


async def test_an_update_that_failed_for_good_is_tried_again_by_its_user(harness: EdgeHarness) -> None:
    site = await failing_site(harness, *OrderAction)
    await until_undo_failed(harness, await update(harness, 3), "UpdateError")
    assert read_spec(await harness.get(C1), ClusterInst).nodes == 2
    site.refuses = frozenset()
    assert (await harness.ended(await update(harness, 4))).status == "succeeded"
    found = await harness.get(C1)
    assert (found.state, read_spec(found, ClusterInst).nodes) == ("Ready", 4)


@pytest.mark.parametrize("begun", [update, delete], ids=["an update", "a delete"])
async def test_what_failed_for_good_is_deleted_by_its_user(harness: EdgeHarness, begun: Callable[..., object]) -> None:
    site = await failing_site(harness, *OrderAction)
    if begun is update:
        await until_undo_failed(harness, await update(harness, 3), "UpdateError")
    else:
        await until_undo_failed(harness, await delete(harness), "DeleteError")
    site.refuses = frozenset()
    assert (await harness.ended(await delete(harness))).status == "succeeded"
    assert (await harness.state(C1), site.things) == ("NotPresent", {})


async def test_a_cluster_whose_apps_will_not_go_is_ready_again_and_says_who_is_in_it(harness: EdgeHarness) -> None:
    site = await failing_site(harness)
    await harness.app(auto_delete=True)
    await harness.deployed()
    site.refuses, site.about = frozenset({OrderAction.DELETE}), "c1:web"
    operation = await harness.ended(await delete(harness))
    assert (operation.status, operation.error) == ("failed", f"in use by {WEB}")
    assert await harness.state(C1) == "Ready"
    await harness.until(WEB, "Ready")


async def test_a_cloudlet_that_was_offline_and_is_not_deleted_after_all_is_ready_with_the_agent_that_came(
    harness: EdgeHarness,
) -> None:
    site = await failing_site(harness, ready=False)
    await harness.app(auto_delete=True)
    await harness.deployed(cluster="autocluster")
    (runner,) = harness.runners
    await runner.kill()
    await harness.until("munich", "Offline")
    site.refuses, site.about = frozenset({OrderAction.DELETE}), "autocluster:web"
    deleted = await harness.service.delete(NS, "munich", "edge.cloudlet", ANN)
    await harness.until("munich:autocluster:web", "DeleteRequested")
    runner.start(harness.hub)
    assert (await harness.ended(deleted)).status == "failed"
    await harness.online()
    await harness.until("munich:autocluster:web", "Ready")


async def test_progress_gives_an_operation_time(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    gate = hold_work(runner)
    accepted = await create(harness)
    await harness.until_progress(accepted, 1)
    before = await deadline(harness, accepted, soon=True)
    marks = await harness.instance_status(C1)
    word = ProgressMessage("still at it", marks.issued, marks.generation, runner.agent.notify, "c1")
    await runner.agent._send(word)
    await harness.until_progress(accepted, 2)
    assert await deadline(harness, accepted) > before + 60.0
    gate.set()
    assert (await harness.ended(accepted)).status == "succeeded"


async def test_lines_of_progress_slow_their_connection_down_as_they_are_stored(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    gate = hold_work(runner)
    accepted = await create(harness)
    await harness.until_progress(accepted, 1)
    marks = await harness.instance_status(C1)
    (connection,) = harness.hub.connections[Key(NS, "munich")]
    connection.rate_limit = MessageRateLimit(lambda: 0.0)
    lines = int(MESSAGE_BURST / PROGRESS_COST)
    word = ProgressMessage("still at it", marks.issued, marks.generation, runner.agent.notify, "c1")
    await asyncio.gather(*(harness.hub.on_message(connection, word) for _ in range(lines)))
    assert connection.rate_limit.spend() > 0
    gate.set()
    await harness.ended(accepted)


async def deadline(harness: EdgeHarness, accepted: Accepted, *, soon: bool = False) -> float:
    """Return when an operation has to be done; sooner than before, if so wanted."""

    async def program(tx: Tx) -> float:
        (work,) = (await tx.work([Key(NS, accepted.op.id)])).values()
        assert work.deadline is not None
        if not soon:
            return work.deadline
        near = tx.now + PATIENT
        await tx.apply(Changes(work=[replace(work, deadline=near, not_before=near)]))
        return near

    return await harness.engine.store.transact(program)


async def test_progress_that_is_late_is_journaled_as_rejected(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.cluster()
    marks = await harness.instance_status(C1)
    await runner.agent._send(ProgressMessage("too late", marks.issued, marks.generation, runner.agent.notify, "c1"))
    await until(lambda: harness.history(C1), lambda entries: "rejected: progress" in [line.event for line in entries])


async def test_a_cloudlet_has_at_most_so_many_reservable_clusters_and_the_lowest_free_number_is_taken(
    harness: EdgeHarness,
) -> None:
    runner = await harness.cloudlet()
    await harness.app()
    gate = hold_work(runner)
    apps = [f"autocluster{n}" for n in range(MAX_RESERVABLE_CLUSTERS)]
    made = [await harness.service.create_app(NS, "munich", one, "web", ANN) for one in apps]
    assert [instance_status(one.object).cluster for one in made] == [f"reservable{n}" for n in range(64)]
    with pytest.raises(LimitReached, match="64"):
        await harness.service.create_app(NS, "munich", "autocluster-more", "web", ANN)
    gate.set()
    await harness.ended(made[7])
    await harness.ended(await harness.service.delete(NS, "munich:autocluster7:web", "edge.appinst", ANN))
    await harness.until_true("munich:reservable7", lambda one: not instance_status(one).reserved_by)
    again = await harness.service.create_app(NS, "munich", "autocluster-more", "web", ANN)
    assert instance_status(again.object).cluster == "reservable7"


# --- idle clusters ---------------------------------------------------------------------------------------------------

IDLE = "munich:reservable0"


async def idle_cluster(harness: EdgeHarness) -> FailingSite:
    """Create a reservable cluster that is not used any more."""
    site = await failing_site(harness, ready=False)
    await harness.app()
    await harness.deployed(cluster="autocluster")
    await harness.ended(await harness.service.delete(NS, "munich:autocluster:web", "edge.appinst", ANN))
    await until_expiry_is_set(harness)
    return site


async def until_expiry_is_set(harness: EdgeHarness) -> None:
    """Wait until the timer is set that deletes the idle cluster."""
    await until(lambda: expiry_timers(harness))


async def expiry_timers(harness: EdgeHarness) -> list[Timer]:
    return [one for one in await harness.engine.store.reader.timers(NS, 10) if one.event == "expire"]


async def expire(harness: EdgeHarness) -> None:
    """Make the timer of the idle cluster due."""
    (timer,) = await expiry_timers(harness)
    await harness.engine.set_timer(replace(timer, due=0.0))


async def test_an_idle_cluster_that_could_not_be_removed_is_removed_later(harness: EdgeHarness) -> None:
    site = await idle_cluster(harness)
    site.refuses = frozenset({OrderAction.DELETE})
    await expire(harness)
    await until(lambda: harness.history(IDLE), lambda entries: "undone" in [line.event for line in entries])
    await until_expiry_is_set(harness)
    site.refuses = frozenset()
    await expire(harness)
    await harness.until(IDLE, "NotPresent")


async def test_an_idle_cluster_is_removed_when_a_failed_upgrade_has_been_settled(harness: EdgeHarness) -> None:
    await idle_cluster(harness)
    await harness.ended(await harness.service.act(NS, "munich", "edge.cloudlet", "upgrade", ANN, {"version": "2.0"}))
    assert await harness.state("munich") == "UpdateError"
    (before,) = await expiry_timers(harness)
    await expire(harness)
    await until(lambda: expiry_timers(harness), lambda timers: [one for one in timers if 0.0 < one.due < before.due])
    assert await harness.state(IDLE) == "Ready"
    await harness.service.fix(NS, "munich", ADA)
    await expire(harness)
    await harness.until(IDLE, "NotPresent")
