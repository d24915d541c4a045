"""Demand at work: clusters that grow, apps that follow their users, and limits that hold whatever races."""

import asyncio
from pathlib import Path

import pytest

from stateward.agents.messages import Load
from stateward.agents.simulation import SimulatedSite
from stateward.domains.edge.model import AppStatus, CloudletSpec, ClusterInst, instance_status, read_spec
from stateward.domains.edge.policy.app_members import app_status
from stateward.domains.edge.policy.demand import ClusterLoad
from stateward.domains.edge.service import Service
from stateward.engine import Accepted, Denied
from stateward.store.records import Key, Object
from tests.integration.domains.edge.conftest import ANN, NS, Hand, House, open_house
from tests.stores import fresh_store

PATIENT = 60.0


async def marks(house: House, app: str = "web") -> AppStatus:
    return app_status(await house.get(f"app.{app}"))


async def test_a_load_of_an_agent_that_is_out_of_range_does_not_count_and_does_not_end_its_connection(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    hand = await house.cloudlet()
    await house.autoscale("busy", min=1, max=3, cpu=0.001)
    await house.cluster(autoscale="busy")
    connection = hand.agent.notify
    for how in ({"cpu": 1e308}, {"mem": -1.0}, {"cpu": 0.003}):
        await hand.agent._send(Load(connection, "c1", **how))
    await house.until_true("munich:c1", lambda one: read_spec(one, ClusterInst).nodes == 3 and one.state == "Ready")
    assert hand.agent.notify == connection
    assert sum("out of range" in line.getMessage() for line in caplog.records) == 2


async def test_an_error_with_one_app_keeps_no_other_from_being_deployed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.cloudlet()
    await house.autoprov("near", "munich", min=1)
    provide = house.plugin.policy_controller.reconcile_app

    async def provide_or_fail(ns: str, app: Object) -> None:
        if app.id == "app.bad":
            raise ValueError("broken")
        await provide(ns, app)

    monkeypatch.setattr(house.plugin.policy_controller, "reconcile_app", provide_or_fail)
    for name in ("bad", "web"):
        await house.app(name, autoprov="near")
    await house.plugin.policy_controller._reconcile_all()
    assert (await marks(house)).members
    assert not (await marks(house, "bad")).members


async def test_a_cluster_grows_and_shrinks_with_its_load(house: House) -> None:
    await house.cloudlet()
    await house.autoscale("busy", min=1, max=4, cpu=100.0)
    await house.cluster(autoscale="busy")
    accepted = await house.service.report_load(NS, "munich:c1", ClusterLoad(cpu=350.0))
    assert accepted is not None
    await house.ended(accepted)
    assert read_spec(await house.get("munich:c1"), ClusterInst).nodes == 4
    assert await house.service.report_load(NS, "munich:c1", ClusterLoad(cpu=390.0)) is None
    accepted = await house.service.report_load(NS, "munich:c1", ClusterLoad(cpu=90.0))
    assert accepted is not None
    assert (await house.ended(accepted)).status == "succeeded"
    assert read_spec(await house.get("munich:c1"), ClusterInst).nodes == 1


async def test_an_app_is_deployed_by_demand_and_removed_without(house: House) -> None:
    for name in ("munich", "berlin"):
        await house.cloudlet(name)
    await house.autoprov("follow", "munich", "berlin", min=0, max=2, requests=5, deploy_after=2, undeploy_after=1)
    await house.app(autoprov="follow")
    for _ in range(2):
        await demanded(house, {"berlin": 7})
    await house.until("berlin:autocluster-web:web", "Ready")
    assert (await marks(house)).members == ("berlin:autocluster-web:web",)
    await demanded(house, {})
    await house.until("berlin:autocluster-web:web", "NotPresent")
    await until_members(house, 0)


async def test_instances_on_cloudlets_that_went_offline_are_replaced(house: House) -> None:
    hands = {name: await house.cloudlet(name) for name in ("munich", "berlin")}
    await house.autoprov("always", "munich", "berlin", min=1, max=2)
    await house.app(autoprov="always")
    await demanded(house, {})
    await house.until("munich:autocluster-web:web", "Ready")
    await hands["munich"].kill()
    await house.until("munich", "Offline")
    await demanded(house, {})
    await house.until("berlin:autocluster-web:web", "Ready")
    assert len((await marks(house)).members) == 2


async def test_an_app_shrinks_to_a_lower_max(house: House) -> None:
    names = ("munich", "berlin", "turin")
    for name in names:
        await house.cloudlet(name)
    await house.autoprov("few", *names, min=3, max=3)
    await house.app(autoprov="few")
    await demanded(house, {})
    for name in names:
        await house.until(f"{name}:autocluster-web:web", "Ready")
    await house.autoprov("few", *names, min=1, max=1, requests=5)
    await demanded(house, {"berlin": 9})
    await until_members(house, 1)
    assert (await marks(house)).members == ("berlin:autocluster-web:web",)


async def test_an_instance_that_is_missing_does_not_count_as_one_that_serves(house: House) -> None:
    hands = {name: await house.cloudlet(name, missing="leave") for name in ("munich", "berlin")}
    await house.autoprov("always", "munich", "berlin", min=1, max=2)
    await house.app(autoprov="always")
    await demanded(house, {})
    lost = "munich:autocluster-web:web"
    await house.until(lost, "Ready")
    hands["munich"].site.things.pop("autocluster-web:web")
    await house.until_true(lost, lambda one: instance_status(one).missing)
    await demanded(house, {})
    await house.until("berlin:autocluster-web:web", "Ready")


async def demanded(house: House, requests: dict[str, int]) -> None:
    await house.service.report_demand(NS, "web", requests)
    await house.plugin.policy_controller.reconcile_app(NS, await house.get("app.web"))


async def until_members(house: House, number: int) -> None:
    async with asyncio.timeout(PATIENT):
        while len((await marks(house)).members) != number:
            await asyncio.sleep(0.005)


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
    async with open_house(new_store(), tmp_path) as one, open_house(new_store(), tmp_path) as other:
        names = [f"site{n:02}" for n in range(50)]
        for nth, name in enumerate(names):
            (one, other)[nth % 2].start(Hand(name, SimulatedSite()))
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
    async with open_house(new_store(), tmp_path) as one, open_house(new_store(), tmp_path) as other:
        await one.cloudlet()
        await asyncio.gather(*(one.app(f"app{n}") for n in range(8)))
        for _ in range(6):
            await one.cluster()
            creates = [(one, other)[n % 2].service.create_app(NS, "munich", "c1", f"app{n}", ANN) for n in range(8)]
            deletes = [house.service.delete(NS, "munich:c1", "edge.clusterinst", ANN) for house in (one, other)]
            answers = await asyncio.gather(*creates[:4], *deletes, *creates[4:], return_exceptions=True)
            apps, gone = [*answers[:4], *answers[6:]], answers[4:6]
            assert all(isinstance(answer, Accepted | Denied) for answer in answers), answers
            assert any(isinstance(answer, Accepted) for answer in gone) != any(
                isinstance(answer, Accepted) for answer in apps
            )
            for answer in answers:
                if isinstance(answer, Accepted):
                    await one.ended(answer)
            await cleared(one)


async def cleared(house: House) -> None:
    """Remove everything from the cloudlet."""
    for kind in ("edge.appinst", "edge.clusterinst"):
        for found in await house.service.list_all(NS, kind):
            if found.state != "NotPresent":
                await house.ended(await house.service.delete(NS, found.id, kind, ANN))
