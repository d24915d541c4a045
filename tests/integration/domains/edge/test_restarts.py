"""Instances that keep ending: they are re-created after ever longer pauses, are never lost, and raise an alert."""

from typing import Any

import pytest

from stateward.agents.messages import AgentOrder, OrderAction
from stateward.domains.edge.model import instance_status
from stateward.domains.edge.records import restarts
from stateward.engine import Accepted
from stateward.store.errors import StoreTimeout
from stateward.store.records import Object
from tests.integration.domains.edge.conftest import ANN, NS, EdgeHarness

WEB = "munich:c1:web"


def names(found: Object) -> list[str]:
    return sorted(one.name for one in instance_status(found).alerts)


async def test_an_app_that_keeps_ending_is_in_a_crash_loop_until_it_has_run_for_long_enough(
    harness: EdgeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "FIRST_DELAY_S", 0.05)
    runner = await harness.cloudlet()
    await harness.cluster()
    await harness.app()
    await harness.deployed()
    for _ in range(restarts.CRASH_LOOP_RESTARTS):
        generation = (await harness.instance_status(WEB)).generation
        runner.site.things.pop("c1:web")
        await harness.until_renewed(WEB, generation)
    found = await harness.until_true(WEB, lambda one: names(one) == ["crash loop"])
    assert instance_status(found).restarts == restarts.CRASH_LOOP_RESTARTS
    await harness.plugin.policy_controller._reconcile_all()
    assert names(await harness.get(WEB)) == ["crash loop"]
    monkeypatch.setattr(restarts, "STABLE_AFTER_S", 0.0)
    await harness.plugin.policy_controller._reconcile_all()
    found = await harness.get(WEB)
    assert (names(found), instance_status(found).restarts) == ([], 0)
    told = [one.event for one in await harness.history(WEB) if "crash" in one.event]
    assert told == ["crash loop", "crash loop ended"]


async def test_missing_instances_are_re_created_although_the_store_did_not_answer_once(
    harness: EdgeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = await harness.cloudlet()
    await harness.cluster()
    await harness.app()
    await harness.app("api")
    await harness.deployed()
    await harness.deployed("api")
    act, failures = harness.engine.act, iter([StoreTimeout("no answer")])

    async def act_later(ns: str, object_: str, action: str, **how: Any) -> Accepted:
        if action == "re-create" and (failure := next(failures, None)) is not None:
            raise failure
        return await act(ns, object_, action, **how)

    monkeypatch.setattr(harness.engine, "act", act_later)
    runner.site.things.clear()  # the cluster and both apps
    for one in ("munich:c1", "munich:c1:api", WEB):
        await harness.until_true(one, lambda found: found.state == "Ready" and instance_status(found).restarts == 1)
    await harness.until_true(WEB, lambda found: not instance_status(found).missing)
    assert next(failures, None) is None


async def test_an_app_that_cannot_be_re_created_is_missing_and_tried_again(
    harness: EdgeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "FIRST_DELAY_S", 0.05)
    runner = await harness.cloudlet()
    await harness.cluster()
    await harness.app()
    await harness.deployed()
    broken = True

    def refuse(order: AgentOrder) -> None:
        if broken and order.work.value == "create":
            raise RuntimeError("the disk is full")

    runner.site.gate = refuse
    runner.site.things.pop("c1:web")
    found = await harness.until_true(WEB, lambda one: one.state == "Ready" and instance_status(one).restarts >= 2)
    assert instance_status(found).missing or found.op
    broken = False
    found = await harness.until_true(WEB, lambda one: one.state == "Ready" and not instance_status(one).missing)
    assert "c1:web" in runner.site.things
    failed = [one.event for one in await harness.history(WEB) if one.target == "CreateError"]
    assert "create error" in failed
    await harness.ended(await harness.service.update(NS, WEB, "edge.appinst", {"count": 2}, ANN))
    assert (await harness.instance_status(WEB)).restarts == 0  # with another spec it begins anew


async def test_the_data_of_an_app_that_cannot_be_re_created_is_kept_until_somebody_deletes_it(
    harness: EdgeHarness,
) -> None:
    runner = await harness.cloudlet()
    await harness.cluster()
    await harness.app()
    await harness.deployed()
    orders: list[tuple[OrderAction, bool]] = []

    def refuse(order: AgentOrder) -> None:
        orders.append((order.work, order.keep_data))
        if order.work is OrderAction.CREATE:
            raise RuntimeError("the disk is full")

    runner.site.gate = refuse
    runner.site.things.pop("c1:web")
    await harness.until_true(WEB, lambda one: one.state == "Ready" and instance_status(one).restarts == 1)
    assert runner.site.things["c1:web"].problem == "only its data is left"
    assert (await harness.instance_status(WEB)).missing
    await harness.ended(await harness.service.delete(NS, WEB, "edge.appinst", ANN))
    assert orders == [(OrderAction.CREATE, False), (OrderAction.DELETE, True), (OrderAction.DELETE, False)]
    assert "c1:web" not in runner.site.things


@pytest.mark.parametrize(
    ("count", "delay"), [(0, 0.0), (1, 1.0), (2, 2.0), (3, 4.0), (9, 256.0), (10, 300.0), (10_000, 300.0)]
)
def test_each_pause_is_twice_the_one_before(count: int, delay: float) -> None:
    assert restarts.restart_delay_s(count) == delay


def test_an_instance_that_has_run_for_long_enough_begins_anew() -> None:
    assert restarts.count_restart(5, 1000.0, 1001.0) == 6
    assert restarts.count_restart(5, 1000.0, 1000.0 + restarts.STABLE_AFTER_S) == 1
    assert restarts.count_restart(0, 0.0, 1e9) == 1
