"""Demand: clusters that scale, apps that are deployed by demand, and limits that hold in races."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stateward.agents.simulation import SimulatedSite
from stateward.domains.edge.model import AppStatus, CloudletSpec, ClusterInst, instance_status, read_spec
from stateward.domains.edge.policy.app_members import app_status
from stateward.domains.edge.policy.demand import ClusterLoad
from stateward.domains.edge.service import Service
from stateward.engine import Accepted, Denied
from stateward.store.records import Key, Object
from tests.integration.domains.edge.conftest import ANN, NS, AgentRunner, EdgeHarness, open_harness
from tests.stores import fresh_store
from tests.waiting import until


async def app_status_of(harness: EdgeHarness, app: str = "web") -> AppStatus:
    return app_status(await harness.get(f"app.{app}"))


async def test_an_error_with_one_app_keeps_no_other_from_being_deployed(
    harness: EdgeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.cloudlet()
    await harness.autoprov("near", "munich", min=1)
    provide = harness.plugin.policy_controller._deploy

    async def provide_or_fail(ns: str, app: Object, *rest: Any) -> None:
        if app.id == "app.bad":
            raise ValueError("broken")
        await provide(ns, app, *rest)

    monkeypatch.setattr(harness.plugin.policy_controller, "_deploy", provide_or_fail)
    for name in ("bad", "web"):
        await harness.app(name, autoprov="near")
    await harness.plugin.policy_controller._reconcile_all()
    assert (await app_status_of(harness)).members
    assert not (await app_status_of(harness, "bad")).members


async def test_a_cluster_grows_and_shrinks_with_its_load(harness: EdgeHarness) -> None:
    await harness.cloudlet()
    await harness.autoscale("busy", min=1, max=4, cpu=100.0)
    await harness.cluster(autoscale="busy")
    accepted = await harness.service.report_load(NS, "munich:c1", ClusterLoad(cpu=350.0))
    assert accepted is not None
    await harness.ended(accepted)
    assert read_spec(await harness.get("munich:c1"), ClusterInst).nodes == 4
    assert await harness.service.report_load(NS, "munich:c1", ClusterLoad(cpu=390.0)) is None
    accepted = await harness.service.report_load(NS, "munich:c1", ClusterLoad(cpu=90.0))
    assert accepted is not None
    assert (await harness.ended(accepted)).status == "succeeded"
    assert read_spec(await harness.get("munich:c1"), ClusterInst).nodes == 1


async def test_an_app_is_deployed_by_demand_and_removed_without(harness: EdgeHarness) -> None:
    for name in ("munich", "berlin"):
        await harness.cloudlet(name)
    await harness.autoprov("follow", "munich", "berlin", min=0, max=2, requests=5, deploy_after=2, undeploy_after=1)
    await harness.app(autoprov="follow")
    for _ in range(2):
        await report_demand(harness, {"berlin": 7})
    await harness.until("berlin:autocluster-web:web", "Ready")
    assert (await app_status_of(harness)).members == ("berlin:autocluster-web:web",)
    await report_demand(harness, {})
    await harness.until("berlin:autocluster-web:web", "NotPresent")
    await until_members(harness, 0)


async def test_instances_on_cloudlets_that_went_offline_are_replaced(harness: EdgeHarness) -> None:
    runners = {name: await harness.cloudlet(name) for name in ("munich", "berlin")}
    await harness.autoprov("always", "munich", "berlin", min=1, max=2)
    await harness.app(autoprov="always")
    await report_demand(harness, {})
    await harness.until("munich:autocluster-web:web", "Ready")
    await runners["munich"].kill()
    await harness.until("munich", "Offline")
    await report_demand(harness, {})
    await harness.until("berlin:autocluster-web:web", "Ready")
    assert len((await app_status_of(harness)).members) == 2


async def test_an_app_shrinks_to_a_lower_max(harness: EdgeHarness) -> None:
    names = ("munich", "berlin", "turin")
    for name in names:
        await harness.cloudlet(name)
    await harness.autoprov("few", *names, min=3, max=3)
    await harness.app(autoprov="few")
    await report_demand(harness, {})
    for name in names:
        await harness.until(f"{name}:autocluster-web:web", "Ready")
    await harness.autoprov("few", *names, min=1, max=1, requests=5)
    await report_demand(harness, {"berlin": 9})
    await until_members(harness, 1)
    assert (await app_status_of(harness)).members == ("berlin:autocluster-web:web",)


async def test_an_instance_that_is_missing_does_not_count_as_one_that_serves(harness: EdgeHarness) -> None:
    runners = {name: await harness.cloudlet(name, missing="leave") for name in ("munich", "berlin")}
    await harness.autoprov("always", "munich", "berlin", min=1, max=2)
    await harness.app(autoprov="always")
    await report_demand(harness, {})
    lost = "munich:autocluster-web:web"
    await harness.until(lost, "Ready")
    runners["munich"].site.things.pop("autocluster-web:web")
    await harness.until_true(lost, lambda one: instance_status(one).missing)
    await report_demand(harness, {})
    await harness.until("berlin:autocluster-web:web", "Ready")


async def report_demand(harness: EdgeHarness, requests: dict[str, int]) -> None:
    await harness.service.report_demand(NS, "web", requests)
    await harness.plugin.policy_controller.reconcile_app(NS, await harness.get("app.web"))


async def until_members(harness: EdgeHarness, number: int) -> None:
    await until(lambda: app_status_of(harness), lambda app: len(app.members) == number)


async def race(services: list[Service], cloudlets: list[str], action: str) -> int:
    """Let two controllers race for the same; returns how many were accepted."""

    async def ask(nth: int, cloudlet: str) -> bool:
        service = services[nth % len(services)]
        try:
            if action == "create":
                await service.create_app(NS, cloudlet, "c1", "web", ANN)
            else:
                await service.delete(NS, f"{cloudlet}:c1:web", "edge.appinst", ANN)
        except Denied:
            return False
        return True

    return sum(await asyncio.gather(*(ask(nth, one) for nth, one in enumerate(cloudlets))))


async def test_fifty_racing_creates_end_at_exactly_max_and_fifty_racing_deletes_at_exactly_min(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    new_store = fresh_store("postgres", request)
    async with open_harness(new_store(), tmp_path) as one, open_harness(new_store(), tmp_path) as other:
        names = [f"site{n:02}" for n in range(50)]
        for nth, name in enumerate(names):
            (one, other)[nth % 2].start(AgentRunner(name, SimulatedSite()))
        await asyncio.gather(*(one.service.create_cloudlet(NS, name, CloudletSpec(), ANN) for name in names))
        await asyncio.gather(*(one.online(name) for name in names))
        await asyncio.gather(*(one.cluster("c1", name) for name in names))
        await one.autoprov("few", *names, min=3, max=7)
        await one.app(autoprov="few")
        services = [one.service, other.service]
        assert await race(services, names, "create") == 7
        made = [name for name in names if await one.engine.store.reader.object(Key(NS, f"{name}:c1:web"))]
        await asyncio.gather(*(one.until(f"{name}:c1:web", "Ready") for name in made))
        assert len(made) == 7
        await one.autoprov("few", *names, min=3, max=50)
        assert await race(services, names, "create") == 43
        await asyncio.gather(*(one.until(f"{name}:c1:web", "Ready") for name in names))
        assert await race(services, names, "delete") == 47
        await until_members(one, 3)


async def test_with_two_controllers_no_app_is_ever_without_its_cluster(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    new_store = fresh_store("postgres", request)
    async with open_harness(new_store(), tmp_path) as one, open_harness(new_store(), tmp_path) as other:
        await one.cloudlet()
        await asyncio.gather(*(one.app(f"app{n}") for n in range(8)))
        for _ in range(6):
            await one.cluster()
            creates = [(one, other)[n % 2].service.create_app(NS, "munich", "c1", f"app{n}", ANN) for n in range(8)]
            deletes = [harness.service.delete(NS, "munich:c1", "edge.clusterinst", ANN) for harness in (one, other)]
            answers = await asyncio.gather(*creates[:4], *deletes, *creates[4:], return_exceptions=True)
            apps, gone = [*answers[:4], *answers[6:]], answers[4:6]
            assert all(isinstance(answer, Accepted | Denied) for answer in answers), answers
            assert any(isinstance(answer, Accepted) for answer in gone) != any(
                isinstance(answer, Accepted) for answer in apps
            )
            for answer in answers:
                if isinstance(answer, Accepted):
                    await one.ended(answer)
            await remove_everything(one)


async def remove_everything(harness: EdgeHarness) -> None:
    """Remove everything from the cloudlet."""
    for kind in ("edge.appinst", "edge.clusterinst"):
        for found in await harness.service.list_all(NS, kind):
            if found.state != "NotPresent":
                await harness.ended(await harness.service.delete(NS, found.id, kind, ANN))
