"""An instance that is NotPresent does not exist for any reader; its history stays."""

import pytest
from msgspec.structs import replace

from stateward.agents.messages import ENDED, AgentOrder, AgentReport, Existing, OrderAction
from stateward.agents.site import ReportProgress, SiteError
from stateward.domains.edge.lifecycle import CLUSTERINST, IGNORE_AGENT
from stateward.domains.edge.model import CloudletSpec
from stateward.engine import NotFound, Refused
from stateward.store.changes import Changes
from stateward.store.filters import Page, Selector
from stateward.store.port import Tx
from stateward.store.records import Key
from tests.integration.domains.edge.conftest import ADA, ANN, NS, AgentRunner, EdgeHarness

C1 = "munich:c1"
WITHOUT_AGENT = replace(ADA, facts=frozenset({IGNORE_AGENT}))


async def assert_absent(harness: EdgeHarness, id_: str) -> None:
    """See that an object does not exist for those who get, list and count."""
    reader = harness.engine.store.reader
    with pytest.raises(NotFound):
        await harness.engine.record(NS, id_)
    with pytest.raises(NotFound):
        await harness.engine.act(NS, id_, "delete", actor="user")
    assert id_ not in [one.id for one in await reader.list_objects(Selector(NS), Page(limit=1000))]
    assert "NotPresent" not in [state for _, state in await reader.count_states(Selector(NS))]
    assert await harness.history(id_)


def fail_creates(runner: AgentRunner) -> None:
    """Let the site of an agent fail with whatever it is to create."""
    do = runner.site.execute

    async def fail(order: AgentOrder, report_progress: ReportProgress) -> None:
        if order.work is OrderAction.CREATE:
            runner.site.things[order.name] = Existing(order.generation, whole=False)
            raise SiteError("not today")
        await do(order, report_progress)

    runner.site.execute = fail  # type: ignore[method-assign]


async def test_an_instance_whose_create_failed_exists_for_nobody_and_no_report_of_its_undo_is_rejected(
    harness: EdgeHarness,
) -> None:
    runner = await harness.cloudlet()
    fail_creates(runner)
    assert (await harness.cluster()).status == "failed"
    await harness.until(C1, "NotPresent")
    await assert_absent(harness, C1)
    assert not [one for one in await harness.history(C1) if "rejected" in one.event]
    assert not harness.hub.rejected


async def test_an_instance_that_was_deleted_without_its_agent_exists_for_nobody(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await harness.cluster()
    await harness.ended(await harness.service.delete(NS, C1, CLUSTERINST.kind, WITHOUT_AGENT))
    await assert_absent(harness, C1)


async def test_the_same_delete_finds_its_answer_when_the_instance_is_gone(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await harness.cluster()
    once = replace(ANN, key="once")
    first = await harness.service.delete(NS, C1, CLUSTERINST.kind, once)
    await harness.ended(first)
    again = await harness.service.delete(NS, C1, CLUSTERINST.kind, once)
    assert again.op.id == first.op.id


async def test_an_offline_cloudlet_is_created_again_with_a_key_and_the_same_key_finds_its_answer(
    harness: EdgeHarness,
) -> None:
    runner = await harness.cloudlet()
    await runner.kill()
    await harness.until("munich", "Offline")
    once = replace(ANN, key="once")
    first = await harness.service.create_cloudlet(NS, "munich", CloudletSpec(), once)
    again = await harness.service.create_cloudlet(NS, "munich", CloudletSpec(), once)
    assert again.op.id == first.op.id
    with pytest.raises(Refused):
        await harness.service.create_cloudlet(NS, "munich", CloudletSpec(), replace(ANN, key="new"))


async def test_the_next_life_of_a_name_uses_no_number_of_the_former_one(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await harness.cluster()
    await harness.ended(await harness.service.delete(NS, C1, CLUSTERINST.kind, ANN))
    far = (await harness.instance_status(C1)).issued + 10**9  # as if the clock had been set back since

    async def program(tx: Tx) -> None:
        key = Key(NS, C1)
        former = (await tx.objects([key]))[key]
        await tx.apply(Changes(objects=[replace(former, seen=f'{{"issued":{far}}}', version=former.version + 1)]))

    await harness.engine.store.transact(program)
    assert (await harness.cluster()).status == "succeeded"
    assert (await harness.instance_status(C1)).generation == far + 1
    assert not (await harness.engine.record(NS, C1)).removed


async def test_a_late_report_about_a_removed_instance_is_rejected_and_journaled(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.cluster()
    before = await harness.instance_status(C1)
    await harness.ended(await harness.service.delete(NS, C1, CLUSTERINST.kind, ANN))
    await runner.agent._send(AgentReport("ready", before.issued, before.generation, runner.agent.notify, "c1"))
    await harness.until_true("munich", lambda _: harness.hub.rejected.total() == 1)
    assert (await harness.history(C1))[-1].event == "rejected: ready"
    await assert_absent(harness, C1)


async def test_records_of_absent_instances_that_an_earlier_version_kept_are_removed(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await harness.cluster()
    await harness.ended(await harness.service.delete(NS, C1, CLUSTERINST.kind, ANN))

    async def program(tx: Tx) -> None:
        key = Key(NS, C1)
        found = (await tx.objects([key]))[key]
        await tx.apply(Changes(objects=[replace(found, removed=False, version=found.version + 1)]))

    await harness.engine.store.transact(program)
    await harness.plugin.policy_controller._remove_absent()
    await assert_absent(harness, C1)


async def test_a_thing_that_is_lost_before_the_end_of_its_creation_was_heard_of_is_made_again(
    harness: EdgeHarness,
) -> None:
    runner = await harness.cloudlet(missing="recreate")
    report = runner.agent._report

    async def lose(order: AgentOrder, event: str, error: str = "") -> None:
        if event == ENDED[OrderAction.CREATE]:
            runner.agent._report = report  # type: ignore[method-assign]
            runner.dialer.break_connections()
            del runner.site.things[order.name]
        await report(order, event, error)

    runner.agent._report = lose  # type: ignore[method-assign]
    assert (await harness.cluster()).status == "succeeded"
    await harness.until_true(C1, lambda one: one.state == "Ready" and "c1" in runner.site.things)
