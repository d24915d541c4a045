"""Services as containers of a real Podman, against a bare loop over the engine's API in the same run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.figures import Line, plain, ratio
from bench.loops import run
from stateward.containers import ContainerNetworkSpec, ContainerSpec, EngineClient
from stateward.domains.systems.backends.container import ContainerBackend
from stateward.domains.systems.backends.container.container_runner import PARALLEL_STARTS
from stateward.domains.systems.definition import Service, Tree
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.service import SystemActions
from stateward.domains.systems.settings import SystemsSettings
from stateward.engine import Engine
from stateward.store import open_store
from stateward.store.records import Status
from tests.containers import IMAGE, PodmanService, missing_for_podman

NS, SYSTEM = "bench", "large"
SERVICES, ROUNDS = 100, 3
TARGET = 1.2
COMMAND = ("sleep", "1000")


def report() -> list[Line]:
    """Measure and return lines to print."""
    title = f"systems: {SERVICES} services deployed as containers, {PARALLEL_STARTS} at a time"
    if missing := missing_for_podman():
        return [title, f"  left out, because of {missing}"]
    podman = PodmanService()
    try:
        return [title, *run(_compare(podman))]
    finally:
        podman.stop()


async def _compare(podman: PodmanService) -> list[Line]:
    client = EngineClient(podman.address)
    rounds = []
    with TemporaryDirectory() as folder:
        async with _deployer(Path(folder), client) as (engine, actions):
            for number in range(ROUNDS):
                bare = await _create_bare(client, number)
                rounds.append((bare, await _deploy(engine, actions)))
    await client.close()
    bare, ours = (median(column) for column in zip(*rounds, strict=True))
    times = median(deployed / looped for looped, deployed in rounds)
    name = f"a deploy of {SERVICES} services as containers"
    return [
        ratio(name, times, "a loop that creates and starts containers", TARGET),
        plain(name, ours, "s"),
        plain(f"a loop that creates and starts {SERVICES} containers", bare, "s"),
    ]


async def _create_bare(client: EngineClient, number: int) -> float:
    """Return how long it takes to create and start containers by the engine's API alone; they are removed again."""
    network = f"bare-{number}"
    await client.create_network(ContainerNetworkSpec(network, network))
    gate, names = asyncio.Semaphore(PARALLEL_STARTS), [f"bare-{number}-{one}" for one in range(SERVICES)]

    async def create(name: str) -> None:
        async with gate:
            made = ContainerSpec(name, name, IMAGE, COMMAND, network=network, aliases=(name,))
            await client.start_container(await client.create_container(made))

    async def remove(name: str) -> None:
        async with gate:
            await client.remove_container(name, force=True)

    began = perf_counter()
    await asyncio.gather(*map(create, names))
    seconds = perf_counter() - began
    await asyncio.gather(*map(remove, names))
    await client.remove_network(network)
    return seconds


@asynccontextmanager
async def _deployer(folder: Path, client: EngineClient) -> AsyncIterator[tuple[Engine, SystemActions]]:
    backend = ContainerBackend(folder / "containers", client)
    plugin = SystemsRuntime({"container": backend}, SystemsSettings(container_namespaces=NS))
    engine = Engine(open_store(str(folder / "bench.db")), plugin.kinds, slots=2 * SERVICES)
    plugin.bind_engine(engine)
    async with engine, plugin.running(engine, works=True):
        actions = SystemActions(engine, NS)
        await _wait(engine, (await actions.create(SYSTEM, "container")).op.id)
        yield engine, actions
        await _wait(engine, (await actions.delete(SYSTEM)).op.id)


async def _deploy(engine: Engine, actions: SystemActions) -> float:
    """Return how long a deploy takes until all its services are stable; they are torn down again."""
    service = Service(image=IMAGE, command=COMMAND, pull="never", drain=0.05, grace=0.05)
    tree = Tree({f"/s{number}": service for number in range(SERVICES)})
    began = perf_counter()
    await _wait(engine, (await actions.deploy(SYSTEM, "/", tree)).op.id)
    seconds = perf_counter() - began
    await _wait(engine, (await actions.teardown(SYSTEM)).op.id)
    return seconds


async def _wait(engine: Engine, operation: str) -> None:
    ended = await engine.wait_record(NS, operation, 600)
    assert ended.status is Status.SUCCEEDED, ended.error
