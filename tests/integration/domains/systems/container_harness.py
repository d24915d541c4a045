"""The harness of the container backend: the domain with a system called shop, on a real or a simulated engine."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from stateward.containers import ContainerEngine, ContainerRecord
from stateward.domains.systems.backends.container import ContainerBackend
from stateward.domains.systems.backends.container.container_backend import ON_THIS_HOST
from stateward.domains.systems.backends.container.container_specs import EngineReach
from stateward.domains.systems.backends.port import ServiceInstance, ServiceRef, SystemRef
from stateward.domains.systems.definition import HealthCheck, Service, Tree
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.service import SystemActions
from stateward.domains.systems.settings import SystemsSettings
from stateward.engine import Engine
from stateward.store import open_store
from stateward.store.records import Operation, Status
from tests.containers import IMAGE
from tests.waiting import pauses

NS, HOME = "default", SystemRef("default", "shop")
PATIENT = 60.0

SERVE = """
mkdir -p /tmp/www && echo $STATEWARD_REVISION $STATEWARD_NAME > /tmp/www/index.html
httpd -f -p $PORT -h /tmp/www & pid=$!
trap 'kill $pid; echo ended well; exit 0' TERM
echo serves $PORT $0
wait
"""


def web(word: str = "v1", instances: int = 1, **how: object) -> Service:
    """Return a service of containers that answer over HTTP with their revision and name."""
    health = HealthCheck(http="/", interval=0.1, failures=2)
    fields = {"image": IMAGE, "health": health, "drain": 0.2, "grace": 2.0, "pull": "never", **how}
    return Service(command=("sh", "-c", SERVE, word), instances=instances, **fields)  # type: ignore[arg-type]


def shell(text: str, **how: object) -> Service:
    """Return a service whose containers run a line of shell."""
    fields = {"image": IMAGE, "drain": 0.05, "grace": 0.5, "pull": "never", **how}
    return Service(command=("sh", "-c", text), **fields)  # type: ignore[arg-type]


class ContainerHost:
    """A system called shop on a container engine."""

    def __init__(self, engine: Engine, backend: ContainerBackend, containers: ContainerEngine) -> None:
        self.engine, self.backend, self.containers = engine, backend, containers
        self.actions = SystemActions(engine, NS, "ann")

    async def deployed(self, **services: Service) -> Operation:
        """Deploy services, and wait until that has ended."""
        tree = Tree({f"/{name}": one for name, one in services.items()})
        accepted = await self.actions.deploy("shop", "/", tree)
        return await self.engine.wait_record(NS, accepted.op.id, PATIENT)

    async def instances(self, path: str = "/web") -> list[ServiceInstance]:
        """Return the instances of a service."""
        return list(await self.backend.instances(ServiceRef(HOME, path)))

    async def listed(self) -> list[ContainerRecord]:
        """Return all containers of the engine."""
        return list(await self.containers.list_containers())

    async def until(self, condition: Callable[[], Awaitable[bool]], longest_s: float = 0.2) -> None:
        """Wait until a condition is true."""
        pause_s = pauses(longest_s=longest_s)
        async with asyncio.timeout(PATIENT):
            while not await condition():
                await asyncio.sleep(next(pause_s))

    async def until_instance(self, fits: Callable[[ServiceInstance], bool], path: str = "/web") -> ServiceInstance:
        """Wait until the only instance of a service satisfies a condition."""
        found: list[ServiceInstance] = []

        async def is_there() -> bool:
            found[:] = await self.instances(path)
            return len(found) == 1 and fits(found[0])

        await self.until(is_there, longest_s=0.02)  # what is put right at once is not to be missed
        return found[0]

    async def becomes(self, name: str, state: str) -> None:
        """Wait until an object is in a state."""

        async def is_there() -> bool:
            return (await self.engine.record(NS, name)).state == state

        await self.until(is_there)


@asynccontextmanager
async def run_host(
    folder: Path, containers: ContainerEngine, reach: EngineReach = ON_THIS_HOST, registry_logins: str = ""
) -> AsyncIterator[ContainerHost]:
    """Run the domain on an engine, with a system called shop, which is deleted in the end."""
    backend = ContainerBackend(folder / "containers", containers, reach)
    settings = SystemsSettings(container_namespaces=NS, registry_logins=registry_logins)
    plugin = SystemsRuntime({"container": backend}, settings)
    engine = Engine(open_store(str(folder / "stateward.db")), plugin.kinds)
    plugin.bind_engine(engine)
    async with engine, plugin.running(engine, works=True):
        host = ContainerHost(engine, backend, containers)
        await engine.wait_record(NS, (await host.actions.create("shop", "container")).op.id, PATIENT)
        yield host
        deleted = await host.actions.delete("shop", force=True)
        ended = await engine.wait_record(NS, deleted.op.id, PATIENT)
        assert ended.status is Status.SUCCEEDED, ended.error
    await assert_nothing_is_left(backend, containers)


async def assert_nothing_is_left(backend: ContainerBackend, containers: ContainerEngine) -> None:
    """Check that the engine has no container, network or volume of a backend."""
    label = (backend.label,)
    assert list(await containers.list_containers(label)) == []
    assert list(await containers.list_networks(label)) == []
    assert list(await containers.list_volumes(label)) == []
