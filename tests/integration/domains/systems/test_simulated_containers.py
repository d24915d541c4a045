"""The container backend on a simulated engine: lost answers, faults, orphans, and instances that run once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from stateward.containers import ContainerSpec, EngineRefusal
from stateward.domains.systems.backends.container import ContainerBackend, container_instance, engine_listing
from stateward.domains.systems.backends.port import InstancePhase, InstanceSpec, ServiceInstance, ServiceRef, SystemRef
from stateward.domains.systems.definition import Service, Tree, revision_of
from stateward.store.records import Status
from stateward.testing.containers import ProgramRun, SimulatedEngine, stdout
from tests.containers import IMAGE
from tests.integration.domains.systems.container_harness import HOME, NS, run_host, shell
from tests.waiting import until

WEB = ServiceRef(HOME, "/web")
PATIENT = 60.0
SERVE = Service(image="shop:1", command=("serve",), drain=0.05, grace=1.0)


@pytest.fixture
def engine() -> SimulatedEngine:
    programs = {"count": lambda _: ProgramRun((stdout(b"one run\n"),), 3, 0.05)}
    return SimulatedEngine(["shop:1"], programs=programs)


@pytest.fixture
async def backend(
    engine: SimulatedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ContainerBackend]:
    monkeypatch.setattr(container_instance, "RETRY_S", 0.05)
    monkeypatch.setattr(engine_listing, "LIST_INTERVAL_S", 0.2)
    opened = ContainerBackend(tmp_path, engine)
    await opened.prepare(HOME)
    async with opened.live():
        yield opened


async def start(backend: ContainerBackend, service: Service = SERVE, **how: bool) -> None:
    await backend.start(WEB, InstanceSpec("one", revision_of(service), service, **how))


async def until_instance(backend: ContainerBackend, fits: Callable[[ServiceInstance], bool]) -> ServiceInstance:
    """Wait until the only instance satisfies a condition."""
    (instance,) = await until(lambda: backend.instances(WEB), lambda instances: fits(*instances))
    return instance


async def stop(backend: ContainerBackend) -> None:
    await backend.stop(WEB, "one")
    async with asyncio.timeout(PATIENT):
        while await backend.instances(WEB):
            await asyncio.sleep(0.01)


def is_ready(one: ServiceInstance) -> bool:
    return one.ready


async def test_lost_answers_double_nothing_and_lose_nothing(engine: SimulatedEngine, backend: ContainerBackend) -> None:
    engine.faults.loses.update(["create", "start", "create network"])
    await start(backend)
    await until_instance(backend, lambda one: "connection was closed" in one.why)
    engine.faults.loses.clear()
    await until_instance(backend, is_ready)
    assert engine.faults.calls.count("start") == 1  # the listing has shown that it runs
    assert len(await engine.list_containers()) == 1
    engine.faults.loses.update(["kill", "remove"])
    await stop(backend)
    assert await engine.list_containers() == []


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (lambda faults: setattr(faults, "is_disk_full", True), "out of disk"),
        (lambda faults: faults.refuses.update({"start": EngineRefusal.PORT_TAKEN}), "port taken"),
        (lambda faults: faults.refuses.update({"create": EngineRefusal.INVALID}), "invalid"),
    ],
)
async def test_a_refusal_is_the_reason_of_the_instance_and_it_is_tried_again(
    engine: SimulatedEngine, backend: ContainerBackend, fault: Callable[[object], None], told: str
) -> None:
    fault(engine.faults)
    await start(backend)
    await until_instance(backend, lambda one: one.phase is InstancePhase.CRASHED and told in one.why)
    engine.faults.is_disk_full = False
    engine.faults.refuses.clear()
    await until_instance(backend, is_ready)
    assert len(await engine.list_containers()) == 1


async def test_a_container_that_a_killed_engine_has_left_half_started_is_created_again(
    engine: SimulatedEngine, backend: ContainerBackend
) -> None:
    engine.faults.half_starts = 1
    await start(backend)
    assert (await until_instance(backend, is_ready)).restarts == 0
    assert len(await engine.list_containers()) == 1


async def test_a_job_whose_container_is_half_started_is_not_started_again(
    engine: SimulatedEngine, backend: ContainerBackend
) -> None:
    engine.faults.half_starts = 1
    await start(backend, run_once=True)
    await until_instance(backend, lambda one: one.phase is InstancePhase.ENDED and "damaged" in one.why)
    assert engine.faults.calls.count("start") == 1


async def test_a_container_that_is_out_of_memory_says_so(engine: SimulatedEngine, backend: ContainerBackend) -> None:
    await start(backend)
    await until_instance(backend, is_ready)
    (container,) = await engine.list_containers()
    engine.kill_for_memory(container.id)
    await until_instance(backend, lambda one: "more memory than it may use" in one.why)
    again = await until_instance(backend, is_ready)
    assert again.restarts == 1


async def test_a_backend_leaves_the_containers_of_others_alone(
    engine: SimulatedEngine, backend: ContainerBackend, tmp_path: Path
) -> None:
    other = ContainerBackend(tmp_path / "other", engine)
    await other.prepare(HOME)
    async with other.live():
        await start(other)
        await until_instance(other, is_ready)
    theirs = {one.id for one in await engine.list_containers()}
    await start(backend)
    await until_instance(backend, is_ready)
    (mine,) = {one.id for one in await engine.list_containers()} - theirs
    labels = dict((await engine.inspect_container(mine)).labels)
    orphan = ContainerSpec("orphan", "none", "shop:1", labels={**labels, "stateward.systems.instance": "gone"})
    created = await engine.create_container(orphan)
    async with asyncio.timeout(PATIENT):
        while created in {one.id for one in await engine.list_containers()}:
            await asyncio.sleep(0.01)
    assert {one.id for one in await engine.list_containers()} == {*theirs, mine}
    await stop(backend)


async def test_an_instance_that_runs_once_keeps_its_exit_status_and_output(
    engine: SimulatedEngine, backend: ContainerBackend
) -> None:
    await start(backend, Service(image="shop:1", command=("count",)), run_once=True)
    ended = await until_instance(backend, lambda one: one.phase is InstancePhase.ENDED)
    assert (ended.exit_status, ended.why) == (3, "ended with 3: one run")
    (log,) = await backend.logs(WEB, None, None, 1_000)
    assert log.text == "one run\n"
    await stop(backend)
    assert engine.faults.calls.count("start") == 1


async def test_an_instance_that_runs_once_is_not_started_twice_when_the_answer_is_lost(
    engine: SimulatedEngine, backend: ContainerBackend
) -> None:
    engine.faults.loses.update(["start"])
    await start(backend, Service(image="shop:1", command=("count",)), run_once=True)
    ended = await until_instance(backend, lambda one: one.phase is InstancePhase.ENDED)
    assert ended.exit_status == 3
    assert engine.faults.calls.count("start") == 1


async def test_one_listing_serves_all_instances(engine: SimulatedEngine, backend: ContainerBackend) -> None:
    for number in range(20):
        await backend.start(ServiceRef(HOME, f"/s{number}"), InstanceSpec("one", "r", SERVE))
    async with asyncio.timeout(PATIENT):
        for number in range(20):
            while not [one for one in await backend.instances(ServiceRef(HOME, f"/s{number}")) if one.ready]:
                await asyncio.sleep(0.01)
    assert "inspect" not in engine.faults.calls
    assert engine.faults.calls.count("create network") == 1


async def test_a_deploy_is_cancelled_while_its_image_is_pulled(tmp_path: Path) -> None:
    engine = SimulatedEngine([])
    engine.faults.hangs, engine.faults.timeout_s = {"pull"}, 3600.0
    async with run_host(tmp_path, engine) as host:
        accepted = await host.actions.deploy("shop", "/", Tree({"/web": shell("sleep 1", pull="always")}))

        await until(lambda: "pull" in engine.faults.calls)
        await host.actions.cancel("shop", accepted.op.object)
        ended = await host.engine.wait_record(NS, accepted.op.id, PATIENT)
        assert (ended.status, str(ended.error).partition(" (after ")[0]) == (Status.CANCELLED, "cancelled by ann")
        assert (await host.engine.record(NS, "shop")).state == "stable"


async def test_containers_of_several_namespaces_need_isolated_networks_unless_that_is_accepted(tmp_path: Path) -> None:
    engine = SimulatedEngine([IMAGE])
    engine.keeps_isolation = False
    async with run_host(tmp_path, engine) as host:
        alone = await host.deployed(web=shell("serve v1"))
        await host.backend.prepare(SystemRef("bank", "vault"))
        shared = await host.deployed(web=shell("serve v2"))
        assert (alone.status, shared.status) == (Status.SUCCEEDED, Status.FAILED)
        assert "systems_container_open_networks" in str(shared.error)
        accepting = ContainerBackend(tmp_path / "containers", engine, open_networks=True)
        assert list(await accepting.pin_images(HOME, {"/web": shell("serve v2")}, ignore)) == ["/web"]
        engine.keeps_isolation = True
        assert (await host.deployed(web=shell("serve v2"))).status is Status.SUCCEEDED


async def ignore(text: str) -> None:
    """Take a line of progress."""


async def test_an_image_that_the_login_of_another_namespace_has_pulled_is_not_run(tmp_path: Path) -> None:
    private, public, built = "registry.example/other/app:1", "registry.example/public/app:1", "localhost/app:1"
    engine = SimulatedEngine([private, public, built], registry={public: 1})  # which refuses what is private
    private_id = (await engine.inspect_image(private)).id
    async with run_host(tmp_path, engine, registry_logins="other=env:OTHER") as host:
        for image, pull in ((private, "missing"), (private, "never"), (private_id, "missing"), (private_id, "never")):
            ended = await host.deployed(web=shell("serve", image=image, pull=pull))
            assert ended.status is Status.FAILED
            assert "must be pulled" in str(ended.error) if pull == "never" else "manifest unknown" in str(ended.error)
            assert await host.listed() == []
        for image, pull in ((public, "missing"), (built, "never")):
            ended = await host.deployed(web=shell("serve", image=image, pull=pull))
            assert ended.status is Status.SUCCEEDED, ended.error
