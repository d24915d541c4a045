"""Dependencies between apps, clusters and cloudlets, checked when a request is accepted."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from stateward.agents.site import SiteError
from stateward.domains.edge.errors import ActionInProgress, AdminOnly, ReferenceBeingDeleted, Reserved, StillReferenced
from stateward.domains.edge.lifecycle import IGNORE_AGENT
from stateward.domains.edge.lookups import save_status, unit_of_work
from stateward.domains.edge.model import AppSpec, ClusterInst, instance_status, read_spec
from stateward.domains.edge.policy.policy_controller import PolicyController
from stateward.engine import Denied, NotFound
from stateward.engine.errors import Protected
from stateward.errors import BadInput
from stateward.schemas.caller import Caller
from stateward.store.port import Store, Tx
from stateward.store.records import Key
from tests.integration.domains.edge.conftest import ADA, ANN, NS, EdgeHarness, hold_work
from tests.stores import fresh_store

C1, WEB = "munich:c1", "munich:c1:web"
CLUSTER, APP = "edge.clusterinst", "edge.appinst"
WITHOUT_AGENT = replace(ADA, facts=frozenset({IGNORE_AGENT}))


@pytest.fixture
def new_store(request: pytest.FixtureRequest) -> Callable[[], Store]:
    """Run everything on SQLite; races on PostgreSQL are in test_demand."""
    return fresh_store("sqlite", request)


async def test_an_app_needs_its_cluster_and_its_app(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    with pytest.raises(NotFound):
        await harness.service.create_app(NS, "munich", "c1", "web", ANN)
    await harness.app()
    with pytest.raises(NotFound, match="munich:c1"):
        await harness.service.create_app(NS, "munich", "c1", "web", ANN)
    with pytest.raises(NotFound):
        await harness.service.create_cluster(NS, "berlin", "c1", ClusterInst(), ANN)


async def test_an_app_waits_for_no_cluster_that_is_not_ready(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.app()
    gate = hold_work(runner)
    created = await harness.service.create_cluster(NS, "munich", "c1", ClusterInst(), ANN)
    with pytest.raises(ActionInProgress, match="operation"):
        await harness.service.create_app(NS, "munich", "c1", "web", ANN)
    gate.set()
    await harness.ended(created)
    await harness.deployed()
    hold_work(runner)
    await harness.service.update(NS, WEB, APP, {"count": 2}, ANN)
    with pytest.raises(ActionInProgress):
        await harness.service.update(NS, C1, CLUSTER, {"nodes": 2}, ANN)


async def test_a_cluster_in_use_is_not_deleted_and_says_by_whom(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await harness.cluster()
    await harness.app()
    await harness.deployed()
    with pytest.raises(StillReferenced, match="in use by AppInst munich:c1:web"):
        await harness.service.delete(NS, C1, CLUSTER, ANN)
    with pytest.raises(StillReferenced):
        await harness.service.delete(NS, "munich", "edge.cloudlet", ANN)
    with pytest.raises(StillReferenced):
        await harness.service.delete_record(NS, "edge.app", "web", ANN)


async def test_apps_that_go_along_are_deleted_with_their_cluster(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.cluster()
    await harness.app(auto_delete=True)
    await harness.deployed()
    operation = await harness.ended(await harness.service.delete(NS, C1, CLUSTER, ANN))
    assert operation.status == "succeeded"
    assert await harness.state(WEB) == "NotPresent"
    assert runner.site.things == {}


async def test_apps_and_clusters_that_go_along_are_deleted_with_their_cloudlet(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.app(auto_delete=True)
    await harness.deployed(cluster="autocluster")
    operation = await harness.ended(await harness.service.delete(NS, "munich", "edge.cloudlet", ANN))
    assert operation.status == "succeeded"
    assert [await harness.state(one) for one in ("munich:autocluster:web", "munich:reservable0")] == ["NotPresent"] * 2
    assert runner.site.things == {}


async def test_nothing_takes_a_protected_app_along(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await harness.app(auto_delete=True)
    await harness.deployed(cluster="autocluster")
    web, cluster = "munich:autocluster:web", "munich:reservable0"
    await harness.engine.protect(NS, web, "keep")
    for id_, kind in ((cluster, CLUSTER), ("munich", "edge.cloudlet")):
        with pytest.raises(Protected, match=web):
            await harness.service.delete(NS, id_, kind, ANN)
    await harness.engine.protect(NS, web, None)
    await harness.ended(await harness.service.delete(NS, "munich", "edge.cloudlet", ANN))
    assert await harness.state(web) == "NotPresent"


async def test_what_refers_to_something_that_is_being_deleted_is_refused(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.cluster()
    await harness.app()
    gate = asyncio.Event()
    runner.site.gate = lambda _: gate
    deleted = await harness.service.delete(NS, C1, CLUSTER, ANN)
    with pytest.raises(ReferenceBeingDeleted, match="being deleted"):
        await harness.service.create_app(NS, "munich", "c1", "web", ANN)
    gate.set()
    await harness.ended(deleted)
    with pytest.raises(NotFound):
        await harness.service.create_app(NS, "munich", "c1", "web", ANN)


async def test_of_racing_creates_and_deletes_no_app_is_ever_without_its_cluster(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    for n in range(20):
        await harness.app(f"app{n}")
    await harness.cluster()
    creates = [harness.service.create_app(NS, "munich", "c1", f"app{n}", ANN) for n in range(20)]
    answers = await asyncio.gather(
        *creates[:10], harness.service.delete(NS, C1, CLUSTER, ANN), *creates[10:], return_exceptions=True
    )
    assert all(isinstance(one, Denied) or hasattr(one, "op") for one in answers)
    deleted = not isinstance(answers[10], Denied)
    made = [one for one in answers[:10] + answers[11:] if not isinstance(one, Denied)]
    assert deleted != bool(made)


async def test_overrides_are_for_administrators(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    by = Caller("user", "ann", frozenset({IGNORE_AGENT}))
    with pytest.raises(AdminOnly):
        await harness.service.create_cluster(NS, "munich", "c1", ClusterInst(), by)


async def test_ids_have_their_form_whoever_makes_them(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    with pytest.raises(BadInput):
        await harness.engine.create(NS, "c1", "edge.clusterinst", spec={}, parent="munich")
    with pytest.raises(BadInput):
        await harness.engine.create(NS, "Munich:c1", "edge.clusterinst", spec={}, parent="munich")
    with pytest.raises(BadInput, match="parent"):
        await harness.engine.create(NS, "munich:c1", "edge.clusterinst", spec={}, parent="berlin")


# --- reservable clusters ---------------------------------------------------------------------------------------------


async def test_an_app_on_an_autocluster_gets_a_cluster_made_and_then_reserved(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await harness.flavor()
    await harness.app(flavor="m4", organization="acme")
    operation = await harness.deployed(cluster="autocluster1")
    assert operation.status == "succeeded"
    made = await harness.get("munich:reservable0")
    assert (made.state, instance_status(made).reserved_by) == ("Ready", "acme")
    assert (await harness.history("munich:autocluster1:web"))[0].target == "CreatingDependencies"
    await harness.app("other", flavor="m4", organization="umbrella")
    await harness.deployed("other", "autocluster2")
    assert (await harness.get("munich:reservable1")).state == "Ready"
    with pytest.raises(Reserved):
        await harness.service.create_app(NS, "munich", "reservable0", "other", ANN)


async def test_a_cluster_that_is_free_is_reserved_again_and_goes_when_it_is_idle(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await harness.app(organization="acme")
    await harness.deployed(cluster="autocluster1")
    await harness.ended(await harness.service.delete(NS, "munich:autocluster1:web", APP, ANN))
    await harness.until_true("munich:reservable0", lambda one: not instance_status(one).reserved_by)
    (timer,) = [one for one in await harness.engine.store.reader.timers(NS, 10) if one.event == "expire"]
    assert timer.object == "munich:reservable0"
    await harness.app("other", organization="umbrella")
    await harness.deployed("other", "autocluster9")
    assert instance_status(await harness.get("munich:reservable0")).reserved_by == "umbrella"
    assert not [one for one in await harness.engine.store.reader.timers(NS, 10) if one.event == "expire"]
    await harness.ended(await harness.service.delete(NS, "munich:autocluster9:other", APP, ANN))
    await harness.until_true("munich:reservable0", lambda one: not instance_status(one).reserved_by)
    (timer,) = [one for one in await harness.engine.store.reader.timers(NS, 10) if one.event == "expire"]
    await harness.engine.set_timer(replace(timer, due=0.0))
    await harness.until("munich:reservable0", "NotPresent")


@pytest.mark.parametrize("by", [ANN, WITHOUT_AGENT], ids=["by the agent", "without its agent"])
async def test_an_app_that_is_deployed_again_immediately_gets_its_former_cluster(
    harness: EdgeHarness, monkeypatch: pytest.MonkeyPatch, by: Caller
) -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(PolicyController, "on_journal", never)  # it has not read the end of the delete yet
    await harness.cloudlet()
    await harness.app(organization="acme")
    for _ in range(2):
        assert (await harness.deployed(cluster="autocluster1")).status == "succeeded"
        (cluster,) = await harness.service.list_all(NS, CLUSTER)
        assert (cluster.id, instance_status(cluster).reserved_by) == ("munich:reservable0", "acme")
        await harness.ended(await harness.service.delete(NS, "munich:autocluster1:web", APP, by))
        assert not instance_status(await harness.get("munich:reservable0")).reserved_by
        (timer,) = [one for one in await harness.engine.store.reader.timers(NS, 10) if one.event == "expire"]
        assert timer.object == "munich:reservable0"


async def test_a_reserved_cluster_without_an_app_is_freed_in_the_next_round(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await harness.app(organization="acme")
    await harness.deployed(cluster="autocluster1")
    await harness.cluster("reservable1", reservable=True)
    key = Key(NS, "munich:reservable1")

    async def leave_behind(tx: Tx) -> None:  # as earlier versions did
        async with unit_of_work(tx, [key]) as uow:
            found = uow.objects[key]
            save_status(uow, found, replace(instance_status(found), reserved_by="acme"))

    await harness.engine.store.transact(leave_behind)
    await harness.plugin.policy_controller._reconcile_all()
    reserved = [instance_status(one).reserved_by for one in await harness.service.list_all(NS, CLUSTER)]
    assert reserved == ["acme", ""]
    (timer,) = [one for one in await harness.engine.store.reader.timers(NS, 10) if one.event == "expire"]
    assert timer.object == key.id


async def test_a_cluster_that_cannot_be_made_fails_its_app(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()

    async def refuse(order: object, report_progress: object) -> None:
        raise SiteError("no room")

    runner.site.execute = refuse  # type: ignore[method-assign]
    await harness.app()
    operation = await harness.deployed(cluster="autocluster1")
    assert operation.status == "failed"
    assert operation.error == "cluster munich:reservable0 could not be made: no room"


async def test_a_refresh_brings_an_app_up_to_its_definition(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await harness.cluster()
    await harness.app(command="sleep 1")
    await harness.deployed()
    await harness.app(command="sleep 2")
    await harness.ended(await harness.service.refresh(NS, WEB, ANN))
    assert read_spec(await harness.get(WEB), AppSpec).command == "sleep 2"
