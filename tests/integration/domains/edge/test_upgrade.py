"""Upgrades of agents, as the controller sees them; with real processes they are in test_real."""

from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.agents.inprocess import InProcessDialer
from stateward.agents.messages import Goodbye, Hello, Welcome, encode, read_controller
from stateward.agents.simulation import SimulatedSite
from stateward.domains.edge.api.schemas import view
from stateward.domains.edge.errors import ActionInProgress, AgentConnectionChanged, Upgrading
from stateward.domains.edge.lifecycle import CLOUDLET, LISTENER
from stateward.domains.edge.model import CONTROLLER_NS, CloudletSpec, ClusterInst, cloudlet_status
from stateward.engine import Accepted, Refused
from stateward.errors import BadInput
from stateward.lifecycle import ADMIN, CONTROLLER
from stateward.store.changes import Changes
from stateward.store.port import Store, Tx
from stateward.store.records import Key, Object, Timer
from tests.integration.domains.edge.conftest import (
    ADA,
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


@pytest.fixture
def new_store(request: pytest.FixtureRequest) -> Callable[[], Store]:
    return fresh_store("sqlite", request)


async def request_upgrade(harness: EdgeHarness, version: str = "2.0") -> Accepted:
    return await harness.service.act(NS, "munich", "edge.cloudlet", "upgrade", ANN, {"version": version})


async def silent_agent(harness: EdgeHarness) -> AgentRunner:
    """Make a cloudlet whose agent does not answer when it is to be upgraded."""
    runner = await harness.cloudlet()

    async def nothing(_: object) -> None:
        return

    runner.agent._upgrade = nothing  # type: ignore[method-assign, assignment]
    return runner


async def test_a_new_version_that_connects_and_gathers_ends_the_upgrade(harness: EdgeHarness) -> None:
    await silent_agent(harness)
    await harness.cluster()
    accepted = await request_upgrade(harness)
    with pytest.raises(Upgrading, match="being upgraded"):
        await harness.service.update(NS, "munich:c1", "edge.clusterinst", {"nodes": 2}, ANN)
    harness.start(AgentRunner("munich", harness.runners[0].site, "2.0"))
    assert (await harness.ended(accepted)).status == "succeeded"
    found = await harness.online()
    assert cloudlet_status(found).version == "2.0"
    assert [line.event for line in await harness.history("munich")][-2:] == ["acknowledge", "ready"]


@pytest.mark.parametrize(
    ("args", "field"),
    [({"version": "../x"}, "version"), ({"version": "2\n"}, "version"), ({"version": "2", "within": "long"}, "within")],
)
async def test_an_upgrade_is_held_to_its_limits_however_it_is_asked_for(
    harness: EdgeHarness, args: dict[str, str], field: str
) -> None:
    await harness.cloudlet()
    with pytest.raises(BadInput) as caught:
        await harness.engine.act(NS, "munich", "upgrade", args=args)
    assert caught.value.field == field


async def test_an_upgrade_is_refused_while_an_instance_is_in_transition(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    gate = hold_work(runner)
    created = await harness.service.create_cluster(NS, "munich", "c1", ClusterInst(), ANN)
    with pytest.raises(ActionInProgress):
        await request_upgrade(harness)
    gate.set()
    await harness.ended(created)
    with pytest.raises(BadInput):
        await request_upgrade(harness, "1.0")


async def test_a_failed_upgrade_is_left_and_instances_with_it_until_it_is_settled(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await harness.cluster()
    operation = await harness.ended(await request_upgrade(harness))
    assert (operation.status, operation.error) == ("failed", "version 2.0 is not installed here")
    assert await harness.state("munich") == "UpdateError"
    with pytest.raises(Upgrading, match="has failed"):
        await harness.service.delete(NS, "munich:c1", "edge.clusterinst", ANN)
    with pytest.raises(Refused):
        await harness.service.fix(NS, "munich", ANN)
    await harness.service.fix(NS, "munich", ADA)
    await harness.ended(await harness.service.delete(NS, "munich:c1", "edge.clusterinst", ANN))


async def test_a_failed_upgrade_that_is_settled_without_an_agent_leaves_the_cloudlet_offline(
    harness: EdgeHarness,
) -> None:
    runner = await harness.cloudlet()
    await harness.ended(await request_upgrade(harness))
    assert (await harness.service.fix(NS, "munich", ADA)).object.state == "Ready"
    await harness.ended(await request_upgrade(harness))
    await runner.kill()
    await harness.until_true("munich", lambda one: not cloudlet_status(one).serving)
    settled = (await harness.service.fix(NS, "munich", ADA)).object
    assert (settled.state, view(settled).conditions.online) == ("Offline", False)
    harness.start(runner)
    await harness.online()


async def test_a_failed_upgrade_is_settled_only_as_what_it_is(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await harness.ended(await request_upgrade(harness))
    with pytest.raises(AgentConnectionChanged):
        await harness.engine.act(NS, "munich", "fix", actor=ADMIN, who="ada")
    assert await harness.state("munich") == "UpdateError"


async def test_a_failed_upgrade_can_be_tried_again(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    assert (await harness.ended(await request_upgrade(harness))).status == "failed"

    async def nothing(_: object) -> None:
        return

    runner.agent._upgrade = nothing  # type: ignore[method-assign, assignment]
    accepted = await request_upgrade(harness)
    harness.start(AgentRunner("munich", SimulatedSite(), "2.0"))
    assert (await harness.ended(accepted)).status == "succeeded"


async def test_when_both_agents_are_dead_time_ends_the_upgrade(harness: EdgeHarness) -> None:
    runner = await silent_agent(harness)
    accepted = await request_upgrade(harness)
    await runner.kill()
    await harness.until_true("munich", lambda one: not cloudlet_status(one).serving)
    assert await harness.state("munich") == "UpdateRequested"
    await pass_deadline(harness, accepted.op.id)
    assert (await harness.ended(accepted)).status == "failed"
    assert await harness.state("munich") == "UpdateError"
    harness.start(AgentRunner("munich", SimulatedSite()))
    await harness.until_true("munich", lambda one: cloudlet_status(one).serving > 0)
    assert await harness.state("munich") == "UpdateError"


async def test_a_successor_that_is_let_in_and_then_silent_is_timed_out_and_no_longer_wanted(
    harness: EdgeHarness,
) -> None:
    await silent_agent(harness)
    accepted = await request_upgrade(harness)
    number = cloudlet_status(await harness.get("munich")).operation
    dialer = InProcessDialer(harness.hub, NS, "munich")
    assert isinstance(await connect_as(dialer, "2.0", number), Welcome)
    assert await harness.state("munich") == "InitOk"
    await pass_deadline(harness, accepted.op.id)
    await harness.until("munich", "UpdateError")
    answer = await connect_as(dialer, "2.0", number)
    assert isinstance(answer, Goodbye)
    assert answer.final


async def connect_as(dialer: InProcessDialer, version: str, heir: int) -> object:
    end = await dialer.dial()
    await end.send(encode(Hello(version, heir)))
    return read_controller(await end.recv())


async def test_an_agent_of_another_protocol_is_told_so(harness: EdgeHarness) -> None:
    await harness.service.create_cloudlet(NS, "munich", CloudletSpec(), ANN)
    end = await InProcessDialer(harness.hub, NS, "munich").dial()
    await end.send(encode(Hello("1.0", protocol=99)))
    assert read_controller(await end.recv()) == Goodbye("protocol 99 is not spoken here, but 1", final=True)


async def test_what_was_connected_to_a_controller_that_died_is_offline_when_its_time_is_over(
    harness: EdgeHarness,
) -> None:
    await harness.engine.create(CONTROLLER_NS, "controller-dead", LISTENER.kind, "listen", actor=CONTROLLER)
    now = await harness.engine.store.reader.time()
    seen = '{"version":"1.0","issued":5,"serving":5,"controller":"controller-dead"}'
    row = Object(
        NS, "munich", CLOUDLET.kind, "Ready", now, 1, 1, None, "munich", None, "{}", "{}", None, now, seen=seen
    )

    async def program(tx: Tx) -> None:
        await tx.apply(Changes(objects=[row]))

    await harness.engine.store.transact(program)
    await harness.engine.set_timer(Timer(CONTROLLER_NS, "lapse", 0.0, 0, "controller-dead", "lapse", "[]", "{}"))
    await harness.until("munich", "Offline")


async def test_a_controller_that_was_taken_for_dead_and_is_not_enters_again(
    new_store: Callable[[], Store], tmp_path: Path
) -> None:
    # real time: it renews its lease and finds that it is gone; an early expiry leads to the same end
    async with open_harness(new_store(), tmp_path, lease_s=1.0) as harness:
        await harness.cloudlet()
        me = harness.plugin.controller_lease.id
        await harness.engine.act(CONTROLLER_NS, me, "leave", actor=CONTROLLER)
        await until(
            lambda: harness.engine.store.reader.object(Key(CONTROLLER_NS, me)),
            lambda obj: obj is not None and not obj.removed,
        )
        await harness.online()
