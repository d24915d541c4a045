"""What the tests of the OpenStack driver share: a new project, drivers on it, and a client of the tests' own."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from stateward.drivers import ProviderRegion
from stateward.drivers.openstack import OpenStackDriver, listing
from tests.integration.drivers.openstack.breaking_proxy import BreakingProxy, breaking_proxy
from tests.integration.drivers.openstack.nova_server import PAGE, REGION, NovaClient, NovaServer
from tests.integration.drivers.openstack.nova_worlds import set_login

MakeDriver: TypeAlias = Callable[..., OpenStackDriver]


@pytest.fixture
def project(nova_server: NovaServer) -> str:
    """Give a test a project of its own."""
    return nova_server.new_project()


@pytest.fixture
def nova(nova_server: NovaServer, project: str) -> Iterator[NovaClient]:
    """Give a test a client that is not ours. Its servers stay: nobody looks at the project again."""
    client = nova_server.client(project)
    yield client
    client.close()


@pytest.fixture
def proxy(nova_server: NovaServer) -> Iterator[BreakingProxy]:
    """Give a test a way to break the calls of its drivers."""
    with breaking_proxy(nova_server.url) as proxy:
        yield proxy


@pytest.fixture
def hold(nova: NovaClient, tmp_path: Path) -> Iterator[Path]:
    """Give a test a file that holds up the servers whose metadata names it, as long as it exists."""
    path = tmp_path / "hold"
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
async def make(
    proxy: BreakingProxy, nova: NovaClient, project: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[MakeDriver]:
    """Give a test drivers, by default with a login from the environment, and close them in the end."""
    set_login(monkeypatch, proxy.url, project)
    monkeypatch.setattr(listing, "LEAST_PAGE_SIZE", PAGE)
    made: list[OpenStackDriver] = []

    def make_driver(credential: str = "env:TEST_CLOUD", meter: Any = lambda _: None, **options: str) -> OpenStackDriver:
        made.append(OpenStackDriver(ProviderRegion("openstack", REGION, credential=credential, options=options), meter))
        return made[-1]

    yield make_driver
    for driver in made:
        await driver.close()


@pytest.fixture
def driver(make: MakeDriver) -> OpenStackDriver:
    """Give a test the one driver that it needs."""
    return make()
