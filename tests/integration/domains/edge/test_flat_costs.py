"""What the controller's loops read, send and keep, when there is a lot that is none of their business."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stateward.domains.edge.lifecycle import CLOUDLET, CLUSTERINST
from stateward.domains.edge.model import ClusterInst, InstanceStatus, instance_status
from stateward.engine import queries
from stateward.store.changes import Changes
from stateward.store.filters import Page, Selector
from stateward.store.port import Store
from stateward.store.records import Key, Object, to_json
from tests.integration.domains.edge.conftest import ANN, NS, EdgeHarness, open_harness
from tests.waiting import until

C1 = "munich:c1"


def cluster_row(id_: str, state: str, status: InstanceStatus | None = None, op: str | None = None) -> Object:
    spec, seen = to_json(ClusterInst()), to_json(status or InstanceStatus())
    parent = id_.partition(":")[0]
    return Object(NS, id_, CLUSTERINST.kind, state, 0.0, 1, 1, op, id_, parent, spec, "{}", None, 0.0, seen=seen)


async def write(harness: EdgeHarness, *rows: Object) -> None:
    await harness.engine.store.transact(lambda tx: tx.apply(Changes(objects=list(rows))))


async def test_an_order_is_sent_again_however_many_wait_for_other_agents(
    harness: EdgeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.cloudlet()
    sent: set[str] = set()

    async def send_due_order(key: Key, patience: float) -> None:
        sent.add(key.id)

    monkeypatch.setattr(harness.hub, "send_due_order", send_due_order)
    waiting = (cluster_row(f"absent:c{number:04}", "CreateRequested", op="none") for number in range(1001))
    await write(harness, *waiting, cluster_row(C1, "CreateRequested", op="none"))
    await harness.hub._resend_overdue_orders(asyncio.get_running_loop().time())
    await until(lambda: bool(sent))
    assert sent == {C1}


async def test_an_instance_whose_undos_have_failed_is_asked_about_no_more(
    harness: EdgeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.cloudlet()
    sent: list[str] = []

    async def send_due_order(key: Key, patience: float) -> None:
        sent.append(key.id)

    monkeypatch.setattr(harness.hub, "send_due_order", send_due_order)
    undone = InstanceStatus(issued=9, generation=7, tries=2)
    undoing = InstanceStatus(issued=9, operation=9, generation=7, tries=2, undoing=True)
    await write(
        harness,
        cluster_row("munich:at-rest", "CreateError", undone),
        cluster_row("munich:undoing", "CreateError", undoing),
        cluster_row("munich:yet-to-undo", "CreateError", InstanceStatus(issued=7, generation=7)),
    )
    await harness.hub._resend_overdue_orders(asyncio.get_running_loop().time())
    await until(lambda: len(sent) >= 2)
    assert set(sent) == {"munich:undoing", "munich:yet-to-undo"}


async def test_missing_instances_are_forgotten_where_they_are_left_and_found_when_the_policy_changes(
    harness: EdgeHarness,
) -> None:
    runner = await harness.cloudlet(missing="leave")
    await harness.cluster()
    before = (await harness.instance_status(C1)).generation
    runner.site.things.pop("c1")
    await harness.until_true(C1, lambda one: instance_status(one).missing)
    await until(lambda: not harness.hub._missing)
    change = {"missing": "recreate"}
    await harness.service.act(NS, "munich", CLOUDLET.kind, "change", ANN, args={"change": change})
    await harness.until_renewed(C1, before)
    await until(lambda: not harness.hub._missing)


async def test_missing_instances_of_a_cloudlet_that_is_gone_are_forgotten(harness: EdgeHarness) -> None:
    harness.hub._add_missing(Key(NS, "never-there"), ["c1"])
    await until(lambda: not harness.hub._missing)


async def test_a_connection_keeps_no_order_for_an_instance_that_was_deleted(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await harness.cluster("c2")
    for _ in range(2):
        await harness.cluster()
        await harness.ended(await harness.service.delete(NS, C1, CLUSTERINST.kind, ANN))
    (connection,) = harness.hub.connections[Key(NS, "munich")]
    await until(lambda: "c1" not in connection.sent_orders)
    assert set(connection.sent_orders) == {"c2"}


# --- rounds of the policy controller ---------------------------------------------------------------------------------


async def calls_of_a_round(harness: EdgeHarness, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the queries and the transactions of a round."""
    calls: Counter[str] = Counter()
    engine, ours = harness.engine, asyncio.current_task()

    def count(owner: object, name: str) -> None:
        call = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            calls[name] += asyncio.current_task() is ours
            return call(*args, **kwargs)

        patch.setattr(owner, name, counted)

    with monkeypatch.context() as patch:
        for name in ("object", "objects", "list_objects"):
            count(engine.store.reader, name)
        count(engine.store, "transact")
        await harness.plugin.policy_controller._reconcile_all()
    return calls


async def test_a_round_asks_and_writes_no_more_for_more_apps_and_cloudlets(
    harness: EdgeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.cloudlet()
    await harness.cluster()
    await harness.autoprov("near", "munich", min=0)
    for name in ("plain", "provided"):
        await harness.app(f"{name}0", autoprov="near" if name == "provided" else "")
        await harness.deployed(f"{name}0")
    before = await calls_of_a_round(harness, monkeypatch)
    assert before["transact"] == 0
    await harness.cloudlet("berlin")
    for number in range(1, 5):
        await harness.app(f"plain{number}")
        await harness.app(f"provided{number}", autoprov="near")
        await harness.deployed(f"plain{number}")
        await harness.deployed(f"provided{number}")
    assert await calls_of_a_round(harness, monkeypatch) == before


async def test_one_of_the_processes_with_a_worker_does_the_rounds(
    new_store: Callable[[], Store], tmp_path: Path
) -> None:
    async with (
        open_harness(new_store(), tmp_path / "a", works=False) as idle,
        open_harness(new_store(), tmp_path / "b") as one,
        open_harness(new_store(), tmp_path / "c") as other,
    ):
        first, second = sorted((one, other), key=lease_id)
        leases = [each.plugin.controller_lease for each in (idle, first, second)]
        assert [await each.is_first_worker() for each in leases] == [False, True, False]
        await first.plugin.controller_lease.release()
        assert await second.plugin.controller_lease.is_first_worker()


def lease_id(harness: EdgeHarness) -> str:
    return harness.plugin.controller_lease.id


async def test_lists_are_read_page_by_page_to_their_end(harness: EdgeHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "PAGE_SIZE", 2)
    reader, limits, ours = harness.engine.store.reader, set(), asyncio.current_task()
    list_objects = reader.list_objects

    async def limited(chosen: Selector, page: Page) -> list[Object]:
        if asyncio.current_task() is ours:
            limits.add(page.limit)
        return await list_objects(chosen, page)

    monkeypatch.setattr(reader, "list_objects", limited)
    await write(harness, *(cluster_row(f"munich:c{number}", "Ready") for number in range(5)))
    assert len(await harness.service.list_all(NS, CLUSTERINST.kind)) == 5
    assert limits == {2}
