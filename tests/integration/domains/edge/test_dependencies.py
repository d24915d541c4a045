"""Who needs whom, and who has to wait for whom: decided at the moment of acceptance."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from stateward.agents.site import SiteError
from stateward.domains.edge.errors import ActionInProgress, AdminOnly, ReferenceBeingDeleted, Reserved, StillReferenced
from stateward.domains.edge.lifecycle import IGNORE_AGENT
from stateward.domains.edge.model import AppSpec, ClusterInst, instance_status, read_spec
from stateward.engine import Denied, NotFound
from stateward.errors import BadInput
from stateward.schemas.caller import Caller
from stateward.store.port import Store
from tests.integration.domains.edge.conftest import ANN, NS, House, hold
from tests.stores import fresh_store

C1, WEB = "munich:c1", "munich:c1:web"
CLUSTER, APP = "edge.clusterinst", "edge.appinst"


@pytest.fixture
def new_store(request: pytest.FixtureRequest) -> Callable[[], Store]:
    """Run everything on SQLite; races on PostgreSQL are in test_demand."""
    return fresh_store("sqlite", request)


async def test_an_app_needs_its_cluster_and_its_app(house: House) -> None:
    await house.cloudlet()
    with pytest.raises(NotFound):
        await house.service.create_app(NS, "munich", "c1", "web", ANN)
    await house.app()
    with pytest.raises(NotFound, match="munich:c1"):
        await house.service.create_app(NS, "munich", "c1", "web", ANN)
    with pytest.raises(NotFound):
        await house.service.create_cluster(NS, "berlin", "c1", ClusterInst(), ANN)


async def test_an_app_waits_for_no_cluster_that_is_not_ready(house: House) -> None:
    hand = await house.cloudlet()
    await house.app()
    gate = hold(hand)
    created = await house.service.create_cluster(NS, "munich", "c1", ClusterInst(), ANN)
    with pytest.raises(ActionInProgress, match="operation"):
        await house.service.create_app(NS, "munich", "c1", "web", ANN)
    gate.set()
    await house.ended(created)
    await house.deployed()
    hold(hand)
    await house.service.update(NS, WEB, APP, {"count": 2}, ANN)
    with pytest.raises(ActionInProgress):
        await house.service.update(NS, C1, CLUSTER, {"nodes": 2}, ANN)


async def test_a_cluster_in_use_is_not_deleted_and_says_by_whom(house: House) -> None:
    await house.cloudlet()
    await house.cluster()
    await house.app()
    await house.deployed()
    with pytest.raises(StillReferenced, match="in use by AppInst munich:c1:web"):
        await house.service.delete(NS, C1, CLUSTER, ANN)
    with pytest.raises(StillReferenced):
        await house.service.delete_cloudlet(NS, "munich", ANN)
    with pytest.raises(StillReferenced):
        await house.service.delete_record(NS, "edge.app", "web", ANN)


async def test_apps_that_go_along_are_deleted_with_their_cluster(house: House) -> None:
    hand = await house.cloudlet()
    await house.cluster()
    await house.app(auto_delete=True)
    await house.deployed()
    operation = await house.ended(await house.service.delete(NS, C1, CLUSTER, ANN))
    assert operation.status == "succeeded"
    assert await house.state(WEB) == "NotPresent"
    assert hand.site.things == {}


async def test_apps_and_clusters_that_go_along_are_deleted_with_their_cloudlet(house: House) -> None:
    hand = await house.cloudlet()
    await house.app(auto_delete=True)
    await house.deployed(cluster="autocluster")
    operation = await house.ended(await house.service.delete_cloudlet(NS, "munich", ANN))
    assert operation.status == "succeeded"
    assert [await house.state(one) for one in ("munich:autocluster:web", "munich:reservable0")] == ["NotPresent"] * 2
    assert hand.site.things == {}


async def test_what_refers_to_something_that_is_being_deleted_is_refused(house: House) -> None:
    hand = await house.cloudlet()
    await house.cluster()
    await house.app()
    gate = asyncio.Event()
    hand.site.gate = lambda _: gate
    deleted = await house.service.delete(NS, C1, CLUSTER, ANN)
    with pytest.raises(ReferenceBeingDeleted, match="being deleted"):
        await house.service.create_app(NS, "munich", "c1", "web", ANN)
    gate.set()
    await house.ended(deleted)
    with pytest.raises(NotFound):
        await house.service.create_app(NS, "munich", "c1", "web", ANN)


async def test_of_racing_creates_and_deletes_no_app_is_ever_without_its_cluster(house: House) -> None:
    await house.cloudlet()
    for n in range(20):
        await house.app(f"app{n}")
    await house.cluster()
    creates = [house.service.create_app(NS, "munich", "c1", f"app{n}", ANN) for n in range(20)]
    answers = await asyncio.gather(
        *creates[:10], house.service.delete(NS, C1, CLUSTER, ANN), *creates[10:], return_exceptions=True
    )
    assert all(isinstance(one, Denied) or hasattr(one, "op") for one in answers)
    deleted = not isinstance(answers[10], Denied)
    made = [one for one in answers[:10] + answers[11:] if not isinstance(one, Denied)]
    assert deleted != bool(made)


async def test_overrides_are_for_administrators(house: House) -> None:
    await house.cloudlet()
    by = Caller("user", "ann", frozenset({IGNORE_AGENT}))
    with pytest.raises(AdminOnly):
        await house.service.create_cluster(NS, "munich", "c1", ClusterInst(), by)


async def test_ids_have_their_form_whoever_makes_them(house: House) -> None:
    await house.cloudlet()
    with pytest.raises(BadInput):
        await house.engine.create(NS, "c1", "edge.clusterinst", spec={}, parent="munich")
    with pytest.raises(BadInput):
        await house.engine.create(NS, "Munich:c1", "edge.clusterinst", spec={}, parent="munich")
    with pytest.raises(BadInput, match="parent"):
        await house.engine.create(NS, "munich:c1", "edge.clusterinst", spec={}, parent="berlin")


# --- reservable clusters ---------------------------------------------------------------------------------------------


async def test_an_app_on_an_autocluster_gets_a_cluster_made_and_then_reserved(house: House) -> None:
    await house.cloudlet()
    await house.flavor()
    await house.app(flavor="m4", organization="acme")
    operation = await house.deployed(cluster="autocluster1")
    assert operation.status == "succeeded"
    made = await house.get("munich:reservable0")
    assert (made.state, instance_status(made).reserved_by) == ("Ready", "acme")
    assert (await house.history("munich:autocluster1:web"))[0].target == "CreatingDependencies"
    await house.app("other", flavor="m4", organization="umbrella")
    await house.deployed("other", "autocluster2")
    assert (await house.get("munich:reservable1")).state == "Ready"
    with pytest.raises(Reserved):
        await house.service.create_app(NS, "munich", "reservable0", "other", ANN)


async def test_a_cluster_that_is_free_is_reserved_again_and_goes_when_it_is_idle(house: House) -> None:
    await house.cloudlet()
    await house.app(organization="acme")
    await house.deployed(cluster="autocluster1")
    await house.ended(await house.service.delete(NS, "munich:autocluster1:web", APP, ANN))
    await house.until_true("munich:reservable0", lambda one: not instance_status(one).reserved_by)
    (timer,) = [one for one in await house.engine.store.reader.timers(NS, 10) if one.event == "expire"]
    assert timer.object == "munich:reservable0"
    await house.app("other", organization="umbrella")
    await house.deployed("other", "autocluster9")
    assert instance_status(await house.get("munich:reservable0")).reserved_by == "umbrella"
    assert not [one for one in await house.engine.store.reader.timers(NS, 10) if one.event == "expire"]
    await house.ended(await house.service.delete(NS, "munich:autocluster9:other", APP, ANN))
    await house.until_true("munich:reservable0", lambda one: not instance_status(one).reserved_by)
    (timer,) = [one for one in await house.engine.store.reader.timers(NS, 10) if one.event == "expire"]
    await house.engine.set_timer(replace(timer, due=0.0))
    await house.until("munich:reservable0", "NotPresent")


async def test_a_cluster_that_cannot_be_made_fails_its_app(house: House) -> None:
    hand = await house.cloudlet()

    async def refuse(order: object, report_progress: object) -> None:
        raise SiteError("no room")

    hand.site.execute = refuse  # type: ignore[method-assign]
    await house.app()
    operation = await house.deployed(cluster="autocluster1")
    assert operation.status == "failed"
    assert operation.error == "cluster munich:reservable0 could not be made: no room"


async def test_a_refresh_brings_an_app_up_to_its_definition(house: House) -> None:
    await house.cloudlet()
    await house.cluster()
    await house.app(command="sleep 1")
    await house.deployed()
    await house.app(command="sleep 2")
    await house.ended(await house.service.refresh(NS, WEB, ANN))
    assert read_spec(await house.get(WEB), AppSpec).command == "sleep 2"
