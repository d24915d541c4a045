"""The ports of services: a deploy gets none that another service of the host has, and none that is not allowed."""

from collections.abc import AsyncIterator, Callable

import pytest

from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.definition import read
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.service import SystemActions
from stateward.domains.systems.settings import SystemsSettings
from stateward.engine import Engine
from stateward.errors import BadInput
from stateward.store.port import Store
from stateward.store.records import Operation
from tests.integration.domains.systems.conftest import PATIENT

SHOP, TENANT = "default", "tenant"


@pytest.fixture
async def engine(new_store: Callable[[], Store]) -> AsyncIterator[Engine]:
    """Return an engine with simulated instances, whose systems of one name count as systems of one host."""
    plugin = SystemsRuntime({"local": SimulatedBackend()}, SystemsSettings(local_namespaces="*"))
    engine = Engine(new_store(), plugin.kinds, lease_s=3.0)
    plugin.bind_engine(engine)
    async with engine, plugin.running(engine, works=True):
        for ns, system in ((SHOP, "shop"), (TENANT, "shop"), (TENANT, "elsewhere")):
            made = await SystemActions(engine, ns).create(system, "local")
            await engine.wait_record(ns, made.op.id, PATIENT)
        yield engine


async def deployed(
    engine: Engine, ns: str, text: str, system: str = "shop", may_see: Callable[[str], bool] | None = None
) -> Operation:
    """Deploy a definition, and wait for the end."""
    accepted = await SystemActions(engine, ns, may_see=may_see).deploy(system, "/", read(text))
    return await engine.wait_record(ns, accepted.op.id, PATIENT)


async def test_a_port_that_another_service_has_is_refused_and_its_holder_is_named_to_who_may_see_it(
    engine: Engine,
) -> None:
    web = "services: {web: {command: x, address: 19420}}"
    assert (await deployed(engine, SHOP, web)).error is None
    with pytest.raises(BadInput, match=r"services/web.address: 19420 must be .* another service has 19420"):
        await deployed(engine, TENANT, web)
    with pytest.raises(BadInput, match="service /web of system shop in namespace default has 19420"):
        await deployed(engine, TENANT, web, may_see=lambda _: True)
    assert (await deployed(engine, TENANT, web, "elsewhere")).error is None
    moved = web.replace("web", "front")
    assert (await deployed(engine, SHOP, moved)).error is None  # the same system replaces the holder
    torn_down = await SystemActions(engine, SHOP).teardown("shop")
    await engine.wait_record(SHOP, torn_down.op.id, PATIENT)
    assert (await deployed(engine, TENANT, web)).error is None


async def test_ports_outside_of_the_allowed_ones_and_ports_twice_are_refused(engine: Engine) -> None:
    with pytest.raises(BadInput, match=r"services/web.address: 22 must be 0, or a port in 1024-65535"):
        await deployed(engine, SHOP, "services: {web: {command: x, address: 22}}")
    with pytest.raises(BadInput, match="service /a of the same definition has 19421"):
        await deployed(engine, SHOP, "services: {a: {command: x, address: 19421}, b: {command: x, address: 19421}}")
