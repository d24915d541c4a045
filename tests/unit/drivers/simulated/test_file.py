"""A cloud in a file outlives its server, however that ends, in virtual time."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stateward.drivers import (
    AlreadyDone,
    CallUnanswered,
    CloudResource,
    MachineAction,
    MachineState,
    ProviderRegion,
    ResourceKind,
)
from stateward.drivers.simulated import CloudUnavailable, SimulatedCloud, SimulatedDriver, SimulatedImage, SimulatedSpec
from tests.unit.drivers.simulated.world import SEOUL, World

SERVER = """
import asyncio, sys
from pathlib import Path
from stateward.drivers import MachineSpec, ProviderRegion
from stateward.drivers.simulated import CALM, SimulatedCloud, SimulatedDriver

async def serve():
    cloud = SimulatedCloud(Path(sys.argv[1]), profile=CALM)
    driver = SimulatedDriver(ProviderRegion("aws", "ap-northeast-2"), cloud)
    for number in range(1_000_000):
        (outcome,) = await driver.create([MachineSpec(f"key-{number}", "vm", "t3.nano", "ubuntu22.04")])
        print(outcome.key, outcome.native_id, flush=True)

asyncio.run(serve())
"""


async def test_machines_parts_and_catalogue_are_there_again(tmp_path: Path) -> None:
    path = tmp_path / "cloud.db"
    first = World(path=path)
    first.cloud.register_spec("aws", SimulatedSpec("x1.own", 1, 1.0, 0.5))
    first.cloud.register_image("aws", SimulatedImage("mine", "own"))
    network = CloudResource(ResourceKind.NETWORK, "net", "net")
    made = await first.driver.ensure(network)
    await first.create("a")
    await first.create("b")
    await first.act(MachineAction.SUSPEND, "b")
    first.cloud.close()
    second = World(path=path)
    assert await second.states() == {"a": MachineState.RUNNING, "b": MachineState.SUSPENDED}
    assert await second.driver.check("x1.own", "mine") is None
    again = await second.driver.ensure(network)
    assert isinstance(again, AlreadyDone)
    assert again.native_id == getattr(made, "native_id", None)


async def test_a_number_is_not_given_twice(tmp_path: Path) -> None:
    first = World(path=tmp_path / "cloud.db")
    await first.create("a")
    await first.act(MachineAction.TERMINATE, "a")
    first.cloud.close()
    second = World(path=tmp_path / "cloud.db")
    await second.create("b")
    seen = (await second.driver.observe()).machines
    assert len({one.native_id for one in seen}) == 2


async def test_a_forgotten_key_stays_used_up(tmp_path: Path) -> None:
    first = World(path=tmp_path / "cloud.db")
    first.behave(forgotten=1.0)
    made = await first.create("a")
    await first.act(MachineAction.TERMINATE, "a")
    await asyncio.sleep(2.0)
    assert await first.states() == {}
    first.cloud.close()
    second = World(path=tmp_path / "cloud.db")
    assert await second.create("a") == AlreadyDone("a", getattr(made, "native_id", ""))
    assert await second.states() == {}


async def test_a_removed_part_stays_removed(tmp_path: Path) -> None:
    first = World(path=tmp_path / "cloud.db")
    network = CloudResource(ResourceKind.NETWORK, "net", "net")
    await first.driver.ensure(network)
    await first.driver.remove(network)
    first.cloud.close()
    second = World(path=tmp_path / "cloud.db")
    assert isinstance(await second.driver.remove(network), AlreadyDone)


async def test_a_second_server_is_told_that_the_file_is_taken(tmp_path: Path) -> None:
    first = World(path=tmp_path / "cloud.db")
    with pytest.raises(CloudUnavailable) as raised:
        SimulatedCloud(tmp_path / "cloud.db")
    assert raised.value.path == str(tmp_path / "cloud.db")
    assert raised.value.reason == "another process uses it"
    first.cloud.close()
    SimulatedCloud(tmp_path / "cloud.db").close()


async def test_what_is_no_cloud_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cloud.db").write_text("not a database at all, but long enough to be looked at" * 100)
    with pytest.raises(CloudUnavailable):
        SimulatedCloud(tmp_path / "cloud.db")


async def test_a_cloud_whose_file_cannot_be_written_gives_no_answer(tmp_path: Path) -> None:
    world = World(path=tmp_path / "cloud.db")
    world.cloud.close()
    outcome = await world.create("a")
    assert isinstance(outcome, CallUnanswered)
    assert not (await world.driver.observe()).complete


def test_what_was_answered_is_there_after_the_server_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "cloud.db"
    with subprocess.Popen([sys.executable, "-c", SERVER, str(path)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        answered = [server.stdout.readline().split() for _ in range(200)]
        server.send_signal(signal.SIGKILL)
        rest = server.stdout.read().splitlines(keepends=True)
        answered += [line.split() for line in rest if line.endswith("\n")]  # the last one may have been cut off
    cloud = SimulatedCloud(path)
    seen = asyncio.run(SimulatedDriver(ProviderRegion(SEOUL.provider, SEOUL.region), cloud).observe())
    cloud.close()
    found = {one.key: one.native_id for one in seen.machines}
    assert len(answered) >= 200
    assert {key: found.get(key) for key, native_id in answered} == dict(answered)
