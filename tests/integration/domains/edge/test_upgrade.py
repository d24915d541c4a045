"""Upgrades of agents, as the controller sees them; with real processes they are in test_real."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.agents.inprocess import InProcessDialer
from stateward.agents.messages import Goodbye, Hello, Load, Welcome, encode, read_controller
from stateward.agents.simulation import SimulatedSite
from stateward.domains.edge.api.schemas import view
from stateward.domains.edge.errors import ActionInProgress, AgentConnectionChanged, Upgrading
from stateward.domains.edge.lifecycle import CLOUDLET, LISTENER
from stateward.domains.edge.model import CONTROLLER_NS, CloudletSpec, ClusterInst, cloudlet_status, read_spec
from stateward.engine import Accepted, Refused
from stateward.errors import BadInput
from stateward.lifecycle import ADMIN, CONTROLLER
from stateward.store.changes import Changes
from stateward.store.port import Store, Tx
from stateward.store.records import Key, Object, Timer
from tests.integration.domains.edge.conftest import ADA, ANN, NS, Hand, House, hold, open_house, overdue
from tests.stores import fresh_store


@pytest.fixture
def new_store(request: pytest.FixtureRequest) -> Callable[[], Store]:
    return fresh_store("sqlite", request)


async def upgraded(house: House, version: str = "2.0") -> Accepted:
    return await house.service.upgrade(NS, "munich", version, 60.0, ANN)


async def silent(house: House) -> Hand:
    """Make a cloudlet whose agent does not answer when it is to be upgraded."""
    hand = await house.cloudlet()

    async def nothing(_: object) -> None:
        return

    hand.agent._upgrade = nothing  # type: ignore[method-assign, assignment]
    return hand


async def test_a_new_version_that_connects_and_gathers_ends_the_upgrade(house: House) -> None:
    await silent(house)
    await house.cluster()
    accepted = await upgraded(house)
    with pytest.raises(Upgrading, match="being upgraded"):
        await house.service.update(NS, "munich:c1", "edge.clusterinst", {"nodes": 2}, ANN)
    house.start(Hand("munich", house.hands[0].site, "2.0"))
    assert (await house.ended(accepted)).status == "succeeded"
    found = await house.online()
    assert cloudlet_status(found).version == "2.0"
    assert [line.event for line in await house.history("munich")][-2:] == ["acknowledge", "ready"]


@pytest.mark.parametrize(
    ("args", "field"),
    [({"version": "../x"}, "version"), ({"version": "2\n"}, "version"), ({"version": "2", "within": "long"}, "within")],
)
async def test_an_upgrade_is_held_to_its_limits_however_it_is_asked_for(
    house: House, args: dict[str, str], field: str
) -> None:
    await house.cloudlet()
    with pytest.raises(BadInput) as caught:
        await house.engine.act(NS, "munich", "upgrade", args=args)
    assert caught.value.field == field


async def test_an_upgrade_is_refused_while_an_instance_is_in_transition(house: House) -> None:
    hand = await house.cloudlet()
    gate = hold(hand)
    created = await house.service.create_cluster(NS, "munich", "c1", ClusterInst(), ANN)
    with pytest.raises(ActionInProgress):
        await upgraded(house)
    gate.set()
    await house.ended(created)
    with pytest.raises(BadInput):
        await upgraded(house, "1.0")


async def test_a_failed_upgrade_is_left_and_instances_with_it_until_it_is_settled(house: House) -> None:
    await house.cloudlet()
    await house.cluster()
    operation = await house.ended(await upgraded(house))
    assert (operation.status, operation.error) == ("failed", "version 2.0 is not installed here")
    assert await house.state("munich") == "UpdateError"
    with pytest.raises(Upgrading, match="has failed"):
        await house.service.delete(NS, "munich:c1", "edge.clusterinst", ANN)
    with pytest.raises(Refused):
        await house.service.fix(NS, "munich", ANN)
    await house.service.fix(NS, "munich", ADA)
    await house.ended(await house.service.delete(NS, "munich:c1", "edge.clusterinst", ANN))


async def test_a_failed_upgrade_that_is_settled_without_an_agent_leaves_the_cloudlet_offline(house: House) -> None:
    hand = await house.cloudlet()
    await house.ended(await upgraded(house))
    assert (await house.service.fix(NS, "munich", ADA)).object.state == "Ready"
    await house.ended(await upgraded(house))
    await hand.kill()
    await house.until_true("munich", lambda one: not cloudlet_status(one).serving)
    settled = (await house.service.fix(NS, "munich", ADA)).object
    assert (settled.state, view(settled).conditions.online) == ("Offline", False)
    house.start(hand)
    await house.online()


async def test_a_failed_upgrade_is_settled_only_as_what_it_is(house: House) -> None:
    await house.cloudlet()
    await house.ended(await upgraded(house))
    with pytest.raises(AgentConnectionChanged):
        await house.engine.act(NS, "munich", "fix", actor=ADMIN, who="ada")
    assert await house.state("munich") == "UpdateError"


async def test_a_failed_upgrade_can_be_tried_again(house: House) -> None:
    hand = await house.cloudlet()
    assert (await house.ended(await upgraded(house))).status == "failed"

    async def nothing(_: object) -> None:
        return

    hand.agent._upgrade = nothing  # type: ignore[method-assign, assignment]
    accepted = await upgraded(house)
    house.start(Hand("munich", SimulatedSite(), "2.0"))
    assert (await house.ended(accepted)).status == "succeeded"


async def test_when_both_agents_are_dead_time_ends_the_upgrade(house: House) -> None:
    hand = await silent(house)
    accepted = await upgraded(house)
    await hand.kill()
    await house.until_true("munich", lambda one: not cloudlet_status(one).serving)
    assert await house.state("munich") == "UpdateRequested"
    await overdue(house, accepted.op.id)
    assert (await house.ended(accepted)).status == "failed"
    assert await house.state("munich") == "UpdateError"
    house.start(Hand("munich", SimulatedSite()))
    await house.until_true("munich", lambda one: cloudlet_status(one).serving > 0)
    assert await house.state("munich") == "UpdateError"


async def test_a_successor_that_is_let_in_and_then_silent_is_timed_out_and_no_longer_wanted(house: House) -> None:
    await silent(house)
    accepted = await upgraded(house)
    number = cloudlet_status(await house.get("munich")).operation
    board = InProcessDialer(house.hub, NS, "munich")
    assert isinstance(await introduced(board, "2.0", number), Welcome)
    assert await house.state("munich") == "InitOk"
    await overdue(house, accepted.op.id)
    await house.until("munich", "UpdateError")
    answer = await introduced(board, "2.0", number)
    assert isinstance(answer, Goodbye)
    assert answer.final


async def introduced(board: InProcessDialer, version: str, heir: int) -> object:
    end = await board.dial()
    await end.send(encode(Hello(version, heir)))
    return read_controller(await end.recv())


async def test_an_agent_of_another_protocol_is_told_so(house: House) -> None:
    await house.service.create_cloudlet(NS, "munich", CloudletSpec(), ANN)
    end = await InProcessDialer(house.hub, NS, "munich").dial()
    await end.send(encode(Hello("1.0", protocol=99)))
    assert read_controller(await end.recv()) == Goodbye("protocol 99 is not spoken here, but 1", final=True)


async def test_what_was_connected_to_a_controller_that_died_is_offline_when_its_time_is_over(house: House) -> None:
    await house.engine.create(CONTROLLER_NS, "controller-dead", LISTENER.kind, "listen", actor=CONTROLLER)
    now = await house.engine.store.reader.time()
    seen = '{"version":"1.0","issued":5,"serving":5,"controller":"controller-dead"}'
    row = Object(
        NS, "munich", CLOUDLET.kind, "Ready", now, 1, 1, None, "munich", None, "{}", "{}", None, now, seen=seen
    )

    async def program(tx: Tx) -> None:
        await tx.apply(Changes(objects=[row]))

    await house.engine.store.transact(program)
    await house.engine.set_timer(Timer(CONTROLLER_NS, "lapse", 0.0, 0, "controller-dead", "lapse", "[]", "{}"))
    await house.until("munich", "Offline")


async def test_a_load_that_the_agent_reports_scales_its_cluster(house: House) -> None:
    hand = await house.cloudlet()
    await house.autoscale("busy", min=1, max=4, cpu=100.0)
    await house.cluster(autoscale="busy")
    await hand.agent._send(Load(hand.agent.notify, "c1", cpu=250.0))
    await house.until_true("munich:c1", lambda one: read_spec(one, ClusterInst).nodes == 3 and one.state == "Ready")


async def test_a_controller_that_was_taken_for_dead_and_is_not_enters_again(
    new_store: Callable[[], Store], tmp_path: Path
) -> None:
    async with open_house(new_store(), tmp_path, lease_s=1.0) as house:
        await house.cloudlet()
        me = house.plugin.controller_lease.id
        await house.engine.act(CONTROLLER_NS, me, "leave", actor=CONTROLLER)
        async with asyncio.timeout(60):
            while (found := await house.engine.store.reader.object(Key(CONTROLLER_NS, me))) is None or found.removed:
                await asyncio.sleep(0.01)
        await house.online()
