"""The harness of systems tests: the domain on a real store with simulated instances, and helpers that wait."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from stateward.domains.systems import job_run, service_handlers
from stateward.domains.systems.backends.port import ServiceRef, SystemRef
from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.definition import read
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.service import SystemActions
from stateward.engine import Accepted, Ending, Engine, Job
from stateward.engine.worker.attempt import Attempt, Outcome
from stateward.store.port import Store
from stateward.store.records import Key, Operation
from tests.integration.engine.pump_kinds import Plant
from tests.waiting import until

NS = "default"
HOME = SystemRef(NS, "shop")
PATIENT = 60.0

SHOP = """
services:
  web: {command: web v1, instances: 2}
  store:
    services:
      api: {command: api v1}
      db: {command: db v1}
"""


def before_first_end(monkeypatch: pytest.MonkeyPatch, action: str, act: Callable[[str], Awaitable[None]]) -> None:
    """Call a function with the object, when a handler of an action has ended and its end is not yet stored; once."""
    run, seen = Attempt.run, list[str]()

    async def held(attempt: Attempt, job: Job, remaining: float) -> Outcome:
        outcome = await run(attempt, job, remaining)
        if job.action == action and isinstance(outcome, Ending) and not seen:
            seen.append(job.object)
            await act(job.object)
        return outcome

    monkeypatch.setattr(Attempt, "run", held)


def service(command: str = "run v1", **how: Any) -> str:
    """Return the definition of one service."""
    return f"{{command: {command}{''.join(f', {name}: {value}' for name, value in how.items())}}}"


def ref(path: str) -> ServiceRef:
    """Return a service of the shop."""
    return ServiceRef(HOME, path)


class SystemsHarness:
    """The domain with one system, `shop`."""

    def __init__(self, engine: Engine, plugin: SystemsRuntime, backend: SimulatedBackend, plant: Plant) -> None:
        self.engine, self.plugin, self.backend, self.plant = engine, plugin, backend, plant
        self.actions = SystemActions(engine, NS, "ann")

    async def deploy(self, path: str, text: str, wait: float | None = None, who: str = "ann", **how: Any) -> Accepted:
        """Request a deploy."""
        return await SystemActions(self.engine, NS, who).deploy("shop", path, read(text), wait, **how)

    async def deployed(self, path: str, text: str) -> Operation:
        """Deploy, and wait for the end."""
        return await self.ended(await self.deploy(path, text))

    async def ended(self, accepted: Accepted) -> Operation:
        """Wait for the end of an operation."""
        return await self.engine.wait_record(accepted.op.ns, accepted.op.id, PATIENT)

    async def state(self, name: str = "shop") -> str:
        """Return the state of an object."""
        return (await self.engine.record(NS, name)).state

    async def becomes(self, name: str, state: str) -> None:
        """Wait until an object is in a state."""
        await until(
            lambda: self.engine.store.reader.object(Key(NS, name)),
            lambda obj: obj is not None and obj.state == state,
        )

    async def states(self) -> dict[str, str]:
        """Return the states of all services."""
        return {one.id.partition(":")[2]: one.state for one in await self.plugin.context.services(HOME)}

    async def commands(self) -> dict[str, str]:
        """Return the command of each service; all its instances must be ready."""
        found = {}
        for one in await self.plugin.context.services(HOME):
            instances = await self.backend.instances(ref("/" + one.id.partition(":")[2].replace(".", "/")))
            assert all(instance.ready for instance in instances)
            found[one.id.partition(":")[2]] = " ".join(_command(one.spec))
        return found

    async def locks(self) -> list[tuple[str, str, bool]]:
        """Return the locks of the shop: path, mode, and whether it is waited for."""
        found = await self.engine.store.reader.locks_of(Key(NS, "shop"))
        return [(one.path, one.mode, one.waiting) for one in found]


def _command(spec: str) -> list[str]:
    found: list[str] = msgspec.json.decode(spec)["service"]["command"]
    return found


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a rollout notice the cancellation of its deploy soon: most tests end with one."""
    monkeypatch.setattr(service_handlers, "CANCEL_CHECK_S", 0.02)
    monkeypatch.setattr(service_handlers, "POLL_MAX_S", 0.02)
    monkeypatch.setattr(job_run, "CANCEL_CHECK_S", 0.02)
    monkeypatch.setattr(job_run, "ACTIVE_S", 0.2)


@pytest.fixture
async def harness(new_store: Callable[[], Store]) -> AsyncIterator[SystemsHarness]:
    backend, plant = SimulatedBackend(), Plant()
    plugin = SystemsRuntime({"simulated": backend})
    engine = Engine(new_store(), [*plugin.kinds, plant.pump()])
    plugin.bind_engine(engine)
    async with engine, plugin.running(engine, works=True):
        opened = SystemsHarness(engine, plugin, backend, plant)
        await opened.ended(await opened.actions.create("shop", "simulated"))
        yield opened
        plant.release()
