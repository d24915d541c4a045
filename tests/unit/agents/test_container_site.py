"""A site of containers on the simulated engine: drift, faults, images, nodes, and what a listing costs."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from stateward.agents.messages import CommandRequest, LogRequest
from stateward.agents.site import SiteError
from stateward.containers import ContainerSpec, EngineRefusal, RegistryLogin
from stateward.domains.edge.sites import container_calls
from stateward.domains.edge.sites.app_manifest import AppPart, PartPort, PartResources, PartVolume
from stateward.domains.edge.sites.container_identity import Copy, SiteNames
from stateward.domains.edge.sites.container_images import BadLogins, ImageSource, read_logins
from stateward.domains.edge.sites.container_nodes import NodeSize, PlacedApp, place_apps
from stateward.domains.edge.sites.container_site import ContainerOptions, ContainerSite
from stateward.domains.edge.sites.probe_specs import CommandProbe
from stateward.testing.containers import SimulatedEngine, SimulatedFaults
from tests.unit.agents.container_world import (
    DATA,
    INSTALLATION,
    PORT,
    ContainerWorld,
    app,
    cluster,
    create,
    delete,
    part,
    update,
)

NAMES = SiteNames(INSTALLATION)
WEB = NAMES.container("c1:shop", Copy(2, "web", 0))
DIGEST = "sha256:" + "0" * 64


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_calls, "RETRY_AFTER_S", 0.0)


@pytest.fixture
async def world(tmp_path: Path) -> ContainerWorld:
    """Return a site with a cluster, and an app of two copies."""
    world = ContainerWorld(tmp_path)
    await world.execute(create("c1", 1, cluster(2)))
    await world.execute(create("c1:shop", 2, app(part(count=2, volumes=(DATA,)))))
    return world


async def problem(world: ContainerWorld, name: str = "c1:shop") -> str:
    return (await world.site.observe())[name].problem


# --- drift -----------------------------------------------------------------------------------------------------------


async def test_what_is_changed_by_hand_is_noticed_with_its_reason(world: ContainerWorld) -> None:
    assert await problem(world) == ""
    await world.engine.pause_container(WEB)
    assert "web/0 is paused" in await problem(world)
    await world.engine.unpause_container(WEB)
    await world.engine.kill_container(WEB)
    assert "web/0 has ended with exit code 137" in await problem(world)
    await world.engine.start_container(WEB)
    world.engine.kill_for_memory(WEB)
    assert "web/0 was killed: out of memory" in await problem(world)
    await world.engine.remove_container(WEB, force=True)
    assert "1 of 2 containers are not as they should be: web/0 is gone" in await problem(world)
    await world.execute(create("c1:shop", 3, app(part(count=2, volumes=(DATA,)))))
    assert await problem(world) == ""
    assert await world.left() == (2, 1, 1)


async def test_a_container_that_is_there_twice_is_noticed(world: ContainerWorld) -> None:
    (found, *_) = [one for one in await world.engine.list_containers() if one.name == WEB]
    other = ContainerSpec("copy", "copy", found.image, labels=dict(found.labels))
    await world.engine.start_container(await world.engine.create_container(other))
    assert "web/0 is there 2 times" in await problem(world)
    await world.execute(update("c1:shop", 3, app(part())))
    assert await world.running() == [("c1:shop", "3", "web", "0")]


async def test_a_network_that_was_removed_by_hand_is_noticed(tmp_path: Path) -> None:
    world = ContainerWorld(tmp_path)
    await world.execute(create("c1", 1, cluster()))
    await world.engine.remove_network(NAMES.name("c1"))
    assert await problem(world, "c1") == "its network is gone"


async def test_what_the_local_state_has_lost_is_an_orphan_and_can_be_removed(world: ContainerWorld) -> None:
    for file in (world.folder / "containers").glob("*.json"):
        file.unlink()
    world.restart()
    assert await world.whole() == {"c1": (1, False), "c1:shop": (1, False)}
    for name in ("c1:shop", "c1"):
        await world.execute(replace(delete(name, 9), host=""))
    assert await world.left() == (0, 0, 0)


async def test_what_a_killed_agent_has_created_after_a_delete_is_removed(world: ContainerWorld) -> None:
    (found, *_) = await world.engine.list_containers()
    await world.execute(delete("c1:shop", 3))
    await world.execute(delete("c1", 4))
    await world.engine.create_container(ContainerSpec("late", "late", found.image, labels=dict(found.labels)))
    assert await world.left() == (1, 0, 0)
    await world.site.observe()
    assert await world.left() == (0, 0, 0)


async def test_a_site_sees_what_its_own_installation_has_created_alone(world: ContainerWorld, tmp_path: Path) -> None:
    other = ContainerWorld(tmp_path / "other", world.engine)
    other.site._names = SiteNames("f" * 32)
    await other.execute(create("c1", 1, cluster()))
    await other.execute(create("c1:shop", 2, app(part())))
    await other.execute(delete("c1:shop", 3))
    await other.execute(delete("c1", 4))
    assert await world.whole() == {"c1": (1, True), "c1:shop": (2, True)}
    assert await world.left() == (2, 1, 1)


# --- volumes ---------------------------------------------------------------------------------------------------------

UNDO = replace(delete("c1:shop", 3), keep_data=True)


async def test_the_undo_of_a_failed_re_create_keeps_the_volumes_until_a_delete(world: ContainerWorld) -> None:
    with pytest.raises(SiteError, match="image missing"):
        await world.execute(create("c1:shop", 3, app(part(volumes=(DATA,)), AppPart("db", "missing:1"))))
    await world.execute(UNDO)
    world.restart()
    assert await problem(world) == "only its volumes are left"
    assert await world.left() == (0, 1, 1)
    await world.execute(create("c1:shop", 4, app(part(volumes=(DATA,)))))
    assert "remove_volume" not in world.faulty.calls
    await world.execute(replace(UNDO, operation=50))
    await world.execute(delete("c1:shop", 6))
    assert await world.left() == (0, 1, 0)


async def test_an_update_that_fails_removes_no_volume(world: ContainerWorld) -> None:
    log = PartVolume("/log", "log")
    with pytest.raises(SiteError, match="at once"):
        await world.execute(update("c1:shop", 3, app(part(command=("false",), volumes=(log,)))))
    await world.site.observe()
    assert await world.left() == (1, 1, 2)
    await world.execute(update("c1:shop", 4, app(part(volumes=(DATA,)))))  # the undo
    assert [one.name.rpartition(".")[2] for one in await world.engine.list_volumes()] == ["data"]
    assert world.faulty.calls.count("remove_volume") == 1


async def test_volumes_that_a_killed_or_refused_update_has_left_are_removed_later(world: ContainerWorld) -> None:
    world.engine.faults.refuses["remove volume"] = EngineRefusal.FAILED
    await world.execute(update("c1:shop", 3, app(part())))
    assert await world.left() == (1, 1, 1)
    await world.site.observe()
    world.engine.faults.refuses.clear()
    world.restart()
    assert await world.whole() == {"c1": (1, True), "c1:shop": (3, True)}
    assert await world.left() == (1, 1, 0)


# --- faults ----------------------------------------------------------------------------------------------------------


async def test_a_container_that_ends_at_once_is_told_with_its_output(world: ContainerWorld) -> None:
    with pytest.raises(SiteError, match="container web/0 has ended with exit code 1 at once"):
        await world.execute(create("c1:bad", 3, app(part(command=("false",)))))
    with pytest.raises(SiteError, match="its last output: no disk"):
        await world.execute(create("c1:bad", 4, app(part(command=("echo", "no disk")))))
    await world.execute(delete("c1:bad", 5))
    assert await world.left() == (2, 1, 1)


@pytest.mark.parametrize(
    ("image", "refusal", "why"),
    [
        ("missing:1", None, "image missing"),
        (f"remote@{DIGEST}", None, "image missing"),
        ("web:1", EngineRefusal.OUT_OF_DISK, "out of disk"),
        ("web:1", EngineRefusal.PORT_TAKEN, "port taken"),
    ],
)
async def test_a_refusal_of_the_engine_is_told(
    world: ContainerWorld, image: str, refusal: EngineRefusal | None, why: str
) -> None:
    if refusal is not None:
        world.engine.faults.refuses["start"] = refusal
    with pytest.raises(SiteError, match=why):
        await world.execute(create("c1:bad", 3, app(AppPart("web", image))))
    world.engine.faults.refuses.clear()
    await world.execute(delete("c1:bad", 4))
    assert await world.left() == (2, 1, 1)


async def test_containers_that_a_killed_engine_has_left_half_started_are_created_again(world: ContainerWorld) -> None:
    world.engine.faults.half_starts = 1
    await world.execute(update("c1:shop", 3, app(part(count=3))))
    assert len(await world.running()) == 3
    first = NAMES.container("c1:shop", Copy(3, "web", 0))
    assert f"creating container {first} anew: the engine was killed while it started it" in world.lines
    world.engine.faults.half_starts = 100
    with pytest.raises(SiteError, match=r"refused start .* \(damaged\)"):
        await world.execute(update("c1:shop", 4, app(part(count=1))))


async def test_a_port_that_another_app_is_published_at_is_told(world: ContainerWorld) -> None:
    await world.execute(create("c1:one", 3, app(part(ports=(PORT,)))))
    with pytest.raises(SiteError, match="port taken"):
        await world.execute(create("c1:two", 4, app(part(ports=(PORT,)))))


async def test_an_update_at_the_same_port_needs_no_other_one(world: ContainerWorld) -> None:
    await world.execute(create("c1:one", 3, app(part(ports=(PORT,)))))
    await world.execute(update("c1:one", 4, app(part(ports=(PORT,), env={"A": "b"}))))
    assert (await world.whole())["c1:one"] == (4, True)


async def test_an_engine_that_hangs_fails_an_order_and_the_site_cannot_be_seen(tmp_path: Path) -> None:
    engine = SimulatedEngine(["web:1"], faults=SimulatedFaults(timeout_s=0.01))
    world = ContainerWorld(tmp_path, engine)
    world.site._calls = container_calls.EngineCalls(0.05)
    engine.faults.hangs = {"create network", "list containers"}
    with pytest.raises(SiteError, match="it took too long"):
        await world.execute(create("c1", 1, cluster()))
    assert any("waiting for the container engine" in line for line in world.lines)
    for ask in (world.site.observe, world.site.measure):
        with pytest.raises(SiteError, match="it took too long"):
            await ask()


# --- images ----------------------------------------------------------------------------------------------------------


async def test_an_image_is_pulled_once_by_many_orders_with_progress(world: ContainerWorld) -> None:
    orders = [create(f"c1:a{n}", 10 + n, app(AppPart("web", "remote:1"))) for n in range(5)]
    await asyncio.gather(*map(world.execute, orders))
    assert world.engine.faults.calls.count("pull") == 1
    assert "pulling remote:1" in world.lines
    assert "remote:1 is pulled" in world.lines


async def test_an_archive_is_a_file_of_the_administrators_folder(world: ContainerWorld, tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="no folder of images"):
        await world.execute(create("c1:bad", 3, app(AppPart("web", "x:1", "x.tar"))))
    source = ImageSource(world.engine, tmp_path)
    with pytest.raises(SiteError, match="no file"):
        await source.ensure(AppPart("web", "x:1", "x.tar"), world.report)


async def test_a_login_goes_to_its_own_registry_alone(tmp_path: Path) -> None:
    file = tmp_path / "logins"
    file.write_text('{"registry.example.com": {"username": "ann", "password": "s3cret"}}')
    with pytest.raises(BadLogins, match="others than its owner"):
        read_logins(file)
    file.chmod(0o600)
    sent: list[RegistryLogin | None] = []

    class Registry(SimulatedEngine):
        async def pull_image(self, image, login=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            sent.append(login)
            async for one in super().pull_image(image, login):
                yield one

    images = ("registry.example.com/web:1", "registry.example.com.evil.org/web:1", "web:1")
    source = ImageSource(Registry(registry=dict.fromkeys(images, 1)), None, read_logins(file))
    for image in images:
        await source.ensure(AppPart("web", image), lambda *_: None)
    assert [one and one.username for one in sent] == ["ann", None, None]
    file.write_text("{nonsense s3cret")
    with pytest.raises(BadLogins) as refused:
        read_logins(file)
    assert "s3cret" not in str(refused.value)


# --- nodes -----------------------------------------------------------------------------------------------------------

SIZE = NodeSize(2.0, 100)


def placed(name: str, *nodes: int, copies: int = 2, memory: int = 40) -> PlacedApp:
    return PlacedApp(name, (PartResources(0.5, memory),) * copies, nodes)


def test_copies_are_spread_over_nodes_and_keep_theirs() -> None:
    assert place_apps([placed("a", 1, 1), placed("b")], 2, SIZE) == {"a": (1, 1), "b": (0, 0)}
    assert place_apps([placed("a", 1, 1), placed("b", 0, 0)], 3, SIZE) == {"a": (1, 1), "b": (0, 0)}


def test_a_copy_can_be_as_large_as_its_node() -> None:
    assert place_apps([placed("a", copies=1, memory=SIZE.memory_mib)], 1, SIZE) == {"a": (0,)}


def test_copies_of_a_node_that_goes_move_if_there_is_room() -> None:
    assert place_apps([placed("a", 0, 1)], 1, SIZE) == {"a": (0, 0)}
    with pytest.raises(SiteError, match="no node has room"):
        place_apps([placed("a", 0, 1), placed("b", 0, 1)], 1, SIZE)


async def test_an_app_that_does_not_fit_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    world = ContainerWorld(tmp_path)
    await world.execute(create("c1", 1, cluster(2, flavor="small", size="1c64m")))
    large = app(part(count=2, resources=PartResources(memory_mib=40)))
    await world.execute(create("c1:a", 2, large))
    with pytest.raises(SiteError, match="no node has room"):
        await world.execute(create("c1:b", 3, large))
    with pytest.raises(SiteError, match="no node has room"):
        await world.execute(update("c1", 4, cluster(1, flavor="small", size="1c64m")))
    assert await world.whole() == {"c1": (1, True), "c1:a": (2, True)}
    with pytest.raises(SiteError, match="size: 'huge' must be one of"):
        await world.execute(create("c2", 5, cluster(1, flavor="huge", size="huge")))


# --- measures --------------------------------------------------------------------------------------------------------


async def test_all_is_measured_by_one_listing_and_one_request_for_statistics(world: ContainerWorld) -> None:
    await world.site.measure()
    world.engine.faults.calls.clear()
    found = await world.site.measure()
    assert world.engine.faults.calls == ["list containers", "read stats"]
    assert found["c1:shop"].memory == found["c1"].memory
    assert found["c1:shop"].cpu is not None
    assert found["c1:shop"].connections is None  # no process of this host is in the control group of its containers
    assert [one.key for one in found["c1"].nodes] == ["c1-1", "c1-2"]


async def test_all_is_observed_by_one_listing_of_each_kind(world: ContainerWorld) -> None:
    world.engine.faults.calls.clear()
    await world.site.observe()
    assert world.engine.faults.calls == ["list containers", "list networks", "list volumes"]


async def test_a_probe_runs_in_each_container_and_one_that_fails_makes_the_app_unhealthy(tmp_path: Path) -> None:
    world = ContainerWorld(tmp_path)
    await world.execute(create("c1", 1, cluster()))
    good, bad = (CommandProbe(command, interval_s=0.1, threshold=1) for command in ("true", "false"))
    world.engine._programs["sh"] = lambda given: world.engine._programs[given.argv[2]](given)
    first = part("good", 2, command=("serve",), probe=good)
    await world.execute(create("c1:shop", 2, app(first, part("bad", command=("serve",), probe=bad))))
    while True:
        health = (await world.site.measure())["c1:shop"].health
        if health is not None and health.is_healthy is False:
            break
        await asyncio.sleep(0.01)
    assert health.reason == "bad/0: exit code 1"
    await world.site.close()


# --- logs and commands -----------------------------------------------------------------------------------------------


async def test_logs_and_commands_are_those_of_a_copy(world: ContainerWorld) -> None:
    parts = await world.site.read_log(LogRequest(1, 1, "c1:shop"))
    assert [one.part for one in parts] == ["web/0", "web/1"]
    (one,) = await world.site.read_log(LogRequest(2, 1, "c1:shop", "web/1", parts[1].next))
    assert (one.part, one.text) == ("web/1", "")
    done = await world.site.run_command(CommandRequest(3, 1, "c1:shop", ("echo", "hello"), "web"))
    assert (done.status, done.written) == (0, "hello\n")
    with pytest.raises(SiteError, match="no container 'db' here; it has web/0, web/1"):
        await world.site.run_command(CommandRequest(4, 1, "c1:shop", ("echo",), "db"))
    with pytest.raises(SiteError, match="not the cursor"):
        await world.site.read_log(LogRequest(5, 1, "c1:shop", "web/0", "x"))


async def test_an_app_publishes_only_at_ports_that_the_administrator_of_the_host_allows(world: ContainerWorld) -> None:
    low = PartPort(8000, published=True, host_port=80)
    running = await world.running()
    with pytest.raises(SiteError, match=r"parts\[0\].ports\[0\].host_port: .* 1024-65535 \(option --address-ports"):
        await world.execute(update("c1:shop", 3, app(part(ports=(low,)))))
    assert await world.running() == running
    options = ContainerOptions(stable_after_s=0.0, address_ports="80, 8000-8999")
    site = ContainerSite(world.folder, world.engine, INSTALLATION, options)
    await site.execute(update("c1:shop", 3, app(part(ports=(low,)))), world.report)
    assert [one.host_port for one in (await site.observe())["c1:shop"].ports] == [80]
