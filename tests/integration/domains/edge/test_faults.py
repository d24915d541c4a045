"""Crashes and cuts, in every state: of the agent, of the controller, of the line between them, and of both at once.

Every object ends in the right state, nothing is done twice, and nothing is left that nobody knows of.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.agents.messages import AgentOrder, Existing, OrderAction
from stateward.agents.simulation import SimulatedSite
from stateward.agents.site import SiteError
from stateward.domains.edge.model import CloudletSpec, ClusterInst, cloudlet_status, instance_status, read_spec
from stateward.engine import Accepted
from stateward.store.port import Store
from stateward.store.records import Key
from tests.integration.domains.edge.conftest import ANN, NS, Hand, House, open_house, overdue
from tests.stores import fresh_store

C1, CLUSTER = "munich:c1", "edge.clusterinst"
WORKS = {"create": "Creating", "update": "Updating", "delete": "Deleting"}


@pytest.fixture
def new_store(request: pytest.FixtureRequest) -> Callable[[], Store]:
    """Run everything on SQLite; one matrix is run on PostgreSQL as well."""
    return fresh_store("sqlite", request)


class Gated(SimulatedSite):
    """A site whose work waits until it is let go; what a crash interrupts stays in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.free = asyncio.Event()
        self.gate = lambda _: self.free


async def asked(house: House, work: str) -> Accepted:
    """Ask for something that is then under way."""
    if work == "create":
        return await house.service.create_cluster(NS, "munich", "c1", ClusterInst(nodes=2), ANN)
    if work == "update":
        return await house.service.update(NS, C1, CLUSTER, {"nodes": 3}, ANN)
    return await house.service.delete(NS, C1, CLUSTER, ANN)


async def prepared(house: House, work: str) -> Hand:
    hand = await house.cloudlet(hand=Hand("munich", Gated()))
    assert isinstance(hand.site, Gated)
    if work != "create":
        hand.site.free.set()
        await house.cluster(nodes=2)
        hand.site.free.clear()
        hand.site.applied.clear()
    return hand


async def right(house: House, hand: Hand, work: str) -> None:
    """Check that all is as it should be in the end."""
    found = await house.until(C1, "NotPresent" if work == "delete" else "Ready")
    if work == "delete":
        assert hand.site.things == {}
    else:
        assert hand.site.things == {"c1": Existing(instance_status(found).generation)}
        assert read_spec(found, ClusterInst).nodes == (2 if work == "create" else 3)
    assert max(Counter(hand.site.applied).values(), default=1) == 1
    assert cloudlet_status(await house.online()).orphans == ()


@pytest.mark.parametrize("work", WORKS)
async def test_an_agent_that_crashes_at_work_is_asked_again_and_does_it_once(house: House, work: str) -> None:
    hand = await prepared(house, work)
    await asked(house, work)
    await house.until(C1, WORKS[work])
    await hand.kill()
    await house.until("munich", "Offline")
    assert await house.state(C1) == WORKS[work]
    assert isinstance(hand.site, Gated)
    hand.site.free.set()
    hand.start(house.hub)
    await right(house, hand, work)


@pytest.mark.parametrize("work", WORKS)
async def test_an_agent_whose_line_is_cut_at_work_goes_on_and_tells_later(house: House, work: str) -> None:
    hand = await prepared(house, work)
    await asked(house, work)
    await house.until(C1, WORKS[work])
    hub, hand.board.handler = hand.board.handler, None
    hand.board.break_connections()
    await house.until("munich", "Offline")
    assert isinstance(hand.site, Gated)
    hand.site.free.set()
    while not hand.site.applied:
        await asyncio.sleep(0.005)
    hand.board.handler = hub
    await right(house, hand, work)


@pytest.mark.parametrize("work", WORKS)
async def test_what_was_asked_while_nobody_was_connected_is_done_by_who_comes(house: House, work: str) -> None:
    hand = await prepared(house, work)
    await hand.kill()
    await house.until("munich", "Offline")
    await asked(house, work)
    assert isinstance(hand.site, Gated)
    hand.site.free.set()
    hand.start(house.hub)
    await right(house, hand, work)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("both", [False, True], ids=["the controller", "both at once"])
