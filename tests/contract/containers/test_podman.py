"""A real Podman under the contract."""

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from stateward.containers import ContainerEngine, ContainerNetworkSpec, EngineClient, ExecTimedOut
from tests.containers import IMAGE, PodmanService, busybox_archive
from tests.contract.containers.engine_contract import REAPER, EngineContract, wait_for_processes
from tests.waiting import until

GIVEN_UP = """
import asyncio, sys
from stateward.containers import EngineClient, ExecTimedOut

async def main():
    try:
        await EngineClient(sys.argv[1]).exec(sys.argv[2], sys.argv[3:], timeout_s=1.0)
    except ExecTimedOut as error:
        print(error.is_over)

asyncio.run(main())
"""
"""Runs a command that takes too long, and prints whether it is over."""


class TestPodman(EngineContract):
    """Containers of this host."""

    image = IMAGE
    reaper_processes = 2

    @pytest.fixture
    async def engine(self, podman: PodmanService) -> AsyncIterator[ContainerEngine]:
        client = EngineClient(podman.address)
        yield client
        for one in await client.list_containers():
            await client.remove_container(one.id, force=True)
        for volume in await client.list_volumes():
            await client.remove_volume(volume.name)
        await client.close()

    async def test_a_command_that_clears_its_environment_ends_in_time(self, engine: ContainerEngine) -> None:
        container = await self.started(engine, "sh", "-c", REAPER)
        with pytest.raises(ExecTimedOut) as given_up:
            await engine.exec(container, ("env", "-i", "sh", "-c", "sleep 1001 & sleep 1002"), timeout_s=1.0)
        assert given_up.value.is_over
        await wait_for_processes(engine, container, self.reaper_processes)

    @pytest.mark.parametrize("image", ["shell", "bare"])
    async def test_a_command_ends_in_time_if_its_process_is_not_to_be_seen_on_this_host(
        self, engine: ContainerEngine, podman: PodmanService, image: str
    ) -> None:
        """In a namespace of its own, a client sees what one on another host does; an image without a shell is told."""
        if image == "bare":
            podman.import_image(busybox_archive(()), f"{image}:1")
        has_shell = image == "shell"
        run = ("sh", "-c", REAPER) if has_shell else ("/bin/busybox", "sleep", "100000")
        spec = replace(self.spec(*run), image=self.image if has_shell else f"{image}:1")
        container = await engine.create_container(spec)
        await engine.start_container(container)
        sleeps = ("sh", "-c", "(setsid sleep 1001 &) ; sleep 1002")
        command = sleeps if has_shell else ("/bin/busybox", "sleep", "1003")
        apart = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
        given = (sys.executable, "-c", GIVEN_UP, podman.address, container, *command)
        client = await asyncio.create_subprocess_exec(*apart, *given, stdout=asyncio.subprocess.PIPE)
        assert (await client.communicate())[0].decode().strip() == str(has_shell)
        if has_shell:
            await wait_for_processes(engine, container, self.reaper_processes)
        else:
            await wait_for_processes(engine, container, 1, at_least=1)

    async def test_a_network_does_not_reach_another_even_after_a_third_one_has_lost_its_last_container(
        self, engine: ContainerEngine
    ) -> None:
        addresses = []
        serve = "mkdir -p /tmp/web && echo hello >/tmp/web/index.html && exec httpd -f -p 8080 -h /tmp/web"
        for name in ("one", "other", "third"):
            await engine.create_network(ContainerNetworkSpec(name, name))
            await engine.list_networks()  # some listings of Podman end the isolation
            container = await self.started(engine, "sh", "-c", serve, network=name)
            addresses.append((await engine.inspect_container(container)).ips[name])
        by_network = {name: one.id for one in await engine.list_containers() for name in one.ips}
        asking, last = by_network["one"], by_network["third"]
        # Until its own network answers, silence says nothing of the other one.
        own, other = (f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 {address} 8080" for address in addresses[:2])
        await until(lambda: engine.exec(asking, ("sh", "-c", own)), lambda ran: b"hello" in ran.stdout)
        assert (await engine.exec(asking, ("sh", "-c", other))).stdout == b""
        await engine.remove_container(last, force=True)
        assert (await engine.exec(asking, ("sh", "-c", other))).stdout == b""
        for one in await engine.list_containers():
            await engine.remove_container(one.id, force=True)
        for name in ("one", "other", "third"):
            await engine.remove_network(name)
