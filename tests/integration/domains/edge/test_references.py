"""References between clusters, apps, flavors and policies: what is named exists, and stays while it is named."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec import Struct

from stateward.domains.edge import cloudlet_guards, references
from stateward.domains.edge.errors import ReferenceBeingDeleted, StillReferenced
from stateward.domains.edge.lifecycle import APP, APPINST, AUTOPROV, AUTOSCALE, CLOUDLET, CLUSTERINST, FLAVOR
from stateward.domains.edge.model import AppSpec, AutoprovSpec, AutoscaleSpec, ClusterInst, FlavorSpec, read_spec
from stateward.domains.edge.service import Service
from stateward.engine import Denied, NotFound
from stateward.errors import BadInput, StatewardError
from stateward.store import open_store
from stateward.store.port import Store
from tests.integration.domains.edge.conftest import ADA, ANN, NS, AgentRunner, EdgeHarness, open_harness
from tests.integration.domains.edge.conftest import hold_work as hold_work
from tests.integration.postgres_helpers import looking_at, until_somebody_waits
from tests.servers import PostgresServer

C1 = "munich:c1"


async def delete_record(service: Service, kind: str, name: str) -> None:
    await service.delete_record(NS, kind, name, ANN)


async def set_up(harness: EdgeHarness) -> AgentRunner:
    """A cluster and an app that name everything there is."""
    runner = await harness.cloudlet()
    await harness.flavor()
    await harness.autoscale("busy", max=4, cpu=1.0)
    await harness.autoprov("near", "munich")
    await harness.cluster(flavor="m4", autoscale="busy")
    await harness.app(flavor="m4", autoprov="near")
    await harness.deployed()
    return runner


@pytest.mark.parametrize(
    ("kind", "name", "users"),
    [
        (FLAVOR.kind, "m4", "ClusterInst munich:c1, app web"),
        (AUTOSCALE.kind, "busy", "ClusterInst munich:c1"),
        (AUTOPROV.kind, "near", "app web"),
        (APP.kind, "web", "AppInst munich:c1:web"),
    ],
)
async def test_what_is_in_use_is_not_deleted_and_the_refusal_names_the_users(
    harness: EdgeHarness, kind: str, name: str, users: str
) -> None:
    await set_up(harness)
    with pytest.raises(StillReferenced, match=f"{name} is in use by {users}"):
        await delete_record(harness.service, kind, name)
    assert (await harness.service.get_record(NS, kind, name)).removed is False


async def test_what_nobody_names_any_more_is_deleted(harness: EdgeHarness) -> None:
    await set_up(harness)
    await harness.ended(await harness.service.delete(NS, "munich:c1:web", APPINST.kind, ADA))
    await harness.until_true("app.web", lambda one: one.seen == "{}")
    await delete_record(harness.service, APP.kind, "web")
    await harness.ended(await harness.service.update(NS, C1, CLUSTERINST.kind, {"autoscale": ""}, ANN))
    await delete_record(harness.service, AUTOSCALE.kind, "busy")
    await delete_record(harness.service, AUTOPROV.kind, "near")
    await harness.ended(await harness.service.delete(NS, C1, CLUSTERINST.kind, ANN))
    await delete_record(harness.service, FLAVOR.kind, "m4")


async def test_a_policy_to_which_a_failed_update_would_go_back_is_in_use(harness: EdgeHarness) -> None:
    runner = await set_up(harness)
    await harness.autoscale("calm", max=2)
    gate = hold_work(runner)
    accepted = await harness.service.update(NS, C1, CLUSTERINST.kind, {"autoscale": "calm"}, ANN)
    for name in ("busy", "calm"):
        with pytest.raises(StillReferenced):
            await delete_record(harness.service, AUTOSCALE.kind, name)
    gate.set()
    await harness.ended(accepted)
    await delete_record(harness.service, AUTOSCALE.kind, "busy")


async def test_what_does_not_exist_cannot_be_named(harness: EdgeHarness) -> None:
    await set_up(harness)
    service, before = harness.service, await harness.get("app.web")
    for change in (
        lambda: service.create_cluster(NS, "munich", "c2", ClusterInst(flavor="none"), ANN),
        lambda: service.create_cluster(NS, "munich", "c2", ClusterInst(autoscale="none"), ANN),
        lambda: service.update(NS, C1, CLUSTERINST.kind, {"autoscale": "none"}, ANN),
        lambda: service.put_record(NS, APP.kind, "web", AppSpec("x", flavor="none"), ANN),
        lambda: service.put_record(NS, APP.kind, "new", AppSpec("x", autoprov="none"), ANN),
    ):
        with pytest.raises(NotFound, match="none"):
            await change()
    assert (await harness.get("app.web")).version == before.version
    assert read_spec(await harness.get(C1), ClusterInst).autoscale == "busy"


async def test_a_cloudlet_that_does_not_exist_cannot_be_named(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await harness.app()
    with pytest.raises(BadInput, match=r"cloudlets: .* there is no cloudlet 'nope' in namespace 'lab'"):
        await harness.autoprov("near", "munich", "nope")
    for name in ("nope", "app.web"):
        with pytest.raises(BadInput, match=rf"requests: .* there is no cloudlet '{name}' in namespace 'lab'"):
            await harness.service.report_demand(NS, "web", {"munich": 3, name: 5})
    with pytest.raises(NotFound):
        await harness.service.get_record(NS, AUTOPROV.kind, "near")


async def test_a_cloudlet_that_policies_name_is_not_deleted_and_the_refusal_names_them(harness: EdgeHarness) -> None:
    for name in ("munich", "berlin"):
        await harness.cloudlet(name)
    await harness.autoprov("near", "munich", "berlin")
    await harness.autoprov("far", "munich")
    with pytest.raises(StillReferenced, match="cloudlet munich is in use by autoprov policy far, autoprov policy near"):
        await harness.service.delete(NS, "munich", CLOUDLET.kind, ADA)
    await harness.autoprov("near", "berlin")
    await delete_record(harness.service, AUTOPROV.kind, "far")
    await harness.ended(await harness.service.delete(NS, "munich", CLOUDLET.kind, ANN))
    with pytest.raises(BadInput, match="there is no cloudlet 'munich'"):
        await harness.autoprov("near", "munich", "berlin")


@pytest.mark.parametrize(
    ("held", "lost"),
    [("check_cloudlets", (StillReferenced,)), ("refuse_named_by_policy", (ReferenceBeingDeleted, BadInput))],
)
async def test_a_policy_and_the_deletion_of_a_cloudlet_that_it_names_wait_for_each_other(
    postgres_server: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    held: str,
    lost: tuple[type[StatewardError], ...],
) -> None:
    dsn = postgres_server.new_migrated_database()
    reached, opened = asyncio.Event(), asyncio.Event()
    place = references if held == "check_cloudlets" else cloudlet_guards
    check = getattr(place, held)

    async def check_and_hold(*args: object) -> None:
        await check(*args)
        if not reached.is_set():
            reached.set()
            await opened.wait()

    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(open_harness(open_store(dsn, migrate=True), tmp_path / "first"))
        second = await stack.enter_async_context(open_harness(open_store(dsn), tmp_path / "second"))
        server = await stack.enter_async_context(looking_at(dsn))
        await first.cloudlet()
        monkeypatch.setattr(place, held, check_and_hold)

        async def name_it(harness: EdgeHarness) -> None:
            await harness.autoprov("near", "munich")

        async def delete_it(harness: EdgeHarness) -> None:
            await harness.service.delete(NS, "munich", CLOUDLET.kind, ANN)

        winner, loser = (name_it, delete_it) if held == "check_cloudlets" else (delete_it, name_it)
        one = asyncio.create_task(winner(first))
        await reached.wait()
        other = asyncio.create_task(loser(second))
        waits = asyncio.create_task(until_somebody_waits(server))
        await asyncio.wait([other, waits], return_when=asyncio.FIRST_COMPLETED)
        waits.cancel()
        opened.set()
        await one
        with pytest.raises(lost):
            await other
    postgres_server.drop_later(dsn)


@pytest.mark.parametrize("cloudlets", [(), ("munich", "munich")])
async def test_a_policy_names_at_least_one_cloudlet_and_each_once(
    harness: EdgeHarness, cloudlets: tuple[str, ...]
) -> None:
    await harness.cloudlet()
    with pytest.raises(BadInput, match=r"cloudlets: .* at least one cloudlet, and each only once"):
        await harness.autoprov("near", *cloudlets)


async def test_a_least_above_the_most_is_refused(harness: EdgeHarness) -> None:
    for kind, spec in ((AUTOSCALE.kind, AutoscaleSpec(min=3, max=2)), (AUTOPROV.kind, AutoprovSpec((), min=3, max=2))):
        with pytest.raises(BadInput, match="at least 3, the minimum"):
            await harness.service.put_record(NS, kind, "p", spec, ANN)


Ask = Callable[[Service, str], Awaitable[object]]


async def _cluster_with_flavor(service: Service, name: str) -> object:
    return await service.create_cluster(NS, "munich", name, ClusterInst(flavor=name), ANN)


async def _cluster_with_policy(service: Service, name: str) -> object:
    return await service.create_cluster(NS, "munich", name, ClusterInst(autoscale=name), ANN)


async def _app_with_flavor(service: Service, name: str) -> object:
    return await service.put_record(NS, APP.kind, name, AppSpec("x", flavor=name), ANN)


async def _app_with_policy(service: Service, name: str) -> object:
    return await service.put_record(NS, APP.kind, name, AppSpec("x", autoprov=name), ANN)


async def _instance(service: Service, name: str) -> object:
    return await service.create_app(NS, "munich", "home", name, ANN)


@pytest.mark.parametrize(
    ("kind", "spec", "ask"),
    [
        pytest.param(FLAVOR.kind, FlavorSpec("tiny"), _cluster_with_flavor, id="a flavor and a cluster"),
        pytest.param(AUTOSCALE.kind, AutoscaleSpec(), _cluster_with_policy, id="a policy and a cluster"),
        pytest.param(FLAVOR.kind, FlavorSpec("tiny"), _app_with_flavor, id="a flavor and an app"),
        pytest.param(AUTOPROV.kind, AutoprovSpec(("munich",)), _app_with_policy, id="a policy and an app"),
        pytest.param(APP.kind, AppSpec("x"), _instance, id="an app and an instance"),
    ],
)
async def test_of_a_user_and_a_deletion_that_race_exactly_one_wins(
    request: pytest.FixtureRequest, new_store: Callable[[], Store], tmp_path: Path, kind: str, spec: Struct, ask: Ask
) -> None:
    async with AsyncExitStack() as stack:
        first = second = await stack.enter_async_context(open_harness(new_store(), tmp_path / "first"))
        if "postgres" in request.node.name:  # two processes on one store, where it takes two
            second = await stack.enter_async_context(open_harness(new_store(), tmp_path / "second"))
        await first.cloudlet()
        await first.cluster("home")
        for nth in range(10):
            name = f"r{nth}"
            await first.service.put_record(NS, kind, name, spec, ANN)
            asks = [ask(first.service, name), delete_record(second.service, kind, name)]
            outcomes = await asyncio.gather(*(asks if nth % 2 else reversed(asks)), return_exceptions=True)
            lost = [one for one in outcomes if isinstance(one, BaseException)]
            assert len(lost) == 1, outcomes
            assert isinstance(lost[0], Denied)
