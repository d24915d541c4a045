"""Clusters and apps from their creation to their end, with an agent that works as it should, or cannot."""

import pytest
from msgspec.structs import replace

from stateward.agents.messages import AgentReport
from stateward.agents.simulation import SimulatedSite
from stateward.domains.edge.lifecycle import IGNORE_AGENT, IGNORE_AGENT_ERRORS, IGNORE_TRANSIENT
from stateward.domains.edge.model import CloudletSpec, ClusterInst, cloudlet_status, read_spec
from stateward.engine.errors import AlreadyEnded, NotCancelled
from stateward.lifecycle import AGENT
from stateward.store.records import Key
from tests.integration.domains.edge.conftest import ADA, ANN, NS, Hand, House, hold, overdue

C1, WEB = "munich:c1", "munich:c1:web"


async def test_a_cluster_and_an_app_live_and_end(house: House) -> None:
    hand = await house.cloudlet()
    assert (await house.cluster(nodes=2)).status == "succeeded"
    await house.app()
    assert (await house.deployed()).status == "succeeded"
    assert set(hand.site.things) == {"c1", "c1:web"}
    await house.ended(await house.service.delete(NS, WEB, "edge.appinst", ANN))
    await house.ended(await house.service.delete(NS, C1, "edge.clusterinst", ANN))
    assert hand.site.things == {}
    assert await house.state(C1) == "NotPresent"


async def test_the_states_are_those_of_the_design_and_progress_is_kept(house: House) -> None:
    house.hub.retry_s = 3600.0  # an order that is sent again is answered again, and one answer does not count
    await house.cloudlet()
    created = await house.cluster()
    await house.ended(await house.service.update(NS, C1, "edge.clusterinst", {"nodes": 3}, ANN))
    await house.ended(await house.service.delete(NS, C1, "edge.clusterinst", ANN))
    lines = await house.history(C1)
    assert [line.target for line in lines if line.target] == [
        "CreateRequested", "Creating", "Ready",
        "UpdateRequested", "Updating", "Ready",
        "DeletePrepare", "DeleteRequested", "Deleting", "NotPresent",
    ]  # fmt: skip
    assert not [line for line in lines if line.event.startswith("rejected") and line.actor == AGENT]
    assert "has trouble" not in [line.event for line in lines], "to wait for an agent is no trouble"
    progress = await house.engine.store.reader.progress_of(created.key, 0)
    assert [(line.text, line.done, line.total) for line in progress] == [("step 1", 1, 1)]


async def test_an_operation_is_not_cancelled_while_an_agent_has_it_and_has_ended_after_that(house: House) -> None:
    gate = hold(await house.cloudlet())
    accepted = await house.service.create_cluster(NS, "munich", "c1", ClusterInst(), ANN)
    with pytest.raises(NotCancelled) as refused:
        await house.engine.cancel(NS, accepted.op.id)
    assert "operations on edge.clusterinst run to their end" in str(refused.value)
    gate.set()
    await house.ended(accepted)
    with pytest.raises(AlreadyEnded, match="has succeeded already"):
        await house.engine.cancel(NS, accepted.op.id)


async def test_a_create_that_fails_is_undone_until_nothing_is_left(house: House) -> None:
    hand = await house.cloudlet()
    operation = await house.cluster(setup="fail")
    assert (operation.status, operation.error) == ("failed", "it was to fail")
    await house.until(C1, "NotPresent")
    assert hand.site.things == {}


async def test_an_update_that_fails_restores_the_previous_spec_and_is_ready_only_when_the_agent_says_so(
    house: House,
) -> None:
    hand = await house.cloudlet()
    await house.cluster(nodes=2)
    before = await house.get(C1)
    change = {"nodes": 5, "setup": "fail"}
    assert (await house.ended(await house.service.update(NS, C1, "edge.clusterinst", change, ANN))).status == "failed"
    found = await house.until(C1, "Ready")
    assert read_spec(found, ClusterInst) == read_spec(before, ClusterInst)
    assert hand.site.things["c1"].generation == read_spec(before, ClusterInst).revision
    assert [line.event for line in await house.history(C1)][-1] == "undone"


