"""A real Podman under the contract."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from stateward.containers import ContainerEngine, ContainerNetworkSpec, EngineClient
from tests.containers import IMAGE, PodmanService
from tests.contract.containers.engine_contract import EngineContract


class TestPodman(EngineContract):
    """Containers of this host."""

    image = IMAGE

    @pytest.fixture
    async def engine(self, podman: PodmanService) -> AsyncIterator[ContainerEngine]:
        client = EngineClient(podman.address)
        yield client
        for one in await client.list_containers():
            await client.remove_container(one.id, force=True)
        for volume in await client.list_volumes():
            await client.remove_volume(volume.name)
        await client.close()

    async def test_a_network_does_not_reach_another(self, engine: ContainerEngine) -> None:
        addresses = []
        serve = "mkdir -p /tmp/web && echo hello >/tmp/web/index.html && exec httpd -f -p 8080 -h /tmp/web"
        for name in ("one", "other"):
            await engine.create_network(ContainerNetworkSpec(name, name))
            container = await self.started(engine, "sh", "-c", serve, network=name)
            addresses.append((await engine.inspect_container(container)).ips[name])
        (asking,) = [one.id for one in await engine.list_containers() if "one" in one.ips]
        # Until its own network answers, silence says nothing of the other one.
        own, other = (f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 {address} 8080" for address in addresses)
        async with asyncio.timeout(60):
            while b"hello" not in (await engine.exec(asking, ("sh", "-c", own))).stdout:
                await asyncio.sleep(0.05)
        assert (await engine.exec(asking, ("sh", "-c", other))).stdout == b""
        for one in await engine.list_containers():
            await engine.remove_container(one.id, force=True)
        for name in ("one", "other"):
            await engine.remove_network(name)
