"""An MCI of containers, on a real Podman that is killed in between."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stateward.containers import ContainerState, EngineClient
from stateward.domains.mci.model import CloudConnection, ImageRecord, SpecRecord, SubGroup, vm_of
from stateward.store import open_store
from stateward.store.records import Operation, Status
from tests.containers import IMAGE, PodmanService
from tests.integration.domains.mci.conftest import ANN, NS, MciHarness, mci, open_harness

PAIR = SubGroup("box", 2, "small", "busybox")


@pytest.fixture
async def harness(tmp_path: Path, podman: PodmanService) -> AsyncIterator[MciHarness]:
    """An mci domain at work, whose namespace may make containers."""
    options = {"engine": podman.address, "fresh": "0.1"}
    async with open_harness(open_store(str(tmp_path / "stateward.db")), tmp_path) as opened:
        connection = CloudConnection("lab", "lab", "here", driver="container", options=options, namespaces=(NS,))
        await opened.service.add_connection(connection, ANN)
        await opened.service.register(NS, SpecRecord("small", "lab", "0.5c-64m"), ANN)
        await opened.service.register(NS, ImageRecord("busybox", "lab", IMAGE), ANN)
        yield opened


@pytest.fixture
async def engine(podman: PodmanService) -> AsyncIterator[EngineClient]:
    client = EngineClient(podman.address)
    yield client
    for container in await client.list_containers():
        await client.remove_container(container.id, force=True)
    for volume in await client.list_volumes():
        await client.remove_volume(volume.name)
    await client.close()


async def vm_states(harness: MciHarness) -> Counter[str]:
    return Counter(one.state for one in await harness.service.vms(NS, "m1"))


async def container_states(engine: EngineClient) -> Counter[ContainerState]:
    return Counter(one.state for one in await engine.list_containers())


async def done(harness: MciHarness, action: str) -> Operation:
    return await harness.ended((await harness.service.control(NS, "m1", action, ANN)).whole)


async def test_an_mci_of_containers_lives_through_a_kill_of_its_engine(
    harness: MciHarness, engine: EngineClient, podman: PodmanService
) -> None:
    assert (await harness.created(mci("m1", PAIR))).status is Status.SUCCEEDED
    assert await container_states(engine) == {ContainerState.RUNNING: 2}
    keys = {vm_of(one).uid for one in await harness.service.vms(NS, "m1")}
    assert {one.key for one in await engine.list_containers()} == keys
    assert (await done(harness, "suspend")).status is Status.SUCCEEDED
    assert await container_states(engine) == {ContainerState.PAUSED: 2}
    podman.kill()
    begun = await harness.service.control(NS, "m1", "resume", ANN)
    # real time: attempts without an answer may come meanwhile; none has to
    await asyncio.sleep(0.2)  # the first attempts get no answer
    podman.start()
    assert (await harness.ended(begun.whole)).status is Status.SUCCEEDED
    assert await container_states(engine) == {ContainerState.RUNNING: 2}
    assert (await done(harness, "reboot")).status is Status.SUCCEEDED
    assert [podman.run("logs", one.id).count("up\n") for one in await engine.list_containers()] == [2, 2]
    victim = next(iter(await engine.list_containers()))
    await engine.kill_container(victim.id)

    async with asyncio.timeout(60):
        while await vm_states(harness) != {"Running": 1, "Terminated": 1}:
            await harness.plugin.reconciler.reconcile_all()
            await asyncio.sleep(0.05)
    assert (await done(harness, "terminate")).status is Status.SUCCEEDED
    assert await vm_states(harness) == {"Terminated": 2}
    assert await container_states(engine) == {ContainerState.EXITED: 2}


async def test_an_image_that_the_engine_does_not_have_fails_the_mci_with_its_name(
    harness: MciHarness, engine: EngineClient
) -> None:
    await harness.service.register(NS, ImageRecord("lost", "lab", "no-such-image:1"), ANN)
    ended = await harness.created(mci("m1", SubGroup("box", 1, "small", "lost")))
    assert ended.status is Status.FAILED
    assert "no-such-image:1" in (ended.error or "")
    assert await engine.list_containers() == []
