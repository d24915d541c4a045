"""The ports of services: a deploy gets none that another service of the host has, and none that is not allowed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from socket import socket

import pytest

from stateward.domains.systems.address_claims import address_key, remove_unused_addresses
from stateward.domains.systems.backends.simulated_backend import SimulatedBackend
from stateward.domains.systems.definition import read
from stateward.domains.systems.model import ChangeSpec, spec_of
from stateward.domains.systems.runtime import SystemsRuntime
from stateward.domains.systems.service import SystemActions
from stateward.domains.systems.settings import SystemsSettings
from stateward.domains.systems.views import service_view
from stateward.engine import Accepted, Engine
from stateward.errors import BadInput
from stateward.store.port import Store
from stateward.store.records import Operation
from tests.integration.domains.systems.conftest import PATIENT
from tests.waiting import until

SHOP, TENANT, SERVER_PORT = "default", "tenant", 19431
WEB = "services: {web: {command: x, address: 19420}}"


@asynccontextmanager
async def serving(
    store: Store, backend: SimulatedBackend, address_ports: str = SystemsSettings().address_ports
) -> AsyncIterator[Engine]:
    """Run the domain on a store, as one server does."""
    settings = SystemsSettings(local_namespaces="*", address_ports=address_ports)
    plugin = SystemsRuntime({"local": backend}, settings, server_port=SERVER_PORT)
    engine = Engine(store, plugin.kinds)
    plugin.bind_engine(engine)
    async with engine, plugin.running(engine, works=True):
        yield engine


@pytest.fixture
def backend() -> SimulatedBackend:
    return SimulatedBackend()


@pytest.fixture
async def engine(new_store: Callable[[], Store], backend: SimulatedBackend) -> AsyncIterator[Engine]:
    """Return an engine with simulated instances, whose systems of one name count as systems of one host."""
    async with serving(new_store(), backend) as engine:
        await create_systems(engine)
        yield engine


async def create_systems(engine: Engine) -> None:
    for ns, system in ((SHOP, "shop"), (TENANT, "shop"), (TENANT, "elsewhere")):
        made = await SystemActions(engine, ns).create(system, "local")
        await engine.wait_record(ns, made.op.id, PATIENT)


async def deployed(
    engine: Engine, ns: str, text: str, system: str = "shop", may_see: Callable[[str], bool] | None = None
) -> Operation:
    """Deploy a definition, and wait for the end."""
    accepted = await SystemActions(engine, ns, may_see=may_see).deploy(system, "/", read(text))
    return await engine.wait_record(ns, accepted.op.id, PATIENT)


def ask(engine: Engine, ns: str, path: str = "/", text: str = WEB) -> "asyncio.Task[Accepted]":
    """Request a deploy in a task of its own."""
    return asyncio.create_task(SystemActions(engine, ns, may_see=lambda _: True).deploy("shop", path, read(text)))


async def one_is_accepted(asked: "list[asyncio.Task[Accepted]]") -> Accepted:
    """Wait for the verdicts on deploys that want one port: one is accepted, the others name its service."""
    verdicts = await asyncio.gather(*asked, return_exceptions=True)
    accepted = [one for one in verdicts if isinstance(one, Accepted)]
    assert len(accepted) == 1, verdicts
    system, ns = accepted[0].object.parent, accepted[0].object.ns
    for one in verdicts:
        if not isinstance(one, Accepted):
            assert isinstance(one, BadInput), one
            assert one.field in ("services/web.address", "services/shop.address")
            assert f"of system {system} in namespace {ns} has 19420" in str(one)
    return accepted[0]


async def test_of_deploys_that_ask_for_one_free_port_at_the_same_moment_one_is_accepted(
    engine: Engine, backend: SimulatedBackend, new_store: Callable[[], Store]
) -> None:
    one_service = "{command: x, address: 19420}"
    accepted = await one_is_accepted(
        [ask(engine, TENANT), *(ask(engine, SHOP, path, one_service) for path in ("/web", "/shop"))]
    )
    assert (await engine.wait_record(accepted.object.ns, accepted.op.id, PATIENT)).error is None
    for ns in (SHOP, TENANT):
        torn_down = await SystemActions(engine, ns).teardown("shop")
        assert (await engine.wait_record(ns, torn_down.op.id, PATIENT)).error is None
    if engine.store.serializes_writes:  # such a store has one server
        return
    async with serving(new_store(), backend) as other:
        accepted = await one_is_accepted([ask(engine, SHOP), ask(other, TENANT)])
        assert (await engine.wait_record(accepted.object.ns, accepted.op.id, PATIENT)).error is None


async def test_a_port_that_another_service_has_is_refused_and_its_holder_is_named_to_who_may_see_it(
    engine: Engine,
) -> None:
    assert (await deployed(engine, SHOP, WEB)).error is None
    with pytest.raises(BadInput, match=r"services/web.address: 19420 must be .* another service has 19420"):
        await deployed(engine, TENANT, WEB)
    with pytest.raises(BadInput, match="service /web of system shop in namespace default has 19420"):
        await deployed(engine, TENANT, WEB, may_see=lambda _: True)
    assert (await deployed(engine, TENANT, WEB, "elsewhere")).error is None
    moved = WEB.replace("web", "front")
    assert (await deployed(engine, SHOP, moved)).error is None  # the same system replaces the holder
    torn_down = await SystemActions(engine, SHOP).teardown("shop")
    await engine.wait_record(SHOP, torn_down.op.id, PATIENT)
    assert (await deployed(engine, TENANT, WEB)).error is None


async def test_ports_outside_of_the_allowed_ones_and_ports_twice_are_refused(engine: Engine) -> None:
    with pytest.raises(BadInput, match=r"services/web.address: 22 must be 0, or a port in 1024-65535"):
        await deployed(engine, SHOP, "services: {web: {command: x, address: 22}}")
    with pytest.raises(
        BadInput, match=f"services/web.address: {SERVER_PORT} must be another port: the Stateward server"
    ):
        await deployed(engine, SHOP, WEB.replace("19420", str(SERVER_PORT)))
    with pytest.raises(BadInput, match="service /a of the same definition has 19421"):
        await deployed(engine, SHOP, "services: {a: {command: x, address: 19421}, b: {command: x, address: 19421}}")


async def test_an_open_deploy_holds_its_ports_and_those_that_it_may_have_to_restore(
    engine: Engine, backend: SimulatedBackend
) -> None:
    shop, moved = SystemActions(engine, SHOP), "services: {web: {command: slow, address: 19421}}"
    assert (await deployed(engine, SHOP, WEB)).error is None
    backend.fail("/web", "slow")
    deploy = await shop.deploy("shop", "/", read(moved))
    await until(lambda: engine.record(SHOP, "shop:web"), lambda obj: "19421" in obj.spec)
    for port in ("19420", "19421"):
        with pytest.raises(BadInput, match=f"another service has {port}"):
            await deployed(engine, TENANT, WEB.replace("19420", port))
    await shop.cancel("shop", deploy.object.id)
    await engine.wait_record(SHOP, deploy.op.id, PATIENT)
    with pytest.raises(BadInput, match="another service has 19420"):
        await deployed(engine, TENANT, WEB)
    assert (await deployed(engine, TENANT, moved.replace("slow", "x"))).error is None


async def test_a_port_is_free_again_when_the_system_of_its_service_is_deleted(engine: Engine) -> None:
    both = "services: {web: {command: x, address: 19420}, api: {command: x, address: 19421}}"
    assert (await deployed(engine, SHOP, both)).error is None
    deleted = await SystemActions(engine, SHOP).delete("shop")
    assert (await engine.wait_record(SHOP, deleted.op.id, PATIENT)).error is None
    assert (await deployed(engine, TENANT, WEB)).error is None
    await remove_unused_addresses(engine)
    left = await engine.store.reader.objects([address_key(port) for port in (19420, 19421)])
    assert {one.id: one.removed for one in left.values()} == {"address-19420": False, "address-19421": True}
    assert (await deployed(engine, TENANT, both)).error is None


ANY_PORT = "services: {web: {command: x, address: 0}}"


async def port_of(engine: Engine, ns: str, path: str = "web") -> int:
    """Return the port that a service has, as the API shows it."""
    return service_view(await engine.record(ns, f"shop:{path}"), None).address or 0


async def test_a_port_for_address_0_is_an_allowed_one_that_is_claimed_and_kept_like_a_named_one(
    new_store: Callable[[], Store], backend: SimulatedBackend
) -> None:
    async with serving(new_store(), backend, "19430-19433") as engine:
        await create_systems(engine)
        with socket() as listener:
            listener.bind(("127.0.0.1", 19433))
            listener.listen()
            for one in await asyncio.gather(*(ask(engine, ns, text=ANY_PORT) for ns in (SHOP, TENANT))):
                assert (await engine.wait_record(one.object.ns, one.op.id, PATIENT)).error is None
            shops, tenants = [await port_of(engine, ns) for ns in (SHOP, TENANT)]
            assert {shops, tenants} == {19430, 19432}
            with pytest.raises(BadInput) as refused:
                await deployed(engine, SHOP, "services: {web: {command: x, address: 0}, b: {command: x, address: 0}}")
            assert refused.value.field == "services/b.address"
            expected = "19430-19433 (setting systems_address_ports) is free: of these 4, services have 2"
            assert f"{expected}, and other programs 2" in str(refused.value)
        with pytest.raises(BadInput, match=f"service /web of system shop in namespace default has {shops}"):
            await deployed(engine, TENANT, WEB.replace("19420", str(shops)), may_see=lambda _: True)
        assert (await deployed(engine, SHOP, ANY_PORT.replace("x", "y"))).error is None
        assert await port_of(engine, SHOP) == shops
        torn_down = await SystemActions(engine, SHOP).teardown("shop")
        assert (await engine.wait_record(SHOP, torn_down.op.id, PATIENT)).error is None
        assert (await deployed(engine, TENANT, WEB.replace("19420", str(shops)))).error is None


async def test_a_deploy_that_waits_for_another_one_gets_the_port_of_the_service_that_the_other_one_makes(
    engine: Engine, backend: SimulatedBackend
) -> None:
    backend.fail("/web", "slow")
    shop = SystemActions(engine, SHOP)
    first = await shop.deploy("shop", "/", read(ANY_PORT.replace("x", "slow")))
    second = await shop.deploy("shop", "/web", read("{command: y, address: 0}"), wait=60.0)
    await shop.cancel("shop", first.object.id)
    assert (await engine.wait_record(SHOP, second.op.id, PATIENT)).error is None
    wanted = spec_of(first.object, ChangeSpec)
    assert wanted is not None
    assert wanted.picture.assigned_ports == {"/web": await port_of(engine, SHOP)}
    named = "services: {web: {command: y, address: 19434}}"
    assert (await deployed(engine, SHOP, named)).error is None
    back = await shop.rollback("shop", None, None)
    assert (await engine.wait_record(SHOP, back.op.id, PATIENT)).error is None
    assert await port_of(engine, SHOP) not in (0, 19434)