@pytest.mark.parametrize("moment", ["Requested", "at work"])
@pytest.mark.parametrize("work", WORKS)
async def test_a_controller_that_dies_is_followed_by_another_that_settles_it(
    request: pytest.FixtureRequest, tmp_path: Path, work: str, moment: str, both: bool, store: str
) -> None:
    new_store = fresh_store(store, request)
    async with open_house(new_store(), tmp_path) as house:
        hand = await prepared(house, work)
        assert isinstance(hand.site, Gated)
        if moment == "Requested":
            await hand.kill()
        await asked(house, work)
        await house.until(C1, f"{work.capitalize()}Requested" if moment == "Requested" else WORKS[work])
        if both and moment != "Requested":
            await hand.kill()
        house.hands.clear()
        hand.board.handler = None
    async with open_house(new_store(), tmp_path) as house:
        house.hands.append(hand)
        hand.site.free.set()
        if both or moment == "Requested":
            hand.start(house.hub)
        hand.board.handler = house.hub
        await right(house, hand, work)


async def test_an_agent_that_crashes_at_work_again_and_again_is_given_up(house: House) -> None:
    hand = await prepared(house, "create")
    accepted = await asked(house, "create")
    for _ in range(2):
        await house.until(C1, "Creating")
        while "c1" not in hand.site.things:
            await asyncio.sleep(0.005)
        await hand.kill()
        await house.until("munich", "Offline")
        hand.start(house.hub)
        await house.online()
    assert (await house.ended(accepted)).status == "failed"
    assert isinstance(hand.site, Gated)
    hand.site.free.set()
    await house.until(C1, "NotPresent")
    assert hand.site.things == {}


# --- what is missing, and what nobody asked for ----------------------------------------------------------------------


async def test_what_is_missing_is_marked_and_created_anew_where_policy_says_so(house: House) -> None:
    hand = await house.cloudlet()
    await house.cluster()
    await house.app()
    await house.deployed()
    await hand.kill()
    hand.site.things.clear()
    befores = {thing: (await house.marks(thing)).generation for thing in (C1, "munich:c1:web")}
    hand.start(house.hub)
    for thing, before in befores.items():
        await house.renewed(thing, before)
    assert set(hand.site.things) == {"c1", "c1:web"}
    assert "re-create" in [line.event for line in await house.history(C1)]


async def test_what_is_missing_is_only_marked_where_policy_says_so(house: House) -> None:
    hand = await house.cloudlet(missing="leave")
    await house.cluster()
    hand.site.things["c1"] = Existing(hand.site.things["c1"].generation, whole=False)
    await house.until_true(C1, lambda one: instance_status(one).missing)
    assert await house.state(C1) == "Ready"
    hand.site.things["c1"] = Existing(hand.site.things["c1"].generation)
    await house.until_true(C1, lambda one: not instance_status(one).missing)


@pytest.mark.parametrize("policy", ["report", "remove"])
async def test_an_orphan_is_reported_and_removed_only_by_policy(house: House, policy: str) -> None:
    site = SimulatedSite()
    site.things["stray"] = Existing(7)
    await house.cloudlet(hand=Hand("munich", site), orphans=policy)
    if policy == "remove":
        await house.until_true("munich", lambda one: cloudlet_status(one).orphans == ())
    lines = [line.event for line in await house.history("munich")]
    assert "orphan" in lines
    assert ("orphan removed" in lines) == (policy == "remove")
    assert ("stray" in site.things) == (policy == "report")


async def test_a_name_that_an_orphan_had_can_be_used_at_once(house: House) -> None:
    site = SimulatedSite()
    site.things["c1"] = Existing(7)
    await house.cloudlet(hand=Hand("munich", site), orphans="remove")
    await house.until_true("munich", lambda one: cloudlet_status(one).orphans == ())
    assert (await house.cluster()).status == "succeeded"


# --- the agent's own guard -------------------------------------------------------------------------------------------


