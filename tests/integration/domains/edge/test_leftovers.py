"""What is left in an error by agents that cannot even undo, what a delete leads back to, and limits that hold."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from stateward.agents.messages import AgentOrder, Existing, OrderAction, ProgressMessage
from stateward.agents.simulation import SimulatedSite
from stateward.agents.site import ReportProgress, SiteError
from stateward.domains.edge.errors import LimitReached
from stateward.domains.edge.model import MAX_RESERVABLE_CLUSTERS, ClusterInst, instance_status, read_spec
from stateward.engine import Accepted
from stateward.store.changes import Changes
from stateward.store.port import Store, Tx
from stateward.store.records import Key, Timer
from tests.integration.domains.edge.conftest import ADA, ANN, NS, PATIENT, Hand, House, hold
from tests.stores import fresh_store

C1, WEB = "munich:c1", "munich:c1:web"
CLUSTER = "edge.clusterinst"


@pytest.fixture
def new_store(request: pytest.FixtureRequest) -> Callable[[], Store]:
    return fresh_store("sqlite", request)


class Stubborn(SimulatedSite):
    """A site that breaks off some sorts of work, for as long as it is told to; of all things, or of one."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: frozenset[OrderAction] = frozenset()
        self.about = ""

    async def execute(self, order: AgentOrder, tell: ReportProgress) -> None:
        if order.work in self.refuses and self.about in ("", order.name):
            self.things[order.name] = Existing(order.generation, whole=False)
            raise SiteError("not today")
        await super().execute(order, tell)


async def stubborn(house: House, *refuses: OrderAction, about: str = "", ready: bool = True) -> Stubborn:
    """Have a cloudlet on which a cluster is ready, or nothing yet, and whose site refuses from then on."""
    site = Stubborn()
    await house.cloudlet(hand=Hand("munich", site))
    if ready:
        await house.cluster(nodes=2)
    site.refuses, site.about = frozenset(refuses), about
    return site


async def left(house: House, asked: Accepted, state: str) -> None:
    """Wait until an operation has failed, and its undo too, for the last time."""
    assert (await house.ended(asked)).status == "failed"
    await house.until_true(
        C1, lambda one: one.state == state and instance_status(one).tries > 0 and not instance_status(one).undoing
    )


async def create(house: House) -> Accepted:
    return await house.service.create_cluster(NS, "munich", "c1", ClusterInst(nodes=2), ANN)


async def update(house: House, nodes: int) -> Accepted:
    return await house.service.update(NS, C1, CLUSTER, {"nodes": nodes}, ANN)


async def delete(house: House) -> Accepted:
    return await house.service.delete(NS, C1, CLUSTER, ANN)


async def test_what_could_be_neither_created_nor_removed_is_deleted_by_its_user(house: House) -> None:
    site = await stubborn(house, *OrderAction, ready=False)
    await left(house, await create(house), "CreateError")
    site.refuses = frozenset()
    assert (await house.ended(await delete(house))).status == "succeeded"
    assert (await house.state(C1), site.things) == ("NotPresent", {})


async def test_an_update_that_failed_for_good_is_tried_again_by_its_user(house: House) -> None:
    site = await stubborn(house, *OrderAction)
    await left(house, await update(house, 3), "UpdateError")
    assert read_spec(await house.get(C1), ClusterInst).nodes == 2
    site.refuses = frozenset()
    assert (await house.ended(await update(house, 4))).status == "succeeded"
    found = await house.get(C1)
    assert (found.state, read_spec(found, ClusterInst).nodes) == ("Ready", 4)


@pytest.mark.parametrize("begun", [update, delete], ids=["an update", "a delete"])
async def test_what_failed_for_good_is_deleted_by_its_user(house: House, begun: Callable[..., object]) -> None:
    site = await stubborn(house, *OrderAction)
    if begun is update:
        await left(house, await update(house, 3), "UpdateError")
    else:
        await left(house, await delete(house), "DeleteError")
    site.refuses = frozenset()
    assert (await house.ended(await delete(house))).status == "succeeded"
    assert (await house.state(C1), site.things) == ("NotPresent", {})


async def test_a_cluster_whose_apps_will_not_go_is_ready_again_and_says_who_is_in_it(house: House) -> None:
    site = await stubborn(house)
    await house.app(auto_delete=True)
    await house.deployed()
    site.refuses, site.about = frozenset({OrderAction.DELETE}), "c1:web"
    operation = await house.ended(await delete(house))
    assert (operation.status, operation.error) == ("failed", f"in use by {WEB}")
    assert await house.state(C1) == "Ready"
    await house.until(WEB, "Ready")


async def test_a_cloudlet_that_was_offline_and_is_not_deleted_after_all_is_ready_with_the_agent_that_came(
    house: House,
) -> None:
    site = await stubborn(house, ready=False)
    await house.app(auto_delete=True)
    await house.deployed(cluster="autocluster")
    (hand,) = house.hands
    await hand.kill()
    await house.until("munich", "Offline")
    site.refuses, site.about = frozenset({OrderAction.DELETE}), "autocluster:web"
    deleted = await house.service.delete_cloudlet(NS, "munich", ANN)
    await house.until("munich:autocluster:web", "DeleteRequested")
    hand.start(house.hub)
    assert (await house.ended(deleted)).status == "failed"
    await house.online()
    await house.until("munich:autocluster:web", "Ready")


