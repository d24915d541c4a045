"""What the tests of the Compute Engine driver share: a new world, service accounts, and drivers with them."""

import json
from collections.abc import AsyncIterator, Callable
from functools import cache
from typing import Any, TypeAlias

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from stateward.drivers import ProviderRegion
from stateward.drivers.gcp import GcpDriver
from tests.integration.drivers.gcp.gce_cloud import GceCloud, shared_cloud
from tests.integration.drivers.gcp.gce_world import PROJECT, REGION, ZONE

MakeGcpDriver: TypeAlias = Callable[..., GcpDriver]
EMAIL = "farm@acme-lab.example"
KEY_ID = "0123456789abcdef0123456789abcdef01234567"


@cache
def private_key() -> str:
    """Return a private key, which takes a while to make."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def account_file(email: str = EMAIL, **more: object) -> str:
    """Return the file of a service account, as Google issues it."""
    fields: dict[str, object] = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": KEY_ID,
        "private_key": private_key(),
        "client_email": email,
        "token_uri": "https://oauth2.example/token",
    }
    return json.dumps(fields | more)


@pytest.fixture
def cloud() -> GceCloud:
    """Give a test a world of its own."""
    cloud = shared_cloud()
    cloud.reset()
    return cloud


@pytest.fixture
async def make(cloud: GceCloud, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MakeGcpDriver]:
    """Give a test drivers, by default with a service account from the environment, and close them in the end."""
    monkeypatch.setenv("FARM_SERVICE_ACCOUNT", account_file())
    made: list[GcpDriver] = []

    def make_driver(
        credential: str = "env:FARM", meter: Any = lambda _: None, zone: str = ZONE, **options: str
    ) -> GcpDriver:
        place = ProviderRegion("gcp", REGION, zone, credential, {"endpoint_url": cloud.url, **options})
        made.append(GcpDriver(place, meter))
        return made[-1]

    yield make_driver
    for driver in made:
        await driver.close()


@pytest.fixture
def driver(make: MakeGcpDriver) -> GcpDriver:
    """Give a test the one driver that it needs."""
    return make()
