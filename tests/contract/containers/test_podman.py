"""A real Podman under the contract."""

from collections.abc import AsyncIterator

import pytest

from stateward.containers import ContainerEngine, EngineClient
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
