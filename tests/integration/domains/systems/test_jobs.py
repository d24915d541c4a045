"""Jobs on request and as hooks of deploys: runs, retries, cancellation, and what goes with a system."""

import pytest

from stateward.domains.systems import job_guards
from stateward.domains.systems.backends.port import job_run_ref
from stateward.domains.systems.job_service import JobActions
from stateward.domains.systems.lifecycle import JOB, JOBRUN
from stateward.domains.systems.model import DesiredJob, JobRunSeen, seen_of, spec_of
from stateward.engine import Accepted, NotFound, Refused
from stateward.engine.errors import Protected
from stateward.errors import BadInput, UnknownValue
from stateward.store.filters import Page, Selector
from stateward.store.records import Object, Operation, Status
from tests.integration.domains.systems.conftest import HOME, NS, SystemsHarness, before_first_end
from tests.waiting import until

REPORT = "jobs: {report: {command: work v1, backoff: 0.05, HOW}}"


def report(how: str = "history: 5") -> str:
    return REPORT.replace("HOW", how)


def jobs_of(harness: SystemsHarness) -> JobActions:
    return JobActions(harness.engine, NS, "ann")


async def objects(harness: SystemsHarness, kind: str) -> list[Object]:
    return await harness.engine.store.reader.list_objects(Selector(NS, kind), Page(None, 100))


async def ran(harness: SystemsHarness, path: str = "/report") -> tuple[Operation, JobRunSeen]:
    """Run a job to its end."""
    accepted = await jobs_of(harness).run("shop", path)
    ended = await harness.ended(accepted)
    return ended, seen_of(await harness.engine.record(NS, accepted.object.id), JobRunSeen)


async def begun(harness: SystemsHarness, path: str = "/report") -> Accepted:
    """Start a run that does not end by itself."""
    harness.backend.hang(path)
    accepted = await jobs_of(harness).run("shop", path)
    await harness.becomes(accepted.object.id, "running")
    await until(lambda: has_instances(harness, accepted.object.id))
    return accepted


async def has_instances(harness: SystemsHarness, run: str) -> bool:
    path, _, unique = run.partition(".")[2].partition("@")
    return bool(await harness.backend.instances(job_run_ref(HOME, f"/{path}", unique)))


async def progress(harness: SystemsHarness, accepted: Accepted) -> list[str]:
    """Return the lines of progress of an operation."""
    return [one.text for one in await harness.engine.store.reader.progress_of(accepted.op.key, 0)]