async def test_a_name_that_lives_again_has_a_generation_that_was_never_used(house: House) -> None:
    await house.cloudlet()
    generations = []
    for _ in range(2):
        await house.cluster()
        generations.append((await house.marks(C1)).generation)
        await house.ended(await house.service.delete(NS, C1, "edge.clusterinst", ANN))
    assert generations[0] < generations[1]


async def test_words_that_do_not_count_are_journaled_and_counted(house: House) -> None:
    hand = await house.cloudlet()
    await house.cluster()
    marks, notify = await house.marks(C1), cloudlet_status(await house.get("munich")).serving
    late = AgentReport("creating", marks.issued, marks.generation, notify, "c1")
    (line,) = house.hub.connections[Key(NS, "munich")]
    for word in (late, replace(late, notify=notify - 1), replace(late, event="nonsense"), replace(late, name="c9")):
        await house.hub.on_message(line, word)
    rejected = [one for one in await house.history(C1) if one.event.startswith("rejected")][-3:]
    assert [one.event for one in rejected] == ["rejected: creating", "rejected: creating", "rejected: nonsense"]
    assert "no operation is under way" in str(rejected[0].reason)
    assert "old notify id" in str(rejected[1].reason)
    assert sum(house.hub.rejected.values()) >= 4
    assert hand.site.things["c1"].whole
    assert await house.state(C1) == "Ready"


async def test_an_administrator_may_leave_the_agent_out(house: House) -> None:
    await house.service.create_cloudlet(NS, "munich", CloudletSpec(), ANN)
    by = replace(ADA, facts=frozenset({IGNORE_AGENT}))
    created = await house.service.create_cluster(NS, "munich", "c1", ClusterInst(), by)
    assert (await house.ended(created)).status == "succeeded"
    assert await house.state(C1) == "Ready"
    await house.ended(await house.service.delete(NS, C1, "edge.clusterinst", by))
    assert await house.state(C1) == "NotPresent"


async def test_an_administrator_may_ignore_the_agents_errors(house: House) -> None:
    await house.cloudlet()
    by = replace(ADA, facts=frozenset({IGNORE_AGENT_ERRORS}))
    await house.ended(await house.service.create_cluster(NS, "munich", "c1", ClusterInst(setup="fail"), by))
    assert await house.state(C1) == "Ready"


async def test_an_administrator_may_delete_what_is_in_transition(house: House) -> None:
    await house.service.create_cloudlet(NS, "munich", CloudletSpec(), ANN)
    created = await house.service.create_cluster(NS, "munich", "c1", ClusterInst(), ANN)
    by = replace(ADA, facts=frozenset({IGNORE_TRANSIENT, IGNORE_AGENT}))
    await house.ended(await house.service.delete(NS, C1, "edge.clusterinst", by))
    assert await house.state(C1) == "NotPresent"
    assert (await house.ended(created)).status == "cancelled"


async def test_a_time_out_is_an_error_with_undo_and_never_a_success(house: House) -> None:
    await house.service.create_cloudlet(NS, "munich", CloudletSpec(), ANN)
    created = await house.service.create_cluster(NS, "munich", "c1", ClusterInst(), ANN)
    await overdue(house, created.op.id)
    assert (await house.ended(created)).status == "failed"
    assert await house.state(C1) == "CreateError"
    house.start(Hand("munich", SimulatedSite()))
    await house.until(C1, "NotPresent")


async def test_a_report_of_the_work_that_timed_out_is_late(house: House) -> None:
    hand = await house.cloudlet()
    gate = hold(hand)
    created = await house.service.create_cluster(NS, "munich", "c1", ClusterInst(), ANN)
    await house.told(created, 1)
    await overdue(house, created.op.id)
    await house.until(C1, "CreateError")
    gate.set()
    await house.until(C1, "NotPresent")
    assert hand.site.things == {}
    assert any(line.event == "rejected: ready" for line in await house.history(C1))


async def test_a_cloudlet_that_goes_offline_says_why_in_its_history(house: House) -> None:
    hand = await house.cloudlet()
    await hand.kill()
    await house.until("munich", "Offline")
    line = (await house.history("munich"))[-1]
    assert (line.source, line.target, line.reason) == ("Ready", "Offline", "the agent's connection is gone")
    assert (await house.get("munich")).error is None