async def test_progress_gives_an_operation_time(house: House) -> None:
    hand = await house.cloudlet()
    gate = hold(hand)
    accepted = await create(house)
    await house.told(accepted, 1)
    before = await deadline(house, accepted, soon=True)
    marks = await house.marks(C1)
    word = ProgressMessage("still at it", marks.issued, marks.generation, hand.agent.notify, "c1")
    await hand.agent._send(word)
    await house.told(accepted, 2)
    assert await deadline(house, accepted) > before + 60.0
    gate.set()
    assert (await house.ended(accepted)).status == "succeeded"


async def deadline(house: House, accepted: Accepted, *, soon: bool = False) -> float:
    """Return when an operation has to be done; sooner than before, if so wanted."""

    async def program(tx: Tx) -> float:
        (work,) = (await tx.work([Key(NS, accepted.op.id)])).values()
        assert work.deadline is not None
        if not soon:
            return work.deadline
        near = tx.now + PATIENT
        await tx.apply(Changes(work=[replace(work, deadline=near, not_before=near)]))
        return near

    return await house.engine.store.transact(program)


async def test_progress_that_is_late_is_journaled_as_rejected(house: House) -> None:
    hand = await house.cloudlet()
    await house.cluster()
    marks = await house.marks(C1)
    await hand.agent._send(ProgressMessage("too late", marks.issued, marks.generation, hand.agent.notify, "c1"))
    async with asyncio.timeout(PATIENT):
        while "rejected: progress" not in [line.event for line in await house.history(C1)]:
            await asyncio.sleep(0.005)


async def test_a_cloudlet_has_at_most_so_many_reservable_clusters_and_the_lowest_free_number_is_taken(
    house: House,
) -> None:
    hand = await house.cloudlet()
    await house.app()
    gate = hold(hand)
    apps = [f"autocluster{n}" for n in range(MAX_RESERVABLE_CLUSTERS)]
    made = [await house.service.create_app(NS, "munich", one, "web", ANN) for one in apps]
    assert [instance_status(one.object).cluster for one in made] == [f"reservable{n}" for n in range(64)]
    with pytest.raises(LimitReached, match="64"):
        await house.service.create_app(NS, "munich", "autocluster-more", "web", ANN)
    gate.set()
    await house.ended(made[7])
    await house.ended(await house.service.delete(NS, "munich:autocluster7:web", "edge.appinst", ANN))
    await house.until_true("munich:reservable7", lambda one: not instance_status(one).reserved_by)
    again = await house.service.create_app(NS, "munich", "autocluster-more", "web", ANN)
    assert instance_status(again.object).cluster == "reservable7"


# --- idle clusters ---------------------------------------------------------------------------------------------------

IDLE = "munich:reservable0"


async def idle(house: House) -> Stubborn:
    """Have a reservable cluster that nobody uses any more."""
    site = await stubborn(house, ready=False)
    await house.app()
    await house.deployed(cluster="autocluster")
    await house.ended(await house.service.delete(NS, "munich:autocluster:web", "edge.appinst", ANN))
    await until_timed(house)
    return site


async def until_timed(house: House) -> None:
    """Wait until a timer is set that will remove what is idle."""
    async with asyncio.timeout(PATIENT):
        while not await expiry(house):
            await asyncio.sleep(0.005)


async def expiry(house: House) -> list[Timer]:
    return [one for one in await house.engine.store.reader.timers(NS, 10) if one.event == "expire"]


async def expire(house: House) -> None:
    """Let the time be over for which something may be idle."""
    (timer,) = await expiry(house)
    await house.engine.set_timer(replace(timer, due=0.0))


async def test_an_idle_cluster_that_could_not_be_removed_is_removed_later(house: House) -> None:
    site = await idle(house)
    site.refuses = frozenset({OrderAction.DELETE})
    await expire(house)
    async with asyncio.timeout(PATIENT):
        while "undone" not in [line.event for line in await house.history(IDLE)]:
            await asyncio.sleep(0.005)
    await until_timed(house)
    site.refuses = frozenset()
    await expire(house)
    await house.until(IDLE, "NotPresent")


async def test_an_idle_cluster_is_removed_when_a_failed_upgrade_has_been_settled(house: House) -> None:
    await idle(house)
    await house.ended(await house.service.upgrade(NS, "munich", "2.0", 60.0, ANN))
    assert await house.state("munich") == "UpdateError"
    (before,) = await expiry(house)
    await expire(house)
    async with asyncio.timeout(PATIENT):
        while not [one for one in await expiry(house) if 0.0 < one.due < before.due]:
            await asyncio.sleep(0.005)
    assert await house.state(IDLE) == "Ready"
    await house.service.fix(NS, "munich", ADA)
    await expire(house)
    await house.until(IDLE, "NotPresent")
