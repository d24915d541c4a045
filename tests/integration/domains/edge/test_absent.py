"""An instance that is NotPresent does not exist: for no reader, whatever it reads with; its history stays."""

import pytest
from msgspec.structs import replace

from stateward.agents.messages import AgentOrder, AgentReport, Existing, OrderAction
from stateward.agents.site import ReportProgress, SiteError
from stateward.domains.edge.lifecycle import CLUSTERINST, IGNORE_AGENT
from stateward.engine import NotFound
from stateward.store.changes import Changes
from stateward.store.filters import Page, Selector
from stateward.store.port import Tx
from stateward.store.records import Key
from tests.integration.domains.edge.conftest import ADA, ANN, NS, Hand, House

C1 = "munich:c1"
WITHOUT_AGENT = replace(ADA, facts=frozenset({IGNORE_AGENT}))


async def nobody_finds(house: House, id_: str) -> None:
    """See that an object does not exist for those who get, list and count."""
    reader = house.engine.store.reader
    with pytest.raises(NotFound):
        await house.engine.get(NS, id_)
    with pytest.raises(NotFound):
        await house.engine.act(NS, id_, "delete", actor="user")
    assert id_ not in [one.id for one in await reader.list_objects(Selector(NS), Page(limit=1000))]
    assert "NotPresent" not in [state for _, state in await reader.count_states(Selector(NS))]
    assert await house.history(id_)


def fail_creates(hand: Hand) -> None:
    """Let the site of an agent fail with whatever it is to create."""
    do = hand.site.execute

    async def fail(order: AgentOrder, report_progress: ReportProgress) -> None:
        if order.work is OrderAction.CREATE:
            hand.site.things[order.name] = Existing(order.generation, whole=False)
            raise SiteError("not today")
        await do(order, report_progress)

    hand.site.execute = fail  # type: ignore[method-assign]


async def test_an_instance_whose_create_failed_exists_for_nobody_and_no_report_of_its_undo_is_rejected(
    house: House,
) -> None:
    hand = await house.cloudlet()
    fail_creates(hand)
    assert (await house.cluster()).status == "failed"
    await house.until(C1, "NotPresent")
    await nobody_finds(house, C1)
    assert not [one for one in await house.history(C1) if "rejected" in one.event]
    assert not house.hub.rejected


async def test_an_instance_that_was_deleted_without_its_agent_exists_for_nobody(house: House) -> None:
    await house.cloudlet()
    await house.cluster()
    await house.ended(await house.service.delete(NS, C1, CLUSTERINST.kind, WITHOUT_AGENT))
    await nobody_finds(house, C1)


async def test_the_same_delete_finds_its_answer_when_the_instance_is_gone(house: House) -> None:
    await house.cloudlet()
    await house.cluster()
    once = replace(ANN, key="once")
    first = await house.service.delete(NS, C1, CLUSTERINST.kind, once)
    await house.ended(first)
    again = await house.service.delete(NS, C1, CLUSTERINST.kind, once)
    assert again.op.id == first.op.id


async def test_the_next_life_of_a_name_uses_no_number_of_the_former_one(house: House) -> None:
    await house.cloudlet()
    await house.cluster()
    await house.ended(await house.service.delete(NS, C1, CLUSTERINST.kind, ANN))
    far = (await house.marks(C1)).issued + 10**9  # as if the clock had been set back since

    async def program(tx: Tx) -> None:
        key = Key(NS, C1)
        former = (await tx.objects([key]))[key]
        await tx.apply(Changes(objects=[replace(former, seen=f'{{"issued":{far}}}', version=former.version + 1)]))

    await house.engine.store.transact(program)
    assert (await house.cluster()).status == "succeeded"
    assert (await house.marks(C1)).generation == far + 1
    assert not (await house.engine.get(NS, C1)).removed


async def test_a_late_report_about_a_removed_instance_is_rejected_and_journaled(house: House) -> None:
    hand = await house.cloudlet()
    await house.cluster()
    before = await house.marks(C1)
    await house.ended(await house.service.delete(NS, C1, CLUSTERINST.kind, ANN))
    await hand.agent._send(AgentReport("ready", before.issued, before.generation, hand.agent.notify, "c1"))
    await house.until_true("munich", lambda _: house.hub.rejected.total() == 1)
    assert (await house.history(C1))[-1].event == "rejected: ready"
    await nobody_finds(house, C1)


async def test_records_of_absent_instances_that_an_earlier_version_kept_are_removed(house: House) -> None:
    await house.cloudlet()
    await house.cluster()
    await house.ended(await house.service.delete(NS, C1, CLUSTERINST.kind, ANN))

    async def program(tx: Tx) -> None:
        key = Key(NS, C1)
        found = (await tx.objects([key]))[key]
        await tx.apply(Changes(objects=[replace(found, removed=False, version=found.version + 1)]))

    await house.engine.store.transact(program)
    await house.plugin.policy_controller._remove_absent()
    await nobody_finds(house, C1)
