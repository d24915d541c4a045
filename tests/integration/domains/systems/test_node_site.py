"""The site of a node's agent on a simulated container engine: what is started, what is refused, and what is removed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stateward.agents.messages import AgentOrder, LogRequest, OrderAction
from stateward.agents.node_messages import ImageRequest, VolumeRemoval, WantedImage
from stateward.agents.site import SiteError
from stateward.containers import ContainerSpec
from stateward.domains.systems.backends.container import container_instance, engine_listing
from stateward.domains.systems.backends.local.launch import HostPlace
from stateward.domains.systems.backends.port import InstancePhase, InstanceSpec, ServiceInstance, ServiceRef
from stateward.domains.systems.definition import PinnedImage, SecretRef, Service
from stateward.domains.systems.nodes.container_fence import CONTAINERS
from stateward.domains.systems.nodes.node_model import NodeOrder
from stateward.domains.systems.nodes.node_site import NodeSite
from stateward.testing.containers import ProgramRun, SimulatedEngine, stdout
from stateward.workloads.confinement import Confinement

PATIENT = 60.0
SERVE = Service(image="shop:1", command=("serve",), drain=0.05, grace=1.0, volumes={"data": "/data"})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_instance, "RETRY_S", 0.05)
    monkeypatch.setattr(engine_listing, "LIST_INTERVAL_S", 0.2)


async def read_values(ns: str, names: object) -> dict[str, str]:
    return {"db": "hunter2"}


@asynccontextmanager
async def opened(
    folder: Path,
    engine: SimulatedEngine | None,
    may_launch: Callable[[], bool] = lambda: True,
    sees_container: Callable[[int, str], bool] = lambda *_: True,
) -> AsyncIterator[NodeSite]:
    place = HostPlace("127.0.0.1", may_launch, sees_container)
    site = NodeSite(folder, "a", place, Confinement(), read_values, engine)
    await site.start()
    try:
        yield site
    finally:
        await site.close()


def order(work: OrderAction, service: Service = SERVE) -> AgentOrder:
    wanted = NodeOrder("default", "shop", "/web", InstanceSpec("r1-0", "r1", service))
    return AgentOrder(work, 4, 1, 1, "shop:web~r1-0", spec=msgspec.json.encode(wanted).decode())


def no_progress(text: str, done: int | None = None, total: int | None = None) -> None:
    pass


async def seen(site: NodeSite, fits: Callable[[ServiceInstance], bool]) -> ServiceInstance:
    """Wait until the site reports its only instance in a way that satisfies a condition."""
    async with asyncio.timeout(PATIENT):
        async for one in site.statuses():
            found = msgspec.json.decode(one.status, type=ServiceInstance)
            if fits(found):
                return found
    raise AssertionError


async def test_a_container_gets_its_node_and_secrets_and_leaves_its_volume_and_nothing_else(tmp_path: Path) -> None:
    engine = SimulatedEngine(["shop:1"])
    async with opened(tmp_path, engine) as site:
        service = replace(SERVE, secrets={"PASSWORD": SecretRef("db")})
        await site.execute(order(OrderAction.CREATE, service), no_progress)
        await seen(site, lambda one: one.ready)
        (container,) = engine._containers.values()
        assert container.spec.env["STATEWARD_NODE"] == "a"
        assert container.spec.env["PASSWORD"] == "hunter2"
        assert not [one for one in tmp_path.rglob("*") if one.is_file() and b"hunter2" in one.read_bytes()]
        await site.execute(order(OrderAction.DELETE), no_progress)
        assert await engine.list_containers() == []
        assert await engine.list_networks(("stateward.systems.installation",)) == []
        assert len(await engine.list_volumes(("stateward.systems.installation",))) == 1
        for systems, left in ((("sho", "shop2"), 1), (("shop",), 0), (("shop",), 0)):  # it goes with its system
            assert (await site.remove_volumes(VolumeRemoval(7, 1, "default", systems))).error == ""
            assert len(await engine.list_volumes(("stateward.systems.installation",))) == left
        await site.execute(order(OrderAction.CREATE, service), no_progress)
        with pytest.raises(SiteError, match="instances of shop are here"):
            await site.remove_volumes(VolumeRemoval(8, 1, "default", ("shop",)))


async def test_without_a_lease_nothing_is_started_and_its_end_removes_everything(tmp_path: Path) -> None:
    engine, has_lease = SimulatedEngine(["shop:1"]), [False]
    async with opened(tmp_path, engine, lambda: has_lease[0]) as site:
        await site.execute(order(OrderAction.CREATE), no_progress)
        async with asyncio.timeout(PATIENT):
            while engine.faults.calls.count("list containers") < 3:
                await asyncio.sleep(0.01)
        assert "start" not in engine.faults.calls
        has_lease[0] = True
        await seen(site, lambda one: one.ready)
        has_lease[0] = False
        await site.stop_all()
        assert await engine.list_containers() == []
        assert await site.observe() == {}


async def test_the_next_site_adopts_the_container(tmp_path: Path) -> None:
    engine = SimulatedEngine(["shop:1"])
    async with opened(tmp_path, engine) as site:
        await site.execute(order(OrderAction.CREATE), no_progress)
        await seen(site, lambda one: one.ready)
    before = [one.id for one in await engine.list_containers()]
    async with opened(tmp_path, engine) as site:
        assert set(await site.observe()) == {"shop:web~r1-0"}
        labels = dict((await engine.inspect_container(before[0])).labels)
        orphan = ContainerSpec("orphan", "none", "shop:1", labels={**labels, "stateward.systems.instance": "gone"})
        await engine.create_container(orphan)
        async with asyncio.timeout(PATIENT):
            while [one.id for one in await engine.list_containers()] != before:
                await asyncio.sleep(0.01)
        assert engine.faults.calls.count("start") == 1


async def test_a_container_whose_processes_cannot_be_seen_here_is_removed(tmp_path: Path) -> None:
    engine = SimulatedEngine(["shop:1"])
    async with opened(tmp_path, engine, sees_container=lambda *_: False) as site:
        await site.execute(order(OrderAction.CREATE), no_progress)
        ill = await seen(site, lambda one: "cannot be seen on this host" in one.why)
        assert not ill.ready


async def test_images_are_found_by_the_engine_and_a_node_that_lacks_one_says_so(tmp_path: Path) -> None:
    engine = SimulatedEngine(["shop:1"])
    async with opened(tmp_path, engine) as site:
        wanted = (WantedImage("shop:1", "never"),)
        (found,) = (await site.find_images(ImageRequest(1, 2, wanted))).found
        assert found.id == (await engine.inspect_image("shop:1")).id
        missing = await site.find_images(ImageRequest(1, 2, (*wanted, WantedImage("none:1", "never"))))
        assert "none:1" in missing.refusal
        engine.faults.is_down = True
        with pytest.raises(SiteError):
            await site.find_images(ImageRequest(1, 2, wanted))
    other = SimulatedEngine(["shop:2"])
    async with opened(tmp_path / "other", other) as site:
        local = replace(SERVE, pinned=PinnedImage(found.id))  # it is in no registry
        await site.execute(order(OrderAction.CREATE, local), no_progress)
        await seen(site, lambda one: "the engine does not have it, and it has no digest to pull it by" in one.why)


async def test_a_site_without_an_engine_refuses_containers(tmp_path: Path) -> None:
    async with opened(tmp_path, None) as site:
        with pytest.raises(SiteError, match="no container engine"):
            await site.execute(order(OrderAction.CREATE), no_progress)
        with pytest.raises(SiteError, match="no container engine"):
            await site.find_images(ImageRequest(1, 2, (WantedImage("shop:1"),)))
        assert await site.observe() == {}
        assert not (tmp_path / CONTAINERS).exists()


def job_order(work: OrderAction, name: str, script: str = "", number: int = 1) -> AgentOrder:
    want = InstanceSpec(name, "r1", Service(command=("sh", "-c", script), drain=0.05, grace=0.1), run_once=True)
    wanted = NodeOrder("default", "shop", "/report@1", want)
    return AgentOrder(work, 4, number, 1, f"shop:report@1~{name}", spec=msgspec.json.encode(wanted).decode())


async def ends(site: NodeSite, *names: str) -> dict[str, tuple[int | None, str]]:
    """Wait until instances have ended; returns their exit statuses and reasons."""
    found: dict[str, tuple[int | None, str]] = {}
    async with asyncio.timeout(PATIENT):
        async for one in site.statuses():
            instance = msgspec.json.decode(one.status, type=ServiceInstance)
            if instance.phase is InstancePhase.ENDED:
                found[instance.name] = instance.exit_status, instance.why
            if set(names) <= found.keys():
                return found
    raise AssertionError


async def test_an_instance_of_a_job_is_never_started_again_and_its_end_and_log_are_kept(tmp_path: Path) -> None:
    first, second = "echo hello; exit 3", "echo begins; exec sleep 1000"
    async with opened(tmp_path, None) as site:
        await site.execute(job_order(OrderAction.CREATE, "0-0", first), no_progress)
        assert await ends(site, "0-0") == {"0-0": (3, "ended with 3: hello")}
        await site.execute(job_order(OrderAction.CREATE, "1-0", second), no_progress)
        async with asyncio.timeout(PATIENT):
            while not await log_of(site, "1-0"):
                await asyncio.sleep(0.01)
        await site.execute(job_order(OrderAction.UPDATE, "1-0", second, number=2), no_progress)
        await site.execute(job_order(OrderAction.UPDATE, "2-0", second, number=2), no_progress)  # it was never started
        await site.stop_all()
    async with opened(tmp_path, None) as site:
        await site.execute(job_order(OrderAction.CREATE, "0-0", first), no_progress)
        assert await ends(site, "0-0", "1-0", "2-0") == {
            "0-0": (3, "ended with 3: hello"),
            "1-0": (None, "it was stopped"),
            "2-0": (None, "it was stopped"),
        }
        assert {name[-3:]: one.generation for name, one in (await site.observe()).items()} == {
            "0-0": 1, "1-0": 2, "2-0": 2,
        }  # fmt: skip
        assert [await log_of(site, name) for name in ("0-0", "2-0")] == ["hello\n", ""]
        assert (await log_of(site, "1-0")).startswith("begins\n")
        for name in ("0-0", "1-0", "2-0"):
            await site.execute(job_order(OrderAction.DELETE, name), no_progress)
        assert await site.observe() == {}
        assert not list(tmp_path.rglob("*.log"))


async def log_of(site: NodeSite, name: str) -> str:
    return "".join(one.text for one in await site.read_log(LogRequest(1, 1, f"shop:report@1~{name}")))


async def test_a_container_that_runs_once_leaves_its_exit_status_and_its_log(tmp_path: Path) -> None:
    programs = {"count": lambda _: ProgramRun((stdout(b"one run\n"),), 3, 0.05)}
    engine = SimulatedEngine(["shop:1"], programs=programs)
    service = Service(image="shop:1", command=("count",), drain=0.05)
    wanted = NodeOrder("default", "shop", "/report@1", InstanceSpec("r1-0", "r1", service, run_once=True))
    spec, name = msgspec.json.encode(wanted).decode(), "shop:report@1~r1-0"
    async with opened(tmp_path, engine) as site:
        await site.execute(AgentOrder(OrderAction.CREATE, 4, 1, 1, name, spec=spec), no_progress)
        ended = await seen(site, lambda one: one.phase is InstancePhase.ENDED)
        assert ended.exit_status == 3
        async with asyncio.timeout(PATIENT):
            while await engine.list_containers():
                await asyncio.sleep(0.01)
        (log,) = await site.read_log(LogRequest(1, 1, name))
        assert log.text == "one run\n"
        assert engine.faults.calls.count("start") == 1


@pytest.mark.parametrize("service", [SERVE, Service(command=("/bin/sleep", "1000"), drain=0.05, grace=1.0)])
async def test_an_instance_that_is_ordered_while_the_last_one_of_its_service_is_removed_is_started(
    tmp_path: Path, service: Service
) -> None:
    engine = SimulatedEngine(["shop:1"])
    async with opened(tmp_path, engine) as site, asyncio.timeout(PATIENT):
        await site.execute(order(OrderAction.CREATE, service), no_progress)
        await seen(site, lambda one: one.ready)
        backend: Any = site._containers if service.image else site._processes
        removing, proceed, forget = asyncio.Event(), asyncio.Event(), backend.forget

        async def forget_later(ref: ServiceRef) -> None:
            removing.set()
            await proceed.wait()
            await forget(ref)

        backend.forget = forget_later
        removal = asyncio.create_task(site.execute(order(OrderAction.DELETE, service), no_progress))
        await removing.wait()
        wanted = NodeOrder("default", "shop", "/web", InstanceSpec("r1-1", "r1", service))
        second = AgentOrder(OrderAction.CREATE, 5, 1, 1, "shop:web~r1-1", spec=msgspec.json.encode(wanted).decode())
        start = asyncio.create_task(site.execute(second, no_progress))
        await asyncio.wait([start], timeout=0.2)  # it ends in this time only if nothing makes it wait
        proceed.set()
        await asyncio.gather(removal, start)
        assert (await seen(site, lambda one: one.ready)).name == "r1-1"
        await site.stop_all()
