"""Clusters and apps from create to delete, with an agent that succeeds or fails."""

import pytest
from msgspec.structs import replace

from stateward.agents.messages import AgentReport
from stateward.agents.simulation import SimulatedSite
from stateward.domains.edge.lifecycle import IGNORE_AGENT, IGNORE_AGENT_ERRORS, IGNORE_TRANSIENT
from stateward.domains.edge.model import CloudletSpec, ClusterInst, cloudlet_status, read_spec
from stateward.engine.errors import AlreadyEnded, NotCancelled
from stateward.lifecycle import AGENT
from stateward.store.records import Key
from tests.integration.domains.edge.conftest import ADA, ANN, NS, AgentRunner, EdgeHarness, hold_work, pass_deadline

C1, WEB = "munich:c1", "munich:c1:web"


async def test_a_cluster_and_an_app_live_and_end(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    assert (await harness.cluster(nodes=2)).status == "succeeded"
    await harness.app()
    assert (await harness.deployed()).status == "succeeded"
    assert set(runner.site.things) == {"c1", "c1:web"}
    await harness.ended(await harness.service.delete(NS, WEB, "edge.appinst", ANN))
    await harness.ended(await harness.service.delete(NS, C1, "edge.clusterinst", ANN))
    assert runner.site.things == {}
    assert await harness.state(C1) == "NotPresent"


async def test_the_states_are_those_of_the_design_and_progress_is_kept(harness: EdgeHarness) -> None:
    harness.hub.retry_s = 3600.0  # an order that is sent again is answered again, and one answer does not count
    await harness.cloudlet()
    created = await harness.cluster()
    await harness.ended(await harness.service.update(NS, C1, "edge.clusterinst", {"nodes": 3}, ANN))
    await harness.ended(await harness.service.delete(NS, C1, "edge.clusterinst", ANN))
    lines = await harness.history(C1)
    assert [line.target for line in lines if line.target] == [
        "CreateRequested", "Creating", "Ready",
        "UpdateRequested", "Updating", "Ready",
        "DeletePrepare", "DeleteRequested", "Deleting", "NotPresent",
    ]  # fmt: skip
    assert not [line for line in lines if line.event.startswith("rejected") and line.actor == AGENT]
    assert "has trouble" not in [line.event for line in lines], "to wait for an agent is no trouble"
    progress = await harness.engine.store.reader.progress_of(created.key, 0)
    assert [(line.text, line.done, line.total) for line in progress] == [("step 1", 1, 1)]


async def test_an_update_without_a_change_does_nothing_at_all(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.cluster(nodes=2)
    await harness.app()
    await harness.deployed()
    before, running = await harness.engine.store.reader.objects([Key(NS, C1), Key(NS, WEB)]), dict(runner.site.things)
    service, keyed = harness.service, replace(ANN, key="once")
    for accepted in (
        await service.update(NS, C1, "edge.clusterinst", {"nodes": 2}, ANN),
        await service.update(NS, WEB, "edge.appinst", {}, ANN),
        await service.update(NS, WEB, "edge.appinst", {"count": 1}, keyed),
        await service.update(NS, WEB, "edge.appinst", {"count": 1}, keyed),
        await service.refresh(NS, WEB, ANN),
    ):
        assert accepted.operation is None
    assert await harness.engine.store.reader.objects(list(before)) == before
    assert runner.site.things == running
    changed = await harness.ended(await service.update(NS, WEB, "edge.appinst", {"count": 2}, ANN))
    assert changed.status == "succeeded"
    assert (await service.update(NS, WEB, "edge.appinst", {"count": 1}, keyed)).operation is None, "the same answer"
    assert (await harness.ended(await service.refresh(NS, WEB, ANN))).status == "succeeded"


async def test_an_operation_is_not_cancelled_while_an_agent_has_it_and_has_ended_after_that(
    harness: EdgeHarness,
) -> None:
    gate = hold_work(await harness.cloudlet())
    accepted = await harness.service.create_cluster(NS, "munich", "c1", ClusterInst(), ANN)
    with pytest.raises(NotCancelled) as refused:
        await harness.engine.cancel(NS, accepted.op.id)
    assert "operations on edge.clusterinst run to their end" in str(refused.value)
    gate.set()
    await harness.ended(accepted)
    with pytest.raises(AlreadyEnded, match="has succeeded already"):
        await harness.engine.cancel(NS, accepted.op.id)


async def test_a_create_that_fails_is_undone_until_nothing_is_left(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    operation = await harness.cluster(setup="fail")
    assert (operation.status, operation.error) == ("failed", "it was to fail")
    await harness.until(C1, "NotPresent")
    assert runner.site.things == {}


async def test_an_update_that_fails_restores_the_previous_spec_and_is_ready_only_when_the_agent_says_so(
    harness: EdgeHarness,
) -> None:
    runner = await harness.cloudlet()
    await harness.cluster(nodes=2)
    before = await harness.get(C1)
    change = {"nodes": 5, "setup": "fail"}
    assert (
        await harness.ended(await harness.service.update(NS, C1, "edge.clusterinst", change, ANN))
    ).status == "failed"
    found = await harness.until(C1, "Ready")
    assert read_spec(found, ClusterInst) == read_spec(before, ClusterInst)
    assert runner.site.things["c1"].generation == read_spec(before, ClusterInst).revision
    assert [line.event for line in await harness.history(C1)][-1] == "undone"


async def test_a_name_that_lives_again_has_a_generation_that_was_never_used(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    generations = []
    for _ in range(2):
        await harness.cluster()
        generations.append((await harness.instance_status(C1)).generation)
        await harness.ended(await harness.service.delete(NS, C1, "edge.clusterinst", ANN))
    assert generations[0] < generations[1]


async def test_words_that_do_not_count_are_journaled_and_counted(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.cluster()
    marks, notify = await harness.instance_status(C1), cloudlet_status(await harness.get("munich")).serving
    late = AgentReport("creating", marks.issued, marks.generation, notify, "c1")
    (line,) = harness.hub.connections[Key(NS, "munich")]
    for word in (late, replace(late, notify=notify - 1), replace(late, event="nonsense"), replace(late, name="c9")):
        await harness.hub.on_message(line, word)
    rejected = [one for one in await harness.history(C1) if one.event.startswith("rejected")][-3:]
    assert [one.event for one in rejected] == ["rejected: creating", "rejected: creating", "rejected: nonsense"]
    assert "no operation is under way" in str(rejected[0].reason)
    assert "old notify id" in str(rejected[1].reason)
    assert sum(harness.hub.rejected.values()) >= 4
    assert runner.site.things["c1"].whole
    assert await harness.state(C1) == "Ready"


async def test_an_administrator_may_leave_the_agent_out(harness: EdgeHarness) -> None:
    await harness.service.create_cloudlet(NS, "munich", CloudletSpec(), ANN)
    by = replace(ADA, facts=frozenset({IGNORE_AGENT}))
    created = await harness.service.create_cluster(NS, "munich", "c1", ClusterInst(), by)
    assert (await harness.ended(created)).status == "succeeded"
    assert await harness.state(C1) == "Ready"
    await harness.ended(await harness.service.delete(NS, C1, "edge.clusterinst", by))
    assert await harness.state(C1) == "NotPresent"


async def test_an_administrator_may_ignore_the_agents_errors(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    by = replace(ADA, facts=frozenset({IGNORE_AGENT_ERRORS}))
    await harness.ended(await harness.service.create_cluster(NS, "munich", "c1", ClusterInst(setup="fail"), by))
    assert await harness.state(C1) == "Ready"


async def test_an_administrator_may_delete_what_is_in_transition(harness: EdgeHarness) -> None:
    await harness.service.create_cloudlet(NS, "munich", CloudletSpec(), ANN)
    created = await harness.service.create_cluster(NS, "munich", "c1", ClusterInst(), ANN)
    by = replace(ADA, facts=frozenset({IGNORE_TRANSIENT, IGNORE_AGENT}))
    await harness.ended(await harness.service.delete(NS, C1, "edge.clusterinst", by))
    assert await harness.state(C1) == "NotPresent"
    assert (await harness.ended(created)).status == "cancelled"


async def test_a_time_out_is_an_error_with_undo_and_never_a_success(harness: EdgeHarness) -> None:
    await harness.service.create_cloudlet(NS, "munich", CloudletSpec(), ANN)
    created = await harness.service.create_cluster(NS, "munich", "c1", ClusterInst(), ANN)
    await pass_deadline(harness, created.op.id)
    assert (await harness.ended(created)).status == "failed"
    assert await harness.state(C1) == "CreateError"
    harness.start(AgentRunner("munich", SimulatedSite()))
    await harness.until(C1, "NotPresent")


async def test_a_report_of_the_work_that_timed_out_is_late(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    gate = hold_work(runner)
    created = await harness.service.create_cluster(NS, "munich", "c1", ClusterInst(), ANN)
    await harness.until_progress(created, 1)
    await pass_deadline(harness, created.op.id)
    await harness.until(C1, "CreateError")
    gate.set()
    await harness.until(C1, "NotPresent")
    assert runner.site.things == {}
    assert any(line.event == "rejected: ready" for line in await harness.history(C1))


async def test_a_cloudlet_that_goes_offline_says_why_in_its_history(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await runner.kill()
    await harness.until("munich", "Offline")
    line = (await harness.history("munich"))[-1]
    assert (line.source, line.target, line.reason) == ("Ready", "Offline", "the agent's connection is gone")
    assert (await harness.get("munich")).error is None


async def test_the_creation_of_a_cloudlet_tells_its_steps(harness: EdgeHarness) -> None:
    accepted = await harness.service.create_cloudlet(NS, "munich", CloudletSpec(), ANN)
    await harness.until_progress(accepted, 1)
    harness.start(AgentRunner("munich", SimulatedSite()))
    operation = await harness.ended(accepted)
    assert [(one.text, one.done) for one in await harness.engine.store.reader.progress_of(operation.key, 0)] == [
        ("the cloudlet waits for its agent to connect", 1),
        ("the agent, version 1.0, has connected and gathers what it has", 2),
        ("the inventory is complete: 0 things", 3),
    ]
