"""Measures of agents: they are fenced, scale clusters, count as demand, and begin and end alerts."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from stateward.agents.measure_messages import Load, Measures
from stateward.agents.messages import AgentOrder, Existing, OrderAction
from stateward.agents.published_ports import PublishedAddress
from stateward.agents.site import Health, InstanceMeasure, ReportProgress, SiteError
from stateward.domains.edge.agents.measures import OUT_OF_RANGE, STALE_LOAD
from stateward.domains.edge.api.schemas import PortView, view
from stateward.domains.edge.model import ClusterInst, cloudlet_status, instance_status, measures_key, read_spec
from stateward.domains.edge.policy.app_members import app_status
from stateward.domains.edge.policy.demand import ClusterLoad
from stateward.domains.edge.records.agent_upgrade import AgentRejection
from stateward.store.port import Store
from tests.integration.domains.edge.conftest import ADA, ANN, NS, AgentRunner, EdgeHarness, open_harness
from tests.waiting import until

PATIENT = 60.0
C1 = "munich:c1"


def has_nodes(number: int) -> Callable[..., bool]:
    return lambda one: read_spec(one, ClusterInst).nodes == number and one.state == "Ready"


async def until_load(harness: EdgeHarness, id_: str, cpu: float | None) -> None:
    """Wait until the known load of an instance has this value; None: it is unknown."""
    async with asyncio.timeout(PATIENT):
        while True:
            kept = (await harness.service.loads_of(NS, [await harness.get(id_)])).get(id_)
            if (None if kept is None else kept.load.cpu) == cpu:
                return
            await asyncio.sleep(0.005)


async def until_rejected(harness: EdgeHarness, why: str) -> None:
    await until(lambda: harness.hub.rejected[why])


async def test_a_measured_load_scales_its_cluster_up_and_down(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.autoscale("busy", min=1, max=4, cpu=1.0)
    await harness.cluster(autoscale="busy")
    runner.site.measures["c1"] = InstanceMeasure(cpu=2.5)
    await harness.until_true(C1, has_nodes(3))
    runner.site.measures["c1"] = InstanceMeasure(cpu=3.1)  # within the tolerance
    await until_load(harness, C1, 3.1)
    assert has_nodes(3)(await harness.get(C1))
    runner.site.measures["c1"] = InstanceMeasure(cpu=0.2)
    await harness.until_true(C1, has_nodes(1))


async def test_a_reported_load_counts_instead_of_the_measured_one_for_a_while(
    new_store: Callable[[], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_harness(new_store(), tmp_path) as harness:
        runner = await harness.cloudlet()
        await harness.autoscale("busy", min=1, max=4, cpu=1.0)
        await harness.cluster(autoscale="busy")
        monkeypatch.setattr(harness.service, "_report_s", 3600.0)
        assert await harness.service.report_load(NS, C1, ClusterLoad(cpu=2.5))
        await harness.until_true(C1, has_nodes(3))
        for cpu in (0.2, 0.8):
            runner.site.measures["c1"] = InstanceMeasure(cpu=cpu)
            await until_load(harness, C1, cpu)
            await harness.plugin.policy_controller._reconcile_all()
            assert has_nodes(3)(await harness.get(C1))
        monkeypatch.setattr(harness.service, "_report_s", 0.0)
        assert await harness.service.report_load(NS, C1, ClusterLoad(cpu=2.5)) is None  # and counts no longer
        await harness.plugin.policy_controller._reconcile_all()
        await harness.until_true(C1, has_nodes(1))


async def test_the_load_of_a_lost_agent_is_unknown_and_scales_nothing_down(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.autoscale("busy", min=1, max=4, cpu=1.0)
    await harness.cluster(autoscale="busy")
    runner.site.measures["c1"] = InstanceMeasure(cpu=2.5)
    await harness.until_true(C1, has_nodes(3))
    await until_load(harness, C1, 2.5)
    await runner.kill()
    await harness.until("munich", "Offline")
    await until_load(harness, C1, None)
    await harness.plugin.policy_controller._reconcile_all()
    assert has_nodes(3)(await harness.get(C1))
    runner.site.measures.pop("c1")  # an agent that cannot measure it says nothing of it
    runner.start(harness.hub)
    await harness.online()
    await harness.plugin.policy_controller._reconcile_all()
    assert has_nodes(3)(await harness.get(C1))
    runner.site.measures["c1"] = InstanceMeasure(cpu=2.6)
    await until_load(harness, C1, 2.6)


async def test_measures_of_an_old_connection_of_another_generation_or_out_of_range_do_not_count(
    harness: EdgeHarness,
) -> None:
    runner = await harness.cloudlet()
    await harness.autoscale("busy", min=1, max=4, cpu=1.0)
    await harness.cluster(autoscale="busy")
    runner.site.measures["c1"] = InstanceMeasure(cpu=0.5)
    await until_load(harness, C1, 0.5)
    now = Load("c1", (await harness.instance_status(C1)).generation, cpu=4.0)
    notify = runner.agent.notify
    await runner.agent._send(Measures(notify - 1, (now,)))
    await until_rejected(harness, AgentRejection.OLD_CONNECTION)
    assert [one.reason for one in await harness.history("munich") if one.event == "rejected: measures"]
    await runner.agent._send(Measures(notify, (replace(now, generation=now.generation - 1),)))
    await until_rejected(harness, STALE_LOAD)
    await runner.agent._send(Measures(notify, (replace(now, cpu=1e308), replace(now, mem=-1.0))))
    await until_rejected(harness, OUT_OF_RANGE)
    assert runner.agent.notify == notify
    assert has_nodes(1)(await harness.get(C1))
    await until_load(harness, C1, None)  # what the agent says of it makes no sense, so nothing is known of it


async def test_a_scale_up_that_was_refused_is_made_later_though_the_load_is_not_reported_again(
    harness: EdgeHarness,
) -> None:
    runner = await harness.cloudlet()
    await harness.autoscale("busy", min=1, max=4, cpu=1.0)
    await harness.cluster()
    runner.site.measures["c1"] = InstanceMeasure(cpu=2.0)
    await until_load(harness, C1, 2.0)
    await harness.ended(await harness.service.update(NS, C1, "edge.clusterinst", {"autoscale": "busy"}, ANN))
    await until_load(harness, C1, 2.0)
    await harness.plugin.policy_controller._reconcile_all()
    await harness.until_true(C1, has_nodes(2))


async def test_an_app_follows_its_measured_requests(new_store: Callable[[], Store], tmp_path: Path) -> None:
    async with open_harness(new_store(), tmp_path, policy_interval_s=0.1) as harness:
        runners: dict[str, AgentRunner] = {name: await harness.cloudlet(name) for name in ("munich", "berlin")}
        how = {"requests": 5, "deploy_after": 2, "undeploy_after": 2, "demand": "measured"}
        await harness.autoprov("follow", "munich", "berlin", min=1, max=2, **how)
        await harness.app(autoprov="follow")
        first, second = "munich:autocluster-web:web", "berlin:autocluster-web:web"
        await harness.plugin.policy_controller.reconcile_app(NS, await harness.get("app.web"))
        await harness.until(first, "Ready")
        total = 0
        async with asyncio.timeout(PATIENT):
            while "berlin" not in {one.partition(":")[0] for one in app_status(await harness.get("app.web")).members}:
                total += 50
                runners["munich"].site.measures["autocluster-web:web"] = InstanceMeasure(connections=1, requests=total)
                await asyncio.sleep(0.02)
        await harness.until(second, "Ready")
        runners["berlin"].site.measures["autocluster-web:web"] = InstanceMeasure(connections=0, requests=0)
        async with asyncio.timeout(PATIENT):  # nobody connects to either, and one has to stay
            while len(app_status(await harness.get("app.web")).members) != 1:
                await asyncio.sleep(0.02)


async def test_an_unhealthy_app_has_an_alert_that_is_journaled_when_it_begins_and_ends(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.cluster()
    await harness.app()
    await harness.deployed()
    app = "munich:c1:web"
    version = (await harness.get(app)).version
    runner.site.measures["c1:web"] = InstanceMeasure(cpu=0.1, health=Health(True))
    await until_load(harness, app, 0.1)
    runner.site.measures["c1:web"] = InstanceMeasure(cpu=0.1, health=Health(False, "HTTP status 500"))
    found = await harness.until_true(app, lambda one: bool(instance_status(one).alerts))
    assert [(one.name, one.reason) for one in instance_status(found).alerts] == [("unhealthy", "HTTP status 500")]
    assert found.version == version + 1  # loads change no version, alerts do
    runner.site.measures["c1:web"] = InstanceMeasure(cpu=0.9, health=Health(False, "HTTP status 503"))
    await until_load(harness, app, 0.9)
    runner.site.measures["c1:web"] = InstanceMeasure(cpu=0.9, health=Health(True))
    await harness.until_true(app, lambda one: not instance_status(one).alerts)
    events = [(one.event, one.reason) for one in await harness.history(app) if "unhealthy" in one.event]
    assert events == [("unhealthy", "HTTP status 500"), ("unhealthy ended", "HTTP status 500")]


async def test_an_instance_that_does_not_run_any_more_has_an_alert_until_it_runs_again(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.cluster()
    generation = (await harness.instance_status(C1)).generation
    runner.site.things["c1"] = replace(runner.site.things["c1"], whole=False, problem="1 of 1 nodes do not run: n")
    await harness.until_renewed(C1, generation)
    events = [(one.event, one.reason) for one in await harness.history(C1) if "node down" in one.event]
    why = "1 of 1 nodes do not run: n"
    assert events == [("node down", why), ("node down ended", why)]
    assert not (await harness.instance_status(C1)).alerts


async def test_a_failed_attempt_to_create_it_again_is_told_with_the_alert(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.cluster()
    failing, site = runner.site.execute, runner.site

    async def fail(order: AgentOrder, report_progress: ReportProgress) -> None:
        if order.work is OrderAction.CREATE:
            raise SiteError("the port is taken")
        await failing(order, report_progress)

    site.execute = fail  # type: ignore[method-assign]
    site.things["c1"] = replace(site.things["c1"], whole=False, problem="a node is down")
    why = "a node is down; to create it again failed: the port is taken"
    await harness.until_true(C1, lambda one: [one.reason for one in instance_status(one).alerts] == [why])
    site.execute = failing  # type: ignore[method-assign]
    await harness.until_true(C1, lambda one: one.state == "Ready" and not instance_status(one).alerts)


async def test_a_site_that_cannot_be_seen_is_an_alert_of_its_cloudlet(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.cluster()
    runner.site.measures["c1"] = InstanceMeasure(cpu=0.5)
    await until_load(harness, C1, 0.5)
    seeing = runner.site.measure

    async def measure() -> Mapping[str, InstanceMeasure]:
        raise SiteError("no answer of the container engine")

    runner.site.measure = measure  # type: ignore[method-assign]
    found = await harness.until_true("munich", lambda one: bool(cloudlet_status(one).alerts))
    (alert,) = cloudlet_status(found).alerts
    assert (alert.name, alert.reason) == ("site unreachable", "no answer of the container engine")
    await until_load(harness, C1, None)
    runner.site.measure = seeing  # type: ignore[method-assign]
    await harness.until_true("munich", lambda one: not cloudlet_status(one).alerts)
    await until_load(harness, C1, 0.5)


async def test_what_could_not_be_seen_after_a_failure_is_removed_all_the_same(harness: EdgeHarness) -> None:
    """A create failed when some of it existed, and the site could not be observed: the undo must not trust that."""
    runner = await harness.cloudlet()
    site, executed = runner.site, []
    working, seeing = site.execute, site.observe

    async def execute(order: AgentOrder, report_progress: ReportProgress) -> None:
        executed.append(order.work)
        if order.work is OrderAction.CREATE:
            site.things[order.name] = Existing(order.generation, whole=False)
            site.observe = observe  # type: ignore[method-assign]
            raise SiteError("the engine hangs")
        await working(order, report_progress)

    async def observe() -> Mapping[str, Existing]:
        raise SiteError("the engine hangs")

    site.execute = execute  # type: ignore[method-assign]
    operation = await harness.cluster()
    assert operation.error == "the engine hangs"
    await harness.until(C1, "NotPresent")
    assert executed == [OrderAction.CREATE, OrderAction.DELETE]
    assert not site.things
    site.observe = seeing  # type: ignore[method-assign]


async def test_published_ports_are_kept_with_the_instance_while_it_is_ready(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.cluster()
    await harness.app()
    await harness.deployed()
    app, address = "munich:c1:web", PublishedAddress("web/0", 8000, "127.0.0.1", 34567)
    runner.site.things["c1:web"] = replace(runner.site.things["c1:web"], ports=(address,))
    found = await harness.until_true(app, lambda one: instance_status(one).ports == (address,))
    assert view(found).ports == (PortView("web/0", 8000, "tcp", "127.0.0.1", 34567),)
    await runner.kill()
    await harness.until("munich", "Offline")
    assert instance_status(await harness.get(app)).ports == (address,)
    runner.start(harness.hub)
    await harness.online()
    await harness.ended(await harness.service.delete(NS, app, "edge.appinst", ADA))
    assert not instance_status(await harness.get(app)).ports


async def test_the_measures_of_a_cloudlet_go_with_it(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.cluster()
    runner.site.measures["c1"] = InstanceMeasure(cpu=0.5)
    await until_load(harness, C1, 0.5)
    await harness.ended(await harness.service.delete(NS, C1, "edge.clusterinst", ADA))
    await harness.ended(await harness.service.delete(NS, "munich", "edge.cloudlet", ADA))
    row = await harness.engine.store.reader.object(measures_key(NS, "munich"))
    assert row is not None
    assert row.removed
