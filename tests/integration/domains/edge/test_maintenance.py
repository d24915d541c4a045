"""Maintenance of cloudlets: apps are moved away without a gap, new instances are refused, and all can be cancelled."""

import asyncio
import contextlib
from typing import Any

import pytest

from stateward.agents.messages import AgentOrder
from stateward.agents.simulation import SimulatedSite
from stateward.domains.edge.cloudlet_maintenance import MaintenanceHandler
from stateward.domains.edge.errors import ActionInProgress, InMaintenance
from stateward.domains.edge.model import ClusterInst, cloudlet_status, instance_status
from stateward.domains.edge.policy.app_members import app_status
from stateward.engine import Accepted, Job
from stateward.store.records import Key, Operation
from tests.integration.domains.edge.conftest import ADA, ANN, NS, PATIENT, AgentRunner, EdgeHarness, hold_work

OLD, NEW = "munich:autocluster-web:web", "berlin:autocluster-web:web"


async def provisioned(harness: EdgeHarness, *cloudlets: str, **policy: int) -> dict[str, AgentRunner]:
    """Create cloudlets and an app that its policy has deployed on the first of them."""
    runners = {name: await harness.cloudlet(name) for name in cloudlets}
    await harness.autoprov("near", *cloudlets, **{"min": 1, "max": 1, **policy})
    await harness.app(autoprov="near")
    await harness.plugin.policy_controller.reconcile_app(NS, await harness.get("app.web"))
    await harness.until(f"{cloudlets[0]}:autocluster-web:web", "Ready")
    return runners


async def maintain(harness: EdgeHarness, name: str = "munich") -> Accepted:
    """Begin a maintenance as soon as nothing is in transition."""
    async with asyncio.timeout(PATIENT):
        while True:
            with contextlib.suppress(ActionInProgress):
                return await harness.service.act(NS, name, "edge.cloudlet", "maintain", ANN)
            await asyncio.sleep(0.01)


async def lines(harness: EdgeHarness, operation: Operation) -> list[str]:
    return [one.text for one in await harness.engine.store.reader.progress_of(operation.key, 0)]


async def test_an_app_is_moved_before_a_maintenance_and_is_never_without_an_instance(harness: EdgeHarness) -> None:
    runners = await provisioned(harness, "munich", "berlin")
    await harness.cluster()
    await harness.app("plain")
    await harness.deployed("plain")
    operation = await harness.ended(await maintain(harness))
    assert operation.status == "succeeded"
    assert (await harness.state("munich"), await harness.state(NEW)) == ("Maintenance", "Ready")
    ready = next(one for one in await harness.history(NEW) if one.target == "Ready")
    removed = next(one for one in await harness.history(OLD) if one.event == "delete")
    assert ready.seq < removed.seq
    await harness.until(OLD, "NotPresent")
    said = await lines(harness, operation)
    assert f"moving {OLD} to berlin" in said
    assert "munich:c1:plain stays: its app has no auto-provisioning policy" in said
    assert await harness.state("munich:c1:plain") == "Ready"
    with pytest.raises(InMaintenance, match="cloudlet munich is Maintenance: it gets no new instances"):
        await harness.service.create_cluster(NS, "munich", "c2", ClusterInst(), ANN)
    runners["munich"].site.things.pop("c1:plain")  # somebody works there
    await harness.until_true("munich:c1:plain", lambda one: instance_status(one).missing)
    runners["munich"].dialer.break_connections()
    await harness.until_true("munich", lambda one: one.state == "Maintenance")
    await asyncio.wait_for(runners["munich"].agent.synced.wait(), PATIENT)
    assert (await harness.instance_status("munich:c1:plain")).missing
    await harness.service.resume(NS, "munich", ANN)
    await harness.online()
    await harness.until_true("munich:c1:plain", lambda one: one.state == "Ready" and not instance_status(one).missing)
    await harness.cluster("c2")


async def test_a_protected_app_stays_and_gets_no_replacement(harness: EdgeHarness) -> None:
    await provisioned(harness, "munich", "berlin")
    await harness.engine.protect(NS, OLD, "keep")
    operation = await harness.ended(await maintain(harness))
    assert (operation.status, await harness.state(OLD)) == ("succeeded", "Ready")
    assert f"{OLD} stays: it is protected (keep)" in await lines(harness, operation)
    assert await harness.engine.store.reader.object(Key(NS, NEW)) is None


async def test_an_app_that_cannot_run_on_one_cloudlet_is_moved_to_the_next_or_stays(harness: EdgeHarness) -> None:
    runners = await provisioned(harness, "munich", "berlin", "turin")

    def refuse(order: AgentOrder) -> None:
        if order.work.value == "create":
            raise RuntimeError("the disk is full")

    runners["berlin"].site.gate = refuse
    operation = await harness.ended(await maintain(harness))
    assert operation.status == "succeeded"
    await harness.until("turin:autocluster-web:web", "Ready")
    assert any(one.startswith(f"{NEW} did not become Ready") for one in await lines(harness, operation))
    runners["munich"].site.gate = refuse
    await harness.service.resume(NS, "munich", ANN)
    operation = await harness.ended(await maintain(harness, "turin"))
    assert (operation.status, await harness.state("turin")) == ("succeeded", "Maintenance")
    stays = "turin:autocluster-web:web"
    assert f"{stays} stays: no other cloudlet of its policy can take it" in await lines(harness, operation)
    assert await harness.state(stays) == "Ready"


