"""An administrator's overrides: they apply to dependents, and the orphans that they leave are reported at once."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from stateward.agents.messages import AgentOrder, Existing
from stateward.agents.simulation import SimulatedSite
from stateward.agents.site import ReportProgress, SiteError
from stateward.domains.edge import model
from stateward.domains.edge.api.schemas import accepted_view, view
from stateward.domains.edge.cli.instance_requests import conditions_text
from stateward.domains.edge.errors import OrphansLeft
from stateward.domains.edge.handlers import Handlers
from stateward.domains.edge.lifecycle import (
    APPINST,
    CLOUDLET,
    CLUSTERINST,
    IGNORE_AGENT,
    IGNORE_AGENT_ERRORS,
    IGNORE_TRANSIENT,
)
from stateward.domains.edge.lookups import save_status, unit_of_work
from stateward.domains.edge.model import CloudletSpec, CloudletStatus, ClusterInst, cloudlet_status, instance_status
from stateward.engine import Ending, Job, NotFound, Refused
from stateward.store.port import Store, Tx
from stateward.store.records import Key
from tests.integration.domains.edge.conftest import ADA, ANN, NS, AgentRunner, EdgeHarness, hold_work, open_harness

C1, WEB = "munich:c1", "munich:c1:web"
WITHOUT_AGENT = replace(ADA, facts=frozenset({IGNORE_AGENT}))
AT_ANY_TIME = replace(ADA, facts=frozenset({IGNORE_TRANSIENT}))
DESPITE_ERRORS = replace(ADA, facts=frozenset({IGNORE_AGENT_ERRORS}))


async def with_app(harness: EdgeHarness) -> None:
    await harness.cluster()
    await harness.app(auto_delete=True)
    await harness.deployed()


def fail_deletes(runner: AgentRunner) -> None:
    """Let the site of an agent fail with whatever it is to delete."""
    do = runner.site.execute

    async def fail(order: AgentOrder, report_progress: ReportProgress) -> None:
        if order.work == "delete":
            raise SiteError("it cannot be deleted")
        await do(order, report_progress)

    runner.site.execute = fail  # type: ignore[method-assign]


async def test_a_cluster_and_its_apps_are_deleted_without_an_agent(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await with_app(harness)
    await runner.kill()
    await harness.until("munich", "Offline")
    operation = await harness.ended(await harness.service.delete(NS, C1, CLUSTERINST.kind, WITHOUT_AGENT))
    assert operation.status == "succeeded", operation.error
    assert [await harness.state(one) for one in (C1, WEB)] == ["NotPresent"] * 2
    assert [one.who for one in await harness.history(WEB) if one.event == "delete"] == ["edge"]


async def test_a_cloudlet_and_what_goes_along_are_deleted_without_an_agent(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.app(auto_delete=True)
    await harness.deployed(cluster="autocluster1")
    await runner.kill()
    await harness.until("munich", "Offline")
    operation = await harness.ended(await harness.service.delete(NS, "munich", "edge.cloudlet", WITHOUT_AGENT))
    assert operation.status == "succeeded", operation.error
    for one in ("munich:autocluster1:web", "munich:reservable0"):
        assert await harness.state(one) == "NotPresent"


async def test_a_cluster_is_deleted_with_an_app_on_which_something_is_under_way(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.cluster()
    await harness.app(auto_delete=True)
    gate = hold_work(runner)
    begun = await harness.service.create_app(NS, "munich", "c1", "web", ANN)
    await harness.until(WEB, "Creating")
    accepted = await harness.service.delete(NS, C1, CLUSTERINST.kind, AT_ANY_TIME)
    await harness.until(WEB, "DeleteRequested")
    gate.set()
    operation = await harness.ended(accepted)
    assert operation.status == "succeeded", operation.error
    assert (await harness.ended(begun)).status == "cancelled"
    assert [await harness.state(one) for one in (C1, WEB)] == ["NotPresent"] * 2
    assert runner.site.things == {}


async def test_a_cluster_is_deleted_with_an_app_that_its_agent_cannot_delete(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await with_app(harness)
    fail_deletes(runner)
    operation = await harness.ended(await harness.service.delete(NS, C1, CLUSTERINST.kind, DESPITE_ERRORS))
    assert operation.status == "succeeded", operation.error
    assert [await harness.state(one) for one in (C1, WEB)] == ["NotPresent"] * 2


async def test_the_cluster_of_an_autocluster_is_made_without_an_agent_too(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await runner.kill()
    await harness.until("munich", "Offline")
    await harness.app()
    operation = await harness.ended(
        await harness.service.create_app(NS, "munich", "autocluster1", "web", WITHOUT_AGENT)
    )
    assert operation.status == "succeeded", operation.error
    assert await harness.state("munich:reservable0") == "Ready"


async def test_an_end_without_the_agent_keeps_what_was_written_since_its_claim(
    new_store: Callable[[], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed, opened, request_agent = asyncio.Event(), asyncio.Event(), Handlers.request_agent

    async def held_up(handlers: Handlers, job: Job) -> Ending:
        if job.action == "update":
            claimed.set()
            await opened.wait()
        return await request_agent(handlers, job)

    monkeypatch.setattr(Handlers, "request_agent", held_up)

    async def write(tx: Tx) -> None:
        async with unit_of_work(tx, [Key(NS, C1)]) as uow:
            found = uow.objects[Key(NS, C1)]
            save_status(uow, found, replace(instance_status(found), reserved_by="umbrella"))

    async with open_harness(new_store(), tmp_path) as harness:
        await harness.cloudlet()
        await harness.cluster()
        accepted = await harness.service.update(NS, C1, CLUSTERINST.kind, {"nodes": 2}, WITHOUT_AGENT)
        await claimed.wait()
        await harness.engine.store.transact(write)
        opened.set()
        assert (await harness.ended(accepted)).status == "succeeded"
        found = await harness.get(C1)
        status = instance_status(found)
        assert (found.state, status.reserved_by, status.spec) == ("Ready", "umbrella", found.spec)
        assert (status.operation, status.confirmed) == (0, status.generation)


async def test_what_is_deleted_without_its_agent_is_an_orphan_at_once(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await with_app(harness)
    before = runner.agent.notify
    await harness.ended(await harness.service.delete(NS, C1, CLUSTERINST.kind, WITHOUT_AGENT))
    await harness.until_true("munich", lambda one: cloudlet_status(one).orphans == ("c1", "c1:web"))
    assert runner.agent.notify != before


async def test_what_is_deleted_without_its_agent_is_removed_where_orphans_are(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet(orphans="remove")
    await harness.cluster()
    await harness.ended(await harness.service.delete(NS, C1, CLUSTERINST.kind, WITHOUT_AGENT))
    await harness.until_true("munich", lambda _: runner.site.things == {})


async def test_what_is_made_without_its_agent_is_missing_at_once(harness: EdgeHarness) -> None:
    await harness.cloudlet(missing="leave")
    await harness.ended(await harness.service.create_cluster(NS, "munich", "c1", ClusterInst(), WITHOUT_AGENT))
    await harness.until_true(C1, lambda one: one.state == "Ready" and instance_status(one).missing)


async def test_an_app_that_is_deleted_alone_without_its_agent_is_an_orphan_too(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await with_app(harness)
    await harness.ended(await harness.service.delete(NS, WEB, APPINST.kind, WITHOUT_AGENT))
    await harness.until_true("munich", lambda one: cloudlet_status(one).orphans == ("c1:web",))


async def with_orphan(harness: EdgeHarness) -> None:
    """Have a cloudlet with an orphan that is known."""
    await harness.cluster()
    await harness.ended(await harness.service.delete(NS, C1, CLUSTERINST.kind, WITHOUT_AGENT))
    await harness.until_true("munich", lambda one: cloudlet_status(one).orphans == ("c1",))
    await harness.online()


async def test_a_cloudlet_with_orphans_is_deleted_only_when_its_agent_has_removed_them(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await with_orphan(harness)
    with pytest.raises(OrphansLeft, match=r"orphans run at cloudlet munich: c1\. .*--orphans remove.*--ignore agent"):
        await harness.service.delete(NS, "munich", "edge.cloudlet", ANN)
    assert runner.site.things.keys() == {"c1"}
    await harness.service.act(NS, "munich", "edge.cloudlet", "change", ANN, {"change": {"orphans": "remove"}})
    await harness.until_true("munich", lambda one: cloudlet_status(one).orphans == ())
    await harness.online()
    assert (await harness.ended(await harness.service.delete(NS, "munich", "edge.cloudlet", ANN))).status == "succeeded"
    assert runner.site.things == {}


async def test_of_many_orphans_a_cloudlet_names_the_first_and_counts_all(
    harness: EdgeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "MAX_LISTED_ORPHANS", 3)
    site = SimulatedSite()
    site.things.update((f"stray{number}", Existing(7)) for number in range(9))
    await harness.cloudlet(runner=AgentRunner("munich", site))
    conditions = view(await harness.online()).conditions
    assert (conditions.orphans, conditions.orphan_count) == (("stray0", "stray1", "stray2"), 9)
    assert "orphans: stray0, stray1, stray2 and 6 others" in conditions_text(conditions)
    with pytest.raises(OrphansLeft, match=r"munich: stray0, stray1, stray2 and 6 others\. "):
        await harness.service.delete(NS, "munich", "edge.cloudlet", ANN)
    await harness.service.act(NS, "munich", "edge.cloudlet", "change", ANN, {"change": {"orphans": "remove"}})
    await harness.until_true("munich", lambda one: cloudlet_status(one).orphan_count == 0)
    assert site.things == {}
    lines = [one.reason or "" for one in await harness.history("munich") if one.event == "orphan"]
    assert sorted(line.split(" at ")[0] for line in lines) == [  # once, though the inventory came again
        "9 things exist",
        *(f"stray{number} exists" for number in range(3)),
    ]


async def test_an_administrator_may_leave_orphans_and_is_told_their_names(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await with_orphan(harness)
    await harness.app(auto_delete=True)
    await harness.deployed(cluster="autocluster1")
    accepted = await harness.service.delete(NS, "munich", "edge.cloudlet", WITHOUT_AGENT)
    left = ("autocluster1:web", "c1", "reservable0")
    assert accepted_view(accepted).object.conditions.orphans == left
    assert (await harness.ended(accepted)).status == "succeeded"
    (line,) = [one for one in await harness.history("munich") if one.event == "orphans left"]
    assert (line.reason, line.who) == (", ".join(left), "ada")


async def test_a_cloudlet_to_which_no_agent_has_connected_is_deleted_at_once(harness: EdgeHarness) -> None:
    begun = await harness.service.create_cloudlet(NS, "typo", CloudletSpec(), ANN)
    with pytest.raises(Refused):
        await harness.service.delete(NS, "typo", CLOUDLET.kind, ADA)
    operation = await harness.ended(await harness.service.delete(NS, "typo", CLOUDLET.kind, AT_ANY_TIME))
    assert operation.status == "succeeded", operation.error
    assert (await harness.ended(begun)).status == "cancelled"
    with pytest.raises(NotFound):
        await harness.service.get(NS, "typo", CLOUDLET.kind)
    await harness.cloudlet("typo")


async def test_a_served_cloudlet_whose_delete_fails_is_ready_again(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.app(auto_delete=True)
    await harness.deployed(cluster="autocluster1")
    fail_deletes(runner)
    operation = await harness.ended(await harness.service.delete(NS, "munich", CLOUDLET.kind, AT_ANY_TIME))
    assert operation.status == "failed"
    assert await harness.state("munich") == "Ready"


def test_orphans_of_a_record_without_a_count_are_counted() -> None:
    status = msgspec.json.decode(b'{"orphans": ["c1", "c2"]}', type=CloudletStatus)
    assert status.orphan_count == 2
    assert status.with_orphans(["c2"], status.orphan_count - 1).orphan_count == 1
    assert CloudletStatus().with_orphans([], -1) == CloudletStatus()
