"""A deploy whose process is killed at every commit and every await of its handlers."""

import pytest

from stateward.domains.systems.backends.port import ServiceRef, SystemRef
from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.definition import read
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.service import SystemActions
from stateward.testing import CrashRun, crash_everywhere

NS = "default"
SHOP = "services: {web: {command: web v1, instances: 2}, db: {command: db v1}}"


@pytest.fixture(autouse=True)
def short_intervals() -> None:
    """Leave the intervals as they are: in virtual time they take none, and each look is a further point to crash at."""


async def deploy_a_shop(run: CrashRun) -> None:
    backend = SimulatedBackend(delay=1.0)
    engine = await run.start(lambda: SystemsRuntime({"simulated": backend}))
    actions = SystemActions(engine, NS, "ann")
    made = await actions.create("shop", "simulated")
    await engine.wait(NS, made.op.id, check=True)
    begun = await actions.deploy("shop", "/", read(SHOP), None)
    await engine.wait(NS, begun.op.id, check=True)
    for name, number in (("web", 2), ("db", 1)):
        instances = await backend.instances(ServiceRef(SystemRef(NS, "shop"), f"/{name}"))
        assert [one.ready for one in instances] == [True] * number


def test_deploy_survives_a_crash_at_every_point() -> None:
    assert crash_everywhere(deploy_a_shop).points > 20
