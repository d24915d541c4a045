"""Images of a real Podman: pulled from a registry on this host, and loaded from an archive."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from stateward.containers import (
    ContainerSpec,
    EngineClient,
    EngineRefusal,
    EngineRefused,
    PullProgress,
    RegistryLogin,
    registry_of,
)
from stateward.drivers import CallAccepted, CallRefused, MachineSpec, Outcome, ProviderRegion
from stateward.drivers.container import ContainerDriver
from tests.containers import PodmanService, busybox_archive
from tests.integration.containers.image_registry import ImageRegistry, digest_of

PASSWORD = "pass-word-1"


@pytest.fixture
async def engine(podman: PodmanService) -> AsyncIterator[EngineClient]:
    client = EngineClient(podman.address)
    yield client
    for container in await client.list_containers():
        await client.remove_container(container.id, force=True)
    await client.close()


async def pull(engine: EngineClient, image: str, login: RegistryLogin | None = None) -> list[PullProgress]:
    async with aclosing(engine.pull_image(image, login)) as reports:
        return [one async for one in reports]


async def refusal_of(engine: EngineClient, image: str, login: RegistryLogin | None = None) -> EngineRefused:
    with pytest.raises(EngineRefused) as refused:
        await pull(engine, image, login)
    assert PASSWORD not in str(refused.value)
    return refused.value


async def test_an_image_is_pulled_by_its_tag_and_by_its_digest_with_a_login(engine: EngineClient) -> None:
    registry = ImageRegistry("box", "1", busybox_archive(), ("anna", PASSWORD))
    login = RegistryLogin("anna", PASSWORD)
    assert PASSWORD not in repr(login)
    with registry.serve() as name:
        assert (await refusal_of(engine, f"{name}:1")).reason is EngineRefusal.UNAUTHORIZED
        wrong = RegistryLogin("anna", f"{PASSWORD}x")
        assert (await refusal_of(engine, f"{name}:1", wrong)).reason is EngineRefusal.UNAUTHORIZED
        assert (await refusal_of(engine, f"{name}:2", login)).reason is EngineRefusal.IMAGE_MISSING
        other = digest_of(b"another image")
        assert (await refusal_of(engine, f"{name}@{other}", login)).reason is EngineRefusal.IMAGE_MISSING
        assert await pull(engine, f"{name}:1", login)
        pinned = f"{name}@{registry.digest}"
        assert await pull(engine, pinned, login)
    assert pinned in (await engine.inspect_image(pinned)).digests
    container = await engine.create_container(ContainerSpec("pulled", "key", pinned))
    await engine.start_container(container)
    assert (await engine.exec(container, ["echo", "hello"])).stdout == b"hello\n"


async def test_a_connection_that_may_pull_gets_its_image_with_the_credential(
    engine: EngineClient, podman: PodmanService, tmp_path: Path
) -> None:
    credential = tmp_path / "login.ini"
    options = {"engine": podman.address}
    with ImageRegistry("machine", "1", busybox_archive(), ("anna", PASSWORD)).serve() as name:
        login = f"registry = {registry_of(name)}\nregistry_user = anna\nregistry_password = {PASSWORD}\n"
        credential.write_text(f"[default]\n{login}")
        machine = MachineSpec("key-1", "box", "0.5c-64m", f"{name}:1")
        outcomes: list[Outcome] = []
        for more in ({}, {"pull": "yes"}):
            region = ProviderRegion("lab", "pulls", credential=f"file:{credential}", options={**options, **more})
            driver = ContainerDriver(region)
            outcomes += await driver.create([machine])
            await driver.close()
    assert [type(one) for one in outcomes] == [CallRefused, CallAccepted]


async def test_images_are_loaded_from_an_archive(engine: EngineClient, podman: PodmanService, tmp_path: Path) -> None:
    podman.import_image(busybox_archive(), "kept:7")
    podman.run("save", "--output", str(tmp_path / "kept.tar"), "kept:7")
    podman.run("rmi", "kept:7")
    with pytest.raises(EngineRefused):
        await engine.inspect_image("kept:7")
    await engine.load_images((tmp_path / "kept.tar").read_bytes())
    assert (await engine.inspect_image("kept:7")).tags
    with pytest.raises(EngineRefused):
        await engine.load_images(b"no archive")