async def test_a_cancelled_maintenance_leaves_the_cloudlet_as_it_was(harness: EdgeHarness) -> None:
    runners = await provisioned(harness, "munich", "berlin")
    gate = hold_work(runners["berlin"])
    accepted = await maintain(harness)
    await harness.until("munich", "PrepareMaintenance")
    await harness.until_progress(accepted, 1)
    with pytest.raises(InMaintenance):
        await harness.service.create_cluster(NS, "munich", "c2", ClusterInst(), ANN)
    await harness.engine.cancel(NS, accepted.op.id, "ann")
    gate.set()
    assert (await harness.ended(accepted)).status == "cancelled"
    assert (await harness.state("munich"), await harness.state(OLD)) == ("Ready", "Ready")
    await harness.plugin.policy_controller.reconcile_app(NS, await harness.get("app.web"))
    async with asyncio.timeout(PATIENT):  # the policy's maximum holds again
        while len(app_status(await harness.get("app.web")).members) != 1:
            await asyncio.sleep(0.01)
            await harness.plugin.policy_controller.reconcile_app(NS, await harness.get("app.web"))


class JobGate:
    """Holds the jobs of one cloudlet up before a method of the handler, until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str, cloudlet: str) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        run = getattr(MaintenanceHandler, method)

        async def gated(handler: MaintenanceHandler, job: Job, *args: Any) -> Any:
            if job.object == cloudlet:
                self.reached.set()
                await self.opened.wait()
            return await run(handler, job, *args)

        monkeypatch.setattr(MaintenanceHandler, method, gated)


async def test_two_maintenances_that_plan_the_same_target_do_not_share_one_replacement(
    harness: EdgeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await provisioned(harness, "munich", "rome", "berlin", min=2, max=2)
    rome = "rome:autocluster-web:web"
    await harness.until(rome, "Ready")
    gate = JobGate(monkeypatch, "_tell_plan", "munich")
    first = await maintain(harness)
    await gate.reached.wait()  # it has planned the move to berlin
    assert (await harness.ended(await maintain(harness, "rome"))).status == "succeeded"
    await harness.until(rome, "NotPresent")
    assert await harness.state(NEW) == "Ready"
    gate.opened.set()
    operation = await harness.ended(first)
    assert (operation.status, await harness.state("munich")) == ("succeeded", "Maintenance")
    assert (await harness.state(OLD), await harness.state(NEW)) == ("Ready", "Ready")
    assert f"{OLD} stays: no other cloudlet of its policy can take it" in await lines(harness, operation)


async def test_an_instance_stays_if_its_replacement_was_deleted_before_the_removal(
    harness: EdgeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await provisioned(harness, "munich", "berlin")
    gate = JobGate(monkeypatch, "_removals", "munich")
    accepted = await maintain(harness)
    await gate.reached.wait()
    await harness.ended(await harness.service.delete(NS, NEW, "edge.appinst", ANN))
    gate.opened.set()
    operation = await harness.ended(accepted)
    assert (operation.status, await harness.state(OLD)) == ("succeeded", "Ready")
    assert f"{OLD} stays: app app.web has to have at least 1" in await lines(harness, operation)


async def test_a_maintenance_waits_for_no_agent_and_ends_offline_without_one(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await runner.kill()
    await harness.until("munich", "Offline")
    assert (await harness.ended(await maintain(harness))).status == "succeeded"
    await harness.service.resume(NS, "munich", ANN)
    assert await harness.state("munich") == "Offline"


async def test_an_agent_is_upgraded_in_a_maintenance_which_goes_on_after_it(harness: EdgeHarness) -> None:
    runner = await harness.cloudlet()
    await harness.ended(await maintain(harness))
    version = {"version": "2.0"}
    failed = await harness.ended(await harness.service.act(NS, "munich", "edge.cloudlet", "upgrade", ANN, version))
    assert (failed.status, await harness.state("munich")) == ("failed", "UpdateError")  # there is no such version here
    await harness.service.fix(NS, "munich", ADA)
    assert await harness.state("munich") == "Maintenance"

    async def nothing(_: object) -> None:
        return

    runner.agent._upgrade = nothing  # type: ignore[method-assign, assignment]
    accepted = await harness.service.act(NS, "munich", "edge.cloudlet", "upgrade", ANN, version)
    await runner.kill()
    harness.start(AgentRunner("munich", runner.site, "2.0"))
    assert (await harness.ended(accepted)).status == "succeeded"
    found = await harness.get("munich")
    assert (found.state, cloudlet_status(found).version) == ("Maintenance", "2.0")
    with pytest.raises(InMaintenance):
        await harness.service.create_cluster(NS, "munich", "c2", ClusterInst(), ANN)
    await harness.service.resume(NS, "munich", ANN)
    await harness.online()
    await harness.cluster("c2")


async def test_a_cloudlet_is_handed_over_in_a_maintenance_which_goes_on_after_it(harness: EdgeHarness) -> None:
    first = await harness.cloudlet(runner=AgentRunner("munich", SimulatedSite(), installation="first"))
    await harness.ended(await maintain(harness))
    await first.kill()
    second = harness.start(AgentRunner("munich", SimulatedSite(), installation="second"))
    await harness.until_true("munich", lambda one: bool(cloudlet_status(one).held))
    await harness.service.act(NS, "munich", "edge.cloudlet", "handover", ADA)
    await asyncio.wait_for(second.agent.synced.wait(), PATIENT)
    found = await harness.until_true("munich", lambda one: cloudlet_status(one).serving > 0)
    assert (found.state, cloudlet_status(found).installation) == ("Maintenance", "second")
    await harness.service.resume(NS, "munich", ANN)
    await harness.online()
