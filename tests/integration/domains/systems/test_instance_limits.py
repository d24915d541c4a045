"""The instances of a system and of a namespace are limited, by settings and by a quota."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from stateward.access.quotas import Quota, QuotaExceeded, QuotaGuard, Quotas, quota_kind
from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.definition import read
from stateward.domains.systems.instance_limits import (
    INSTANCES,
    KNOWN_S,
    PARTS,
    Usage,
    forget_old_bounds,
    usage_keys,
)
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.service import SystemActions
from stateward.domains.systems.settings import SystemsSettings
from stateward.engine import Accepted, Engine
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.store.changes import Changes
from stateward.store.filters import Selector
from stateward.store.port import Store, Tx
from stateward.store.records import Object, to_json
from tests.integration.domains.systems.conftest import NS, PATIENT
from tests.waiting import until

SETTINGS = SystemsSettings(instances_per_system=10, instances_per_namespace=15)


def limited(store: Store, backend: SimulatedBackend) -> tuple[Engine, SystemsRuntime]:
    """Return an engine with the limits."""
    plugin = SystemsRuntime({"simulated": backend}, SETTINGS)
    engine = Engine(store, [*plugin.kinds, quota_kind()], admission=QuotaGuard())
    plugin.bind_engine(engine)
    return engine, plugin


@pytest.fixture
def backend() -> SimulatedBackend:
    return SimulatedBackend()


@pytest.fixture
async def engine(new_store: Callable[[], Store], backend: SimulatedBackend) -> AsyncIterator[Engine]:
    engine, plugin = limited(new_store(), backend)
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


# --- the bounds, which spare most deploys the counting ----------------------------------------------------------------


@dataclass
class Counting:
    """Notes which services and jobs are read to be counted."""

    counted: list[Selector] = field(default_factory=list)

    def has_counted(self) -> bool:
        """Return whether anything was counted since the last call."""
        counted, self.counted = self.counted, []
        return bool(counted)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    noted, peek_selected = Counting(), UnitOfWork.peek_selected

    async def peek(uow: UnitOfWork, chosen: Selector) -> list[Object]:
        if chosen.kind in PARTS:
            noted.counted.append(chosen)
        return await peek_selected(uow, chosen)

    monkeypatch.setattr(UnitOfWork, "peek_selected", peek)
    return noted


async def test_a_deploy_counts_only_if_it_might_exceed_a_limit(engine: Engine, counting: Counting) -> None:
    assert await deployed(engine, "shop", "/web", "{command: x, instances: 2}") == "succeeded"
    assert counting.has_counted()
    assert await deployed(engine, "shop", "/api", "{command: x, instances: 8}") == "succeeded"
    assert not counting.has_counted()
    with pytest.raises(BadInput, match="would have 11"):
        await deploy(engine, "shop", "/db", "{command: x}")
    assert counting.has_counted()


async def test_a_deploy_that_changes_no_numbers_counts_nothing(engine: Engine, counting: Counting) -> None:
    assert await deployed(engine, "shop", "/web", "{command: x, instances: 10}") == "succeeded"
    counting.has_counted()
    for command in ("y", "z"):
        assert await deployed(engine, "shop", "/web", f"{{command: {command}, instances: 10}}") == "succeeded"
    assert not counting.has_counted()


async def test_what_is_gone_makes_room(engine: Engine) -> None:
    for _ in range(3):  # the bound of the namespace passes its limit
        for number in (8, 1):
            assert await deployed(engine, "shop", "/web", f"{{command: x, instances: {number}}}") == "succeeded"
    assert await deployed(engine, "bank", "/web", "{command: x, instances: 10}") == "succeeded"
    torn_down = await SystemActions(engine, NS).teardown("bank")
    await engine.wait_record(NS, torn_down.op.id, PATIENT)
    assert await deployed(engine, "shop", "/web", "{command: x, instances: 10}") == "succeeded"


async def test_what_an_open_deploy_may_go_back_to_counts(engine: Engine, backend: SimulatedBackend) -> None:
    assert await deployed(engine, "shop", "/web", "{command: x, instances: 8}") == "succeeded"
    backend.fail("/web", "y")
    changed = await deploy(engine, "shop", "/web", "{command: y, instances: 1}")
    await until(lambda: engine.record(NS, "shop:web"), lambda obj: '"instances":8' not in obj.spec)
    with pytest.raises(BadInput, match=r"namespace default can have 15 instances .*, and would have 17"):
        await deploy(engine, "bank", "/web", "{command: x, instances: 9}")
    await SystemActions(engine, NS).cancel("shop", changed.object.id)
    await engine.wait_record(NS, changed.op.id, PATIENT)
    assert '"instances":8' in (await engine.record(NS, "shop:web")).spec


async def set_bounds(engine: Engine, most: int, age: float) -> None:
    """Replace the bounds of the shop, as if they had been counted some time ago."""

    async def write(tx: Tx) -> None:
        records = (await tx.objects(usage_keys(NS, "shop"))).values()
        aged = [replace(one, seen=to_json(Usage(most)), since=tx.now - age, version=one.version + 1) for one in records]
        await tx.apply(Changes(objects=aged))

    await engine.store.transact(write)


async def test_an_old_bound_is_not_used(engine: Engine) -> None:
    assert await deployed(engine, "shop", "/web", "{command: x, instances: 8}") == "succeeded"
    await set_bounds(engine, 0, KNOWN_S + 60)
    with pytest.raises(BadInput, match="would have 11"):
        await deploy(engine, "shop", "/api", "{command: x, instances: 3}")


async def test_old_bounds_are_removed(engine: Engine) -> None:
    assert await deployed(engine, "shop", "/web", "{command: x}") == "succeeded"
    await forget_old_bounds(engine)
    assert [one.removed for one in await bounds(engine)] == [False, False]
    await set_bounds(engine, 1, KNOWN_S + 60)
    await forget_old_bounds(engine)
    assert [one.removed for one in await bounds(engine)] == [True, True]
    assert await deployed(engine, "shop", "/api", "{command: x}") == "succeeded"
    assert [one.removed for one in await bounds(engine)] == [False, False]


async def bounds(engine: Engine) -> Sequence[Object]:
    """Return the bounds of the shop and of its namespace."""
    found = await engine.store.reader.objects(usage_keys(NS, "shop"))
    return [found[key] for key in usage_keys(NS, "shop")]


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
async def test_servers_accept_no_more_together_than_the_limit(
    engine: Engine, new_store: Callable[[], Store], is_known: bool
) -> None:
    if is_known:
        for system in ("shop", "bank"):
            assert await deployed(engine, system, "/first", "{command: x}") == "succeeded"
    other, _ = limited(new_store(), SimulatedBackend())
    async with other:
        asked = [
            deploy(server, system, f"/{name}{number}", "{command: x, instances: 2}")
            for number in range(4)
            for name, server in (("a", engine), ("b", other))
            for system in ("shop", "bank")
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
    accepted = sum(isinstance(one, Accepted) for one in answers)
    assert accepted == (6 if is_known else 7)
    assert {type(one) for one in answers} == {Accepted, BadInput}