async def test_an_agent_at_work_on_a_cluster_is_busy_for_what_is_in_it(house: House) -> None:
    hand = await house.cloudlet(hand=Hand("munich", Gated()))
    assert isinstance(hand.site, Gated)
    said: list[str] = []
    agent = hand.agent

    async def noted(order: AgentOrder, event: str, error: str = "") -> None:
        said.append(f"{order.name} {event}")

    agent._report = noted  # type: ignore[method-assign]
    notify = agent.notify
    await agent._handle_order(AgentOrder(OrderAction.CREATE, 1, 1, notify, "c1"))
    await agent._handle_order(AgentOrder(OrderAction.CREATE, 2, 2, notify, "c1:web", "c1"))
    await agent._handle_order(AgentOrder(OrderAction.DELETE, 3, 1, notify, "c1"))
    await agent._handle_order(AgentOrder(OrderAction.CREATE, 4, 4, notify, "c2"))
    assert said == ["c1 creating", "c1:web busy", "c1 busy", "c2 creating"]
    hand.site.free.set()


async def test_a_newer_connection_makes_the_older_one_count_for_nothing(house: House) -> None:
    hand = await house.cloudlet()
    (old,) = house.hub.connections[Key(NS, "munich")]
    hand.board.handler = None  # or the two would take the place of each other for ever
    house.start(Hand("munich", SimulatedSite()))
    await house.until_true("munich", lambda one: cloudlet_status(one).serving > old.notify)
    await house.online()
    await house.hub.on_closed(old)
    assert await house.state("munich") == "Ready"
    await hand.kill()


async def test_a_cloudlet_that_is_deleted_dismisses_its_agent(house: House) -> None:
    hand = await house.cloudlet()
    await house.ended(await house.service.delete_cloudlet(NS, "munich", ANN))
    assert hand.task is not None
    await asyncio.wait_for(hand.task, 60)


async def leaving(house: House) -> tuple[Hand, Accepted]:
    """Delete a cloudlet, whose agent is killed while it removes what goes along."""
    hand = await house.cloudlet(hand=Hand("munich", Gated()))
    assert isinstance(hand.site, Gated)
    hand.site.free.set()
    await house.app(auto_delete=True)
    await house.deployed(cluster="autocluster")
    hand.site.free.clear()
    accepted = await house.service.delete_cloudlet(NS, "munich", ANN)
    await house.until("munich:autocluster:web", "Deleting")
    await hand.kill()
    hand.site.free.set()
    await house.until_true("munich", lambda one: not cloudlet_status(one).serving)
    assert await house.state("munich") == "DeletePrepare"
    return hand, accepted


async def test_an_agent_that_crashes_while_its_cloudlet_is_deleted_is_let_in_once_more(house: House) -> None:
    hand, accepted = await leaving(house)
    hand.start(house.hub)
    assert (await house.ended(accepted)).status == "succeeded"
    assert hand.site.things == {}
    assert hand.task is not None
    await asyncio.wait_for(hand.task, 60)


async def test_a_cloudlet_that_is_not_deleted_after_all_is_offline_if_its_agent_has_left(house: House) -> None:
    hand, accepted = await leaving(house)
    held_by = (await house.get("munich:autocluster:web")).op
    assert held_by is not None
    await overdue(house, held_by)
    operation = await house.ended(accepted)
    assert (operation.status, operation.error) == ("failed", "in use by munich:autocluster:web")
    assert await house.state("munich") == "Offline"
    hand.start(house.hub)
    await house.online()
    await house.until("munich:autocluster:web", "Ready")


async def test_an_agent_that_cannot_gather_leaves_the_cloudlet_offline_with_the_reason(house: House) -> None:
    class Blind(SimulatedSite):
        async def observe(self) -> dict[str, Existing]:
            raise SiteError("it is dark")

    accepted = await house.service.create_cloudlet(NS, "munich", CloudletSpec(), ANN)
    house.start(Hand("munich", Blind()))
    assert "it is dark" in str((await house.ended(accepted)).error)