async def test_a_run_that_is_cancelled_when_it_is_about_to_succeed_is_cancelled(
    harness: SystemsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancel(run: str) -> None:
        assert (await jobs_of(harness).cancel("shop", run)).object.state == "running"

    await harness.deployed("/", report())
    before_first_end(monkeypatch, "run", cancel)
    ended, seen = await ran(harness)
    assert (ended.status, str(ended.error)[:16]) == (Status.CANCELLED, "cancelled by ann")
    assert (seen.succeeded, seen.cancelled) == (1, "ann")


async def test_a_run_succeeds_when_enough_instances_have(harness: SystemsHarness) -> None:
    assert (await harness.deployed("/", report("parallelism: 2, completions: 5"))).status is Status.SUCCEEDED
    ended, seen = await ran(harness)
    assert (ended.status, seen) == (Status.SUCCEEDED, JobRunSeen(succeeded=5))
    assert not await has_instances(harness, ended.object)


async def test_a_run_fails_when_its_retries_are_used_and_the_system_stays_stable(harness: SystemsHarness) -> None:
    await harness.deployed("/", report("retries: 2") + "\nservices: {web: {command: web}}")
    harness.backend.fail("/report")
    ended, seen = await ran(harness)
    assert ended.status is Status.FAILED
    assert ended.error == "3 instances failed, with 2 retries: 0-2 ended with 1"
    assert seen == JobRunSeen(failed=3, reason="retries")
    assert await harness.state("shop") == "stable"
    harness.backend.mend_all()
    assert (await ran(harness))[0].status is Status.SUCCEEDED


async def test_a_run_that_is_cancelled_stops_its_instances_first(harness: SystemsHarness) -> None:
    await harness.deployed("/", report())
    accepted = await begun(harness)
    await jobs_of(harness).cancel("shop", accepted.object.id)
    ended = await harness.ended(accepted)
    assert (ended.status, str(ended.error).partition(" (after ")[0]) == (Status.CANCELLED, "cancelled by ann")
    assert await harness.state(accepted.object.id) == "cancelled"
    assert not await has_instances(harness, accepted.object.id)
    with pytest.raises(Refused):
        await jobs_of(harness).cancel("shop", accepted.object.id)


async def test_the_same_key_starts_one_run(harness: SystemsHarness) -> None:
    await harness.deployed("/", report())
    jobs = jobs_of(harness)
    first, second = [await jobs.run("shop", "/report", "k1") for _ in range(2)]
    assert first.object.id == second.object.id
    assert second.again
    await harness.ended(first)


async def test_a_suspended_job_runs_on_request_alone(harness: SystemsHarness) -> None:
    await harness.deployed("/", report("suspended: true, hook: before-deploy"))
    assert await harness.state("shop.report") == "suspended"
    assert await objects(harness, JOBRUN.kind) == []
    assert (await ran(harness))[0].status is Status.SUCCEEDED
    await jobs_of(harness).resume("shop", "/report")
    with pytest.raises(Refused):
        await jobs_of(harness).resume("shop", "/report")


async def test_unknown_jobs_runs_and_pools_are_refused(harness: SystemsHarness) -> None:
    await harness.deployed("/", report())
    jobs = jobs_of(harness)
    with pytest.raises(NotFound):
        await jobs.run("shop", "/other")
    with pytest.raises(NotFound):
        await jobs.cancel("shop", "shop.report")
    with pytest.raises(UnknownValue, match="jobs/report"):
        await harness.deploy("/", report("node_pool: none"))
    ended = await harness.deployed("/report/below", "{command: x}")
    assert "there is a job at /report" in (ended.error or "")


async def test_a_run_waits_for_room_in_its_node_pool(harness: SystemsHarness) -> None:
    pools = "\nnode_pools: {small: {nodes: 1, slots: 1}}"
    await harness.deployed("/", report("node_pool: small, parallelism: 3, completions: 3") + pools)
    ended, seen = await ran(harness)
    assert (ended.status, seen.succeeded) == (Status.SUCCEEDED, 3)


async def test_a_deploy_of_a_path_leaves_other_jobs_alone_and_removes_its_own(harness: SystemsHarness) -> None:
    await harness.deployed(
        "/", "jobs: {a: {command: x}}\nservices: {store: {jobs: {b: {command: x}, c: {command: x}}}}"
    )
    assert [one.id for one in await objects(harness, JOB.kind)] == ["shop.a", "shop.store.b", "shop.store.c"]
    before = await harness.engine.record(NS, "shop.store.b")
    await harness.deployed("/store", "jobs: {b: {command: x}}")
    assert [one.id for one in await objects(harness, JOB.kind)] == ["shop.a", "shop.store.b"]
    assert await harness.engine.record(NS, "shop.store.b") == before
    assert (await harness.ended(await harness.actions.rollback("shop", "/store", None))).status is Status.SUCCEEDED
    assert [one.id for one in await objects(harness, JOB.kind)] == ["shop.a", "shop.store.b", "shop.store.c"]


async def test_a_protected_job_is_not_removed_by_a_deploy(harness: SystemsHarness) -> None:
    await harness.deployed("/", report())
    await harness.engine.protect(NS, "shop.report", "needed")
    with pytest.raises(Protected):
        await harness.deploy("/", "services: {}")


async def test_a_protected_run_keeps_its_job_and_its_system(harness: SystemsHarness) -> None:
    await harness.deployed("/", report())
    await ran(harness)
    (run,) = await objects(harness, JOBRUN.kind)
    await harness.engine.protect(NS, run.id, "evidence")
    for removal in (
        harness.deploy("/", "services: {}"),
        harness.actions.teardown("shop"),
        harness.actions.delete("shop"),
    ):
        with pytest.raises(Protected, match="evidence"):
            await removal
    assert await objects(harness, JOBRUN.kind) == [await harness.engine.record(NS, run.id)]


@pytest.mark.parametrize("how", ["teardown", "delete"])
async def test_the_end_of_a_system_ends_its_runs_and_removes_its_jobs(harness: SystemsHarness, how: str) -> None:
    await harness.deployed("/", report())
    await ran(harness)
    accepted = await begun(harness)
    ended = await harness.ended(await getattr(harness.actions, how)("shop"))
    assert ended.status is Status.SUCCEEDED, ended.error
    assert (await harness.ended(accepted)).status is Status.CANCELLED
    assert await objects(harness, JOB.kind) == await objects(harness, JOBRUN.kind) == []
    assert await harness.engine.store.reader.timers(NS, 10) == []


# --- hooks ----------------------------------------------------------------------------------------------------------

HOOKED = """
services: {web: {command: web v1}}
jobs:
  migrate: {command: migrate v1, hook: before-deploy}
  check: {command: check v1, hook: after-deploy}
"""


async def test_a_deploy_runs_its_hooks_before_and_after_the_services(harness: SystemsHarness) -> None:
    accepted = await harness.deploy("/", HOOKED)
    assert (await harness.ended(accepted)).status is Status.SUCCEEDED
    entries = await harness.engine.history(NS, "shop:web")
    changed = [entry.at for entry in entries if entry.source != entry.target]
    unique = accepted.object.id.partition("@")[2]
    before = await harness.engine.record(NS, f"shop.migrate@before-deploy-{unique}")
    after = await harness.engine.record(NS, f"shop.check@after-deploy-{unique}")
    assert (before.state, after.state) == ("succeeded", "succeeded")
    assert before.since <= changed[0]
    assert after.created >= changed[-1]
    lines = await progress(harness, accepted)
    assert "before-deploy: /migrate must succeed" in lines
    assert "after-deploy: /check must succeed" in lines


async def test_a_failing_hook_before_a_deploy_fails_it_before_any_service_changes(harness: SystemsHarness) -> None:
    await harness.deployed("/", HOOKED)
    before = await harness.engine.record(NS, "shop:web")
    harness.backend.fail("/migrate", "v2")
    ended = await harness.deployed("/", HOOKED.replace("v1", "v2"))
    assert ended.status is Status.FAILED
    assert "shop.migrate@before-deploy-" in (ended.error or "")
    assert "ended with 1" in (ended.error or "")
    assert await harness.engine.record(NS, "shop:web") == before
    restored = spec_of(await harness.engine.record(NS, "shop.migrate"), DesiredJob)
    assert restored is not None
    assert restored.job.program.command == ("migrate", "v1")


async def test_a_failing_hook_after_a_deploy_brings_the_services_back(harness: SystemsHarness) -> None:
    await harness.deployed("/", HOOKED)
    harness.backend.fail("/check", "v2")
    ended = await harness.deployed("/", HOOKED.replace("v1", "v2"))
    assert ended.status is Status.FAILED
    assert await harness.commands() == {"web": "web v1"}
    assert await harness.locks() == []


async def test_the_first_deploy_whose_hook_fails_leaves_nothing(harness: SystemsHarness) -> None:
    harness.backend.fail("/migrate")
    assert (await harness.deployed("/", HOOKED)).status is Status.FAILED
    assert await harness.states() == {}
    assert await objects(harness, JOB.kind) == await objects(harness, JOBRUN.kind) == []


async def test_a_job_alone_is_deployed_at_its_path_and_may_replace_a_service(harness: SystemsHarness) -> None:
    await harness.deployed("/", HOOKED)
    await harness.deployed("/report", "{command: serve}")
    ended = await harness.deployed("/report", "job: {command: report v1, retries: 2}")
    assert ended.status is Status.SUCCEEDED, ended.error
    assert await harness.commands() == {"web": "web v1"}
    assert [one.id for one in await objects(harness, JOB.kind)] == ["shop.check", "shop.migrate", "shop.report"]
    run = await harness.ended(await jobs_of(harness).run("shop", "/report"))
    assert run.status is Status.SUCCEEDED, run.error
    with pytest.raises(BadInput, match="the root of a system is a group"):
        await harness.deploy("/", "job: {command: report}")


async def test_a_deploy_that_is_cancelled_cancels_its_hook(harness: SystemsHarness) -> None:
    await harness.deployed("/", HOOKED)
    harness.backend.hang("/migrate")
    accepted = await harness.deploy("/", HOOKED.replace("v1", "v2"))
    run = f"shop.migrate@before-deploy-{accepted.object.id.partition('@')[2]}"
    await harness.becomes(run, "running")
    await harness.engine.cancel(NS, accepted.op.id, "bob")  # as `system cancel` does
    ended = await harness.ended(accepted)
    assert (ended.status, str(ended.error).partition(" (after ")[0]) == (Status.CANCELLED, "cancelled by bob")
    assert await harness.locks() == []
    assert await harness.state(run) == "cancelled"
    assert not await has_instances(harness, run)
    assert await harness.commands() == {"web": "web v1"}


# --- schedules, on both stores (`test_job_schedules` has the rest) ---------------------------------------------------


async def test_a_timer_fires_a_run_and_replaces_the_one_that_is_on(
    harness: SystemsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SoonSchedule:
        """Comes a moment later, twice."""

        left = 2

        def next_after(self, after: float, zone: object) -> float:
            """Return a time in another minute each time, which has already come."""
            self.left -= 1
            return after - 600 + 60 * (2 - self.left) if self.left >= 0 else after + 3_600

        def last_until(self, first: float, now: float, zone: object) -> float:
            """Return the only time."""
            return first

    schedule = SoonSchedule()
    monkeypatch.setattr(job_guards, "parse_cron", lambda _text: schedule)
    harness.backend.hang("/report")
    await harness.deployed("/", report("schedule: '* * * * *', concurrency: replace"))

    async def replaced() -> bool:
        states = [one.state for one in await objects(harness, JOBRUN.kind)]
        return states == ["cancelled", "running"]

    await until(replaced)
    assert len(await harness.engine.store.reader.timers(NS, 10)) == 1
