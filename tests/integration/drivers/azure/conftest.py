"""What the tests of the Azure driver share: a new world, drivers on it, and a client that is not the driver's."""

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from azure.core.credentials import AccessToken
from azure.core.pipeline import PipelineRequest
from azure.core.pipeline.policies import SansIOHTTPPolicy

from stateward.drivers import ProviderRegion
from stateward.drivers.azure import AzureDriver
from tests.integration.drivers.azure.arm_cloud import GROUP, LOCATION, SUBNET, SUBSCRIPTION, ArmCloud, shared_cloud

if TYPE_CHECKING:
    from azure.mgmt.compute.aio import ComputeManagementClient

MakeDriver: TypeAlias = Callable[..., AzureDriver]
SECRET = "very/secret~value"


@pytest.fixture
def cloud() -> ArmCloud:
    """Give a test a world of its own."""
    cloud = shared_cloud()
    cloud.reset()
    return cloud


@pytest.fixture
async def make(cloud: ArmCloud, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MakeDriver]:
    """Give a test drivers, by default with credentials from the environment, and close them in the end."""
    values = {"TENANT_ID": "tenant", "CLIENT_ID": "farmer", "CLIENT_SECRET": SECRET, "SUBSCRIPTION_ID": SUBSCRIPTION}
    for name, value in values.items():
        monkeypatch.setenv(f"FARM_{name}", value)
    made: list[AzureDriver] = []

    def make_driver(
        credential: str = "env:FARM", meter: Any = lambda _: None, zone: str = "", **options: str
    ) -> AzureDriver:
        given = {"endpoint_url": cloud.url, "resource_group": GROUP, "subnet": SUBNET, "poll_interval": "0.005"}
        region = ProviderRegion("azure", LOCATION, zone, credential, {**given, **options})
        made.append(AzureDriver(region, meter))
        return made[-1]

    yield make_driver
    for driver in made:
        await driver.close()


@pytest.fixture
def driver(make: MakeDriver) -> AzureDriver:
    """Give a test the one driver that it needs."""
    return make()


class Visitor(SansIOHTTPPolicy[Any, Any]):
    """Lets a client that is not ours into the test cloud."""

    def on_request(self, request: PipelineRequest[Any]) -> None:
        """Add a token."""
        request.http_request.headers["Authorization"] = "Bearer simulated-visitor"


class NoCredential:
    """What a client must be given, and never uses here."""

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """Return no token."""
        return AccessToken("", 0)

    async def close(self) -> None:
        """Close nothing."""

    async def __aenter__(self) -> "NoCredential":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave."""


@pytest.fixture
async def compute(cloud: ArmCloud) -> AsyncIterator["ComputeManagementClient"]:
    """Give a test a client that is not ours, as the library makes it."""
    from azure.mgmt.compute.aio import ComputeManagementClient

    async with ComputeManagementClient(
        NoCredential(), SUBSCRIPTION, base_url=cloud.url, authentication_policy=Visitor(), retry_total=0
    ) as client:
        yield client
