"""The instances of a system and of a namespace are limited, by settings and by a quota."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from stateward.access.quotas import Quota, QuotaExceeded, QuotaGuard, Quotas, quota_kind
from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.definition import read
from stateward.domains.systems.instance_limits import INSTANCES
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.service import SystemActions
from stateward.domains.systems.settings import SystemsSettings
from stateward.engine import Accepted, Engine
from stateward.errors import BadInput
from stateward.store.port import Store
from tests.integration.domains.systems.conftest import NS, PATIENT

SETTINGS = SystemsSettings(instances_per_system=10, instances_per_namespace=15)


@pytest.fixture
async def engine(new_store: Callable[[], Store]) -> AsyncIterator[Engine]:
    plugin = SystemsRuntime({"simulated": SimulatedBackend()}, SETTINGS)
    engine = Engine(new_store(), [*plugin.kinds, quota_kind()], admission=QuotaGuard())
    plugin.bind_engine(engine)
    async with engine, plugin.running(engine, works=True):
        for name in ("shop", "bank"):
            made = await SystemActions(engine, NS).create(name, "simulated")
            await engine.wait_record(NS, made.op.id, PATIENT)
        yield engine


async def deploy(engine: Engine, system: str, path: str, text: str) -> Accepted:
    return await SystemActions(engine, NS, "ann").deploy(system, path, read(text))


async def deployed(engine: Engine, system: str, path: str, text: str) -> str:
    accepted = await deploy(engine, system, path, text)
    return str((await engine.wait_record(NS, accepted.op.id, PATIENT)).status)


async def test_a_system_has_no_more_instances_than_the_setting_allows(engine: Engine) -> None:
    assert await deployed(engine, "shop", "/", "services: {web: {command: x, instances: 8}, api: {command: x}}") == (
        "succeeded"
    )
    with pytest.raises(BadInput) as refused:
        await deploy(engine, "shop", "/store", "services: {a: {command: x}, b: {command: x, instances: 4}}")
    assert refused.value.field == "services/store/b.instances"
    assert "left out, with its service or job: system shop can have 10 instances" in str(refused.value)
    assert "(setting systems_instances_per_system), and would have 14" in str(refused.value)
    assert await deployed(engine, "shop", "/api", "{command: x, instances: 2}") == "succeeded"


async def test_a_service_counts_at_least_once_and_a_job_with_what_runs_at_the_same_time(engine: Engine) -> None:
    idle = ", ".join(f"a{number}: {{command: x, instances: 0}}" for number in range(7))
    jobs = "jobs: {report: {command: x, parallelism: 8, completions: 3}}"
    assert await deployed(engine, "shop", "/", f"services: {{{idle}}}\n{jobs}") == "succeeded"
    with pytest.raises(BadInput, match=r"services/b\.instances"):
        await deploy(engine, "shop", "/b", "{command: x}")


async def test_a_namespace_has_no_more_instances_than_the_setting_allows(engine: Engine) -> None:
    assert await deployed(engine, "shop", "/web", "{command: x, instances: 8}") == "succeeded"
    with pytest.raises(BadInput, match=r"at most 7: namespace default can have 15 instances .*, and would have 17"):
        await deploy(engine, "bank", "/web", "{command: x, instances: 9}")
    assert await deployed(engine, "bank", "/web", "{command: x, instances: 7}") == "succeeded"


async def test_the_quota_of_a_namespace_counts_the_instances_of_its_systems(engine: Engine) -> None:
    await Quotas(engine).set(Quota(NS, {INSTANCES: 4}, None))
    assert await deployed(engine, "shop", "/web", "{command: x, instances: 4}") == "succeeded"
    with pytest.raises(QuotaExceeded) as refused:
        await deploy(engine, "bank", "/web", "{command: x}")
    assert (refused.value.limit, refused.value.what) == (4, "instances of systems")


async def test_a_deploy_that_adds_nothing_is_accepted_although_the_quota_was_lowered(engine: Engine) -> None:
    assert await deployed(engine, "shop", "/web", "{command: x, instances: 8}") == "succeeded"
    await Quotas(engine).set(Quota(NS, {INSTANCES: 2}, None))
    for text in ("{command: y, instances: 8}", "{command: y, instances: 3}"):
        assert await deployed(engine, "shop", "/web", text) == "succeeded"


async def test_of_two_deploys_at_the_same_time_only_those_are_accepted_that_fit_together(engine: Engine) -> None:
    asked = [deploy(engine, system, "/web", "{command: x, instances: 8}") for system in ("shop", "bank")]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert sorted(type(one).__name__ for one in answers) == ["Accepted", "BadInput"]
