"""Jobs by schedule, in virtual time: each scheduled time fires once, whatever is down or killed when."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from errno import EMFILE
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest

from stateward.domains.systems import cron
from stateward.domains.systems.backends.port import InstanceSpec, ServiceRef, SystemRef
from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.definition import read
from stateward.domains.systems.job_guards import JobGuards
from stateward.domains.systems.job_service import JobActions
from stateward.domains.systems.model import JobRunSeen, JobRunSpec, JobSeen, seen_of, spec_of
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.service import SystemActions
from stateward.engine import Denied, Engine, Request, UnitOfWork
from stateward.store.filters import JournalFilter
from stateward.store.records import Object, Status
from stateward.testing import CrashRun, crash_everywhere
from stateward.testing.engines import EngineFactory, open_loop

NS, JOB = "default", "shop.report"
HOME = SystemRef(NS, "shop")
MINUTE = 60.0


@pytest.fixture(autouse=True)
def short_intervals() -> None:
    """Leave the intervals as they are: in virtual time they take none, and each look is a further point to crash at."""


class ScheduleHarness:
    """A system with simulated instances, in virtual time; its process can be stopped and started."""

    def __init__(self, engines: EngineFactory) -> None:
        self._engines = engines
        self._stack = AsyncExitStack()
        self.backend = SimulatedBackend(delay=5.0)
        self.engine: Engine
        self.plugin: SystemsRuntime

    async def start(self) -> None:
        """Start a process."""
        self.plugin = SystemsRuntime({"simulated": self.backend})
        self.engine = await self._stack.enter_async_context(self._engines(lambda: self.plugin, lease_s=30.0))
        await self._stack.enter_async_context(self.plugin.running(self.engine, works=True))
        self.actions, self.jobs = SystemActions(self.engine, NS, "ann"), JobActions(self.engine, NS, "ann")

    async def stop(self) -> None:
        """Stop the process."""
        await self._stack.aclose()

    async def deploy(self, **job: Any) -> None:
        """Deploy a job, and wait for it."""
        text = ", ".join(
            f"{name}: {value!r}" if name == "schedule" else f"{name}: {value}" for name, value in job.items()
        )
        accepted = await self.actions.deploy("shop", "/", read(f"jobs: {{report: {{command: work, {text}}}}}"))
        ended = await self.engine.wait_record(NS, accepted.op.id)
        assert ended.status is Status.SUCCEEDED, ended.error

    async def runs(self) -> dict[str, Object]:
        """Return the runs by the unique part of their ids, the oldest first."""
        return {one.id.partition("@")[2]: one for one in await self.plugin.context.runs(NS, JOB)}

    async def states(self) -> dict[str, str]:
        """Return the states of the runs."""
        return {name: one.state for name, one in (await self.runs()).items()}

    async def seen(self) -> JobSeen:
        """Return the observations of the job."""
        return seen_of(await self.engine.record(NS, JOB), JobSeen)


def in_virtual_time(play: Callable[[ScheduleHarness], Awaitable[None]]) -> None:
    """Play a scenario: it begins on 2026-01-01, at midnight UTC."""

    async def main(engines: EngineFactory) -> None:
        harness = ScheduleHarness(engines)
        await harness.start()
        try:
            made = await harness.actions.create("shop", "simulated")
            await harness.engine.wait_record(NS, made.op.id)
            await play(harness)
        finally:
            await harness.stop()

    with open_loop("sqlite") as loop, EngineFactory(loop) as engines:
        loop.run_until_complete(main(engines))


def test_each_scheduled_time_has_one_run_and_the_next_one_is_told() -> None:
    async def play(harness: ScheduleHarness) -> None:
        await harness.deploy(schedule="*/10 * * * *")
        assert (await harness.seen()).next == datetime(2026, 1, 1, 0, 10, tzinfo=UTC).timestamp()
        await asyncio.sleep(30 * MINUTE + 30)
        assert await harness.states() == dict.fromkeys(
            ("20260101T0010Z", "20260101T0020Z", "20260101T0030Z"), "succeeded"
        )
        spec = spec_of((await harness.runs())["20260101T0020Z"], JobRunSpec)
        assert spec is not None
        assert (spec.trigger, spec.missed_until) == ("schedule", None)
        assert (await harness.seen()).next == datetime(2026, 1, 1, 0, 40, tzinfo=UTC).timestamp()
        assert (await harness.engine.record(NS, "shop")).state == "stable"

    in_virtual_time(play)


def test_a_named_time_zone_counts() -> None:
    async def play(harness: ScheduleHarness) -> None:
        await harness.deploy(schedule="0 3 * * *", time_zone="Europe/Berlin")
        assert (await harness.seen()).next == datetime(2026, 1, 1, 2, 0, tzinfo=UTC).timestamp()

    in_virtual_time(play)


def open_zone_that_fails(error: Exception, times: int) -> Callable[[str], ZoneInfo]:
    """Return a replacement of `ZoneInfo` that fails for so many times."""
    failures = iter([error] * times)

    def read(name: str) -> ZoneInfo:
        for one in failures:
            raise one
        return ZoneInfo(name)

    return read


@pytest.mark.parametrize("error", [OSError(EMFILE, "too many open files"), ZoneInfoNotFoundError("no tzdata")])
def test_a_host_that_cannot_read_the_time_zone_delays_a_run_and_the_schedule_goes_on(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(harness: ScheduleHarness) -> None:
        await harness.deploy(schedule="*/10 * * * *", time_zone="Europe/Berlin")
        monkeypatch.setattr(cron, "ZoneInfo", open_zone_that_fails(error, 2))
        await asyncio.sleep(11 * MINUTE)
        assert await harness.states() == {"20260101T0010Z": "succeeded"}
        await asyncio.sleep(10 * MINUTE)
        assert list(await harness.states()) == ["20260101T0010Z", "20260101T0020Z"]

    in_virtual_time(play)


def test_an_active_job_that_has_lost_its_timer_gets_it_again_when_a_process_starts() -> None:
    async def play(harness: ScheduleHarness) -> None:
        await harness.deploy(schedule="*/10 * * * *")
        (timer,) = await harness.engine.store.reader.timers(NS, 10)
        await harness.engine.unset_timer(NS, timer.id)
        await asyncio.sleep(11 * MINUTE)
        assert await harness.states() == {}
        await harness.stop()
        await harness.start()
        await asyncio.sleep(MINUTE)
        assert await harness.states() == {"20260101T0010Z": "succeeded"}
        await asyncio.sleep(10 * MINUTE)
        assert list(await harness.states()) == ["20260101T0010Z", "20260101T0020Z"]

    in_virtual_time(play)


def test_times_that_were_missed_are_caught_up_by_one_run_that_says_so() -> None:
    async def play(harness: ScheduleHarness) -> None:
        await harness.deploy(schedule="*/10 * * * *")
        await asyncio.sleep(11 * MINUTE)
        await harness.stop()
        await asyncio.sleep(36 * MINUTE)
        await harness.start()
        await asyncio.sleep(MINUTE)
        runs = await harness.runs()
        assert list(runs) == ["20260101T0010Z", "20260101T0020Z"]
        spec = spec_of(runs["20260101T0020Z"], JobRunSpec)
        assert spec is not None
        assert spec.missed_until == datetime(2026, 1, 1, 0, 40, tzinfo=UTC).timestamp()
        await asyncio.sleep(3 * MINUTE)
        assert "20260101T0050Z" in await harness.runs()  # and the schedule goes on

    in_virtual_time(play)


def test_a_run_that_is_still_on_lets_the_next_one_be_skipped_and_that_is_told() -> None:
    async def play(harness: ScheduleHarness) -> None:
        harness.backend.hang("/report")
        await harness.deploy(schedule="*/10 * * * *", deadline=3_600)
        await asyncio.sleep(25 * MINUTE)
        assert await harness.states() == {"20260101T0010Z": "running"}
        skipped = (await harness.seen()).skipped
        assert skipped is not None
        assert skipped.why == "run shop.report@20260101T0010Z is still running"
        assert "skipped" in {entry.event for entry in await harness.engine.history(NS, JOB)}
        harness.backend.mend_all()
        await asyncio.sleep(10 * MINUTE)
        assert (await harness.states())["20260101T0030Z"] == "succeeded"

    in_virtual_time(play)


def test_runs_overlap_where_that_is_allowed() -> None:
    async def play(harness: ScheduleHarness) -> None:
        harness.backend.hang("/report")
        await harness.deploy(schedule="*/10 * * * *", concurrency="allow")
        await asyncio.sleep(25 * MINUTE)
        assert list((await harness.states()).values()) == ["running", "running"]

    in_virtual_time(play)


def test_a_run_replaces_the_one_that_is_still_on() -> None:
    async def play(harness: ScheduleHarness) -> None:
        harness.backend.hang("/report")
        await harness.deploy(schedule="*/10 * * * *", concurrency="replace")
        await asyncio.sleep(25 * MINUTE)
        assert await harness.states() == {"20260101T0010Z": "cancelled", "20260101T0020Z": "running"}
        replaced = (await harness.runs())["20260101T0010Z"]
        assert replaced.error == "cancelled by run shop.report@20260101T0020Z, which replaces it"
        assert len(await harness.backend.instances(ServiceRef(HOME, "/report@20260101T0010Z"))) == 0

    in_virtual_time(play)


class RunsRefused(Denied, code="runs_refused", retry=True):
    text = "no run is accepted at the moment"


def test_a_run_that_is_refused_leaves_the_one_that_it_would_replace_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    guard_run = JobGuards.guard_run

    async def refuse(guards: JobGuards, uow: UnitOfWork, request: Request, found: Object) -> Request | None:
        if request.creates is not None:
            raise RunsRefused
        return await guard_run(guards, uow, request, found)

    async def play(harness: ScheduleHarness) -> None:
        harness.backend.hang("/report")
        await harness.deploy(schedule="*/10 * * * *", concurrency="replace")
        await asyncio.sleep(15 * MINUTE)
        with monkeypatch.context() as patched:
            patched.setattr(JobGuards, "guard_run", refuse)
            await harness.stop()
            await harness.start()
            await asyncio.sleep(10 * MINUTE)
            assert await harness.states() == {"20260101T0010Z": "running"}
        await harness.stop()
        await harness.start()
        await asyncio.sleep(MINUTE)
        assert await harness.states() == {"20260101T0010Z": "cancelled", "20260101T0020Z": "running"}

    in_virtual_time(play)


def test_a_suspended_job_does_not_fire_and_a_resumed_one_goes_on_from_now() -> None:
    async def play(harness: ScheduleHarness) -> None:
        await harness.deploy(schedule="*/10 * * * *")
        await harness.jobs.suspend("shop", "/report")
        assert (await harness.seen()).next is None
        await asyncio.sleep(35 * MINUTE)
        assert await harness.runs() == {}
        await harness.jobs.resume("shop", "/report")
        await asyncio.sleep(10 * MINUTE)
        assert list(await harness.runs()) == ["20260101T0040Z"]

    in_virtual_time(play)


def test_a_deploy_changes_the_schedule_and_leaves_a_suspension_alone_unless_it_says_so() -> None:
    async def play(harness: ScheduleHarness) -> None:
        await harness.deploy(schedule="0 3 * * *", suspended="true")
        assert (await harness.engine.record(NS, JOB)).state == "suspended"
        await harness.deploy(schedule="*/10 * * * *", suspended="true")
        assert (await harness.seen()).next is None
        await harness.deploy(schedule="*/10 * * * *")
        assert (await harness.engine.record(NS, JOB)).state == "active"
        await harness.deploy(schedule="*/15 * * * *")
        assert (await harness.seen()).next == datetime(2026, 1, 1, 0, 15, tzinfo=UTC).timestamp()
        await harness.jobs.suspend("shop", "/report")
        await harness.deploy(schedule="*/20 * * * *")
        assert (await harness.engine.record(NS, JOB)).state == "suspended"
        await asyncio.sleep(65 * MINUTE)
        assert await harness.runs() == {}
        assert await harness.engine.store.reader.timers(NS, 10) == []

    in_virtual_time(play)


def test_ended_runs_are_kept_as_the_job_says() -> None:
    async def play(harness: ScheduleHarness) -> None:
        await harness.deploy(schedule="*/10 * * * *", history=2)
        await asyncio.sleep(55 * MINUTE)
        assert list(await harness.runs()) == ["20260101T0040Z", "20260101T0050Z"]

    in_virtual_time(play)


def test_a_run_that_passes_its_deadline_fails_with_that_reason_also_after_a_downtime() -> None:
    async def play(harness: ScheduleHarness) -> None:
        harness.backend.hang("/report")
        await harness.deploy(deadline=600)
        first = await harness.jobs.run("shop", "/report")
        ended = await harness.engine.wait_record(NS, first.op.id)
        assert (ended.status, ended.error) == (Status.FAILED, "not done within 600 s")
        assert seen_of(await harness.engine.record(NS, first.object.id), JobRunSeen).reason == "deadline"
        second = await harness.jobs.run("shop", "/report")
        await asyncio.sleep(10)
        await harness.stop()
        await asyncio.sleep(3_600)
        await harness.start()
        ended = await harness.engine.wait_record(NS, second.op.id)
        assert (ended.status, ended.error) == (Status.FAILED, "not done within 600 s")

    in_virtual_time(play)


class LedgerBackend(SimulatedBackend):
    """Counts how often each instance was really started; it outlives the processes."""

    def __init__(self) -> None:
        super().__init__(delay=0.1)
        self.started: Counter[tuple[str, str]] = Counter()

    async def start(self, ref: ServiceRef, want: InstanceSpec) -> None:
        """Count a new instance."""
        if want.name not in {one.name for one in await self.instances(ref)}:
            self.started[ref.path, want.name] += 1
        await super().start(ref, want)


async def fire_twice(run: CrashRun) -> None:
    backend = LedgerBackend()
    engine = await run.start(lambda: SystemsRuntime({"simulated": backend}))
    actions = SystemActions(engine, NS, "ann")
    made = await actions.create("shop", "simulated")
    await engine.wait(NS, made.op.id, check=True)
    jobs = "jobs: {report: {command: work, schedule: '*/2 * * * *', completions: 2, parallelism: 2}}"
    begun = await actions.deploy("shop", "/", read(jobs), None)
    await engine.wait(NS, begun.op.id, check=True)
    await run.sleep(5 * MINUTE)
    names = sorted({path for path, _ in backend.started})
    assert len(names) == 2, names
    assert backend.started == {(path, name): 1 for path in names for name in ("0-0", "1-0")}
    entries = await engine.store.reader.journal(0, 10_000, JournalFilter(kind="systems.jobrun"))
    ends = [one.object for one in entries if one.target == "succeeded"]
    assert len(ends) == len(set(ends)) == 2


def test_every_scheduled_time_fires_once_whatever_crashes_when() -> None:
    assert crash_everywhere(fire_twice).points > 20


async def deploy_with_a_hook(run: CrashRun) -> None:
    backend = LedgerBackend()
    engine = await run.start(lambda: SystemsRuntime({"simulated": backend}))
    actions = SystemActions(engine, NS, "ann")
    made = await actions.create("shop", "simulated")
    await engine.wait(NS, made.op.id, check=True)
    begun = await actions.deploy("shop", "/", read("jobs: {migrate: {command: work, hook: before-deploy}}"), None)
    await engine.wait(NS, begun.op.id, check=True)
    unique = begun.object.id.partition("@")[2]
    assert backend.started == {(f"/migrate@before-deploy-{unique}", "0-0"): 1}


@pytest.mark.long
def test_a_hook_runs_once_whatever_crashes_when() -> None:
    assert crash_everywhere(deploy_with_a_hook).points > 20
